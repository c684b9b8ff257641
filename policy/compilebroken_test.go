package policy_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluicegate/policy"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The group that broken files may misspell.
const githubGroup = "version: 1\ngroup: github\nabout: code\nhosts: [\"**.github.com\"]\n"

// TestBrokenFiles compiles each file of testdata/broken and compares all that is
// said of it with the .want file beside it; UPDATE=1 writes those. One fault
// gives one problem, and all faults of a file are told at once.
func TestBrokenFiles(t *testing.T) {
	names, err := filepath.Glob("testdata/broken/*.yaml")
	require.NoError(t, err)
	require.Greater(t, len(names), 200)
	for _, name := range names {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".yaml"), func(t *testing.T) {
			data, err := os.ReadFile(name)
			require.NoError(t, err)
			snapshot, err := policy.Compile([]policy.File{
				{Name: "groups.yaml", Data: []byte(githubGroup)},
				{Name: "policy.yaml", Data: data},
			})
			require.Error(t, err)
			require.Nil(t, snapshot)
			var problems policy.Problems
			require.ErrorAs(t, err, &problems)
			golden(t, strings.TrimSuffix(name, ".yaml")+".want", problems.Error()+"\n")
			for _, p := range problems {
				assert.Equal(t, "policy.yaml", p.File)
				assert.NotEmpty(t, p.Msg)
				// What a person sees in a terminal is text and nothing else.
				for _, r := range p.Error() {
					assert.False(t, r < ' ' && r != '\n' || r == 0x7f || r >= 0x80 && r < 0xa0 || r == 0x202e, "%q", p.Error())
				}
			}
		})
	}
	wants, err := filepath.Glob("testdata/broken/*.want")
	require.NoError(t, err)
	assert.Len(t, wants, len(names), "a .want file without its .yaml")
}

// golden compares got with a file, or writes it when UPDATE is set.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if os.Getenv("UPDATE") != "" {
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
		return
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, string(want), got)
}
