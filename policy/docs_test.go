package policy_test

import (
	"io/fs"
	"os"
	"regexp"
	"testing"

	"sluicegate/configs"
	"sluicegate/policy"

	"github.com/stretchr/testify/require"
)

// TestDocumentedPolicies compiles every YAML block of the documentation, each
// together with the shipped groups.
func TestDocumentedPolicies(t *testing.T) {
	page, err := os.ReadFile("../docs/policy.md")
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(page, -1)
	require.NotEmpty(t, blocks)
	var groups []policy.File
	names, err := fs.Glob(configs.FS, "groups/*.yaml")
	require.NoError(t, err)
	for _, n := range names {
		data, err := fs.ReadFile(configs.FS, n)
		require.NoError(t, err)
		groups = append(groups, policy.File{Name: n, Data: data, Shipped: true})
	}
	for _, b := range blocks {
		_, err := policy.Compile(append(groups[:len(groups):len(groups)], policy.File{Name: "docs/policy.md", Data: b[1]}))
		require.NoError(t, err)
	}
}
