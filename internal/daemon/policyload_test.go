package daemon

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluicegate/policy"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// decide asks a loaded policy about a tunnel for the commands profile.
func decide(t *testing.T, p Policy, target string) *policy.Decision {
	t.Helper()
	dest, err := policy.ParseHostPort(target, 443)
	require.NoError(t, err)
	d := p.Snapshot.Decide(policy.Request{
		Profile: commands, Entitled: true, Proto: policy.ProtoConnect, Destination: dest, Now: time.Now(),
	})
	return &d
}

func profileNames(p Policy) (names []string) {
	for _, profile := range p.Snapshot.Profiles() {
		names = append(names, profile.Name)
	}
	return names
}

func TestLoadPolicyEmbedded(t *testing.T) {
	paths := userPaths(t)
	p, err := LoadPolicy(paths, defaultSettings(paths))
	require.NoError(t, err)
	assert.Equal(t, SourceEmbedded, p.Source)
	assert.Equal(t, []string{"chatgpt-codex/commands", "chatgpt-codex/process", commands, "claude-code/process"}, profileNames(p))
	d := decide(t, p, "github.com")
	assert.True(t, d.Allowed())
	assert.Equal(t, "embedded/groups/github.yaml", d.Rule.File)
	assert.False(t, decide(t, p, "gist.github.com").Allowed())

	// The folder is all that counts: settings without one change nothing.
	write(t, paths.Config, "version: 1\n")
	again, err := LoadPolicy(paths, defaultSettings(paths))
	require.NoError(t, err)
	assert.Equal(t, p.Snapshot.Digest(), again.Snapshot.Digest())
}

func TestLoadPolicyFolder(t *testing.T) {
	paths := userPaths(t)
	require.NoError(t, os.MkdirAll(paths.Policy, 0o700))
	p, err := LoadPolicy(paths, defaultSettings(paths))
	require.NoError(t, err)
	assert.Equal(t, paths.Policy, p.Source)
	assert.Empty(t, profileNames(p), "an empty folder is a policy: nothing is allowed")
	assert.Equal(t, policy.ReasonUnknownProfile, decide(t, p, "github.com").Reason)

	file := filepath.Join(paths.Policy, "a.yaml")
	write(t, file, onePolicy("    use: [github]", "    allow:", "      - {host: docs.example.com, id: docs}"))
	p, err = LoadPolicy(paths, defaultSettings(paths))
	require.NoError(t, err)
	assert.Equal(t, []string{commands}, profileNames(p), "the embedded products are not mixed in")
	assert.True(t, decide(t, p, "github.com").Allowed(), "the shipped groups can be used")
	d := decide(t, p, "docs.example.com")
	assert.True(t, d.Allowed())
	assert.Equal(t, file, d.Rule.File)
	assert.Equal(t, 8, d.Rule.Line)
}

// Editors and package managers leave copies in the folder, and a copy of a rule
// that was taken out must not bring it back.
func TestLoadPolicyLeavesOtherFilesAlone(t *testing.T) {
	paths := userPaths(t)
	write(t, filepath.Join(paths.Policy, "a.yaml"), onePolicy())
	before, err := LoadPolicy(paths, defaultSettings(paths))
	require.NoError(t, err)
	for _, name := range []string{
		".b.yaml", ".b.yaml.swp", "b.yaml~", "#b.yaml#", "b.yaml.bak", "b.yaml.rpmsave", "b.yaml.dpkg-old", "README", "b.txt", "yaml",
	} {
		write(t, filepath.Join(paths.Policy, name), "not: a policy\n")
	}
	require.NoError(t, os.Mkdir(filepath.Join(paths.Policy, "more"), 0o700))
	write(t, filepath.Join(paths.Policy, "more", "b.yaml"), "not: a policy\n")
	after, err := LoadPolicy(paths, defaultSettings(paths))
	require.NoError(t, err)
	assert.Equal(t, before.Snapshot.Digest(), after.Snapshot.Digest())

	for _, name := range []string{"b.yaml", "b.yml", "b.json"} {
		path := filepath.Join(paths.Policy, name)
		write(t, path, "not: a policy\n")
		_, err = LoadPolicy(paths, defaultSettings(paths))
		var problems policy.Problems
		require.ErrorAs(t, err, &problems, name)
		assert.Equal(t, path, problems[0].File)
		require.NoError(t, os.Remove(path))
	}
}

func TestLoadPolicyNamedFolder(t *testing.T) {
	paths := userPaths(t)
	s := defaultSettings(paths)
	s.PolicyDir = filepath.Join(filepath.Dir(paths.Config), "named")
	_, err := LoadPolicy(paths, s)
	require.ErrorIs(t, err, fs.ErrNotExist, "the embedded policy does not stand in for a folder that was named")
	assert.ErrorContains(t, err, s.PolicyDir)

	write(t, s.PolicyDir, "")
	_, err = LoadPolicy(paths, s)
	assert.Error(t, err, "a file is no folder")
	require.NoError(t, os.Remove(s.PolicyDir))

	write(t, filepath.Join(s.PolicyDir, "a.yaml"), onePolicy())
	write(t, filepath.Join(paths.Policy, "b.yaml"), "not: a policy\n")
	p, err := LoadPolicy(paths, s)
	require.NoError(t, err, "the other folder is not read")
	assert.Equal(t, s.PolicyDir, p.Source)
}

func TestLoadPolicyGroupOverride(t *testing.T) {
	paths := userPaths(t)
	group := filepath.Join(paths.Policy, "github.yaml")
	write(t, group, "version: 1\ngroup: github\nabout: a mirror\nsource: this test\nhosts: [git.example.com]\n")
	write(t, filepath.Join(paths.Policy, "product.yaml"), onePolicy("    use: [github]"))
	p, err := LoadPolicy(paths, defaultSettings(paths))
	require.NoError(t, err)
	assert.False(t, decide(t, p, "github.com").Allowed(), "the shipped group is replaced, not added to")
	d := decide(t, p, "git.example.com")
	require.True(t, d.Allowed())
	assert.Equal(t, group, d.Rule.File)
	notices := p.Snapshot.Notices()
	require.Len(t, notices, 1)
	assert.Equal(t, group, notices[0].File)
	assert.Contains(t, notices[0].Msg, "replaces the shipped group github")
}

// Whatever is wrong with the folder, its embedded stand-in is not the answer: it
// allows what the folder may deny.
func TestLoadPolicyFaults(t *testing.T) {
	for name, prepare := range map[string]func(t *testing.T, dir string){
		"a link to a file that is gone": func(t *testing.T, dir string) {
			require.NoError(t, os.MkdirAll(dir, 0o700))
			link(t, filepath.Join(dir, "gone"), filepath.Join(dir, "a.yaml"))
		},
		"a link to a folder that is gone": func(t *testing.T, dir string) {
			require.NoError(t, os.MkdirAll(filepath.Dir(dir), 0o700))
			link(t, dir+".gone", dir)
		},
		"a file in place of the folder": func(t *testing.T, dir string) { write(t, dir, "") },
		"a folder in place of a file": func(t *testing.T, dir string) {
			require.NoError(t, os.MkdirAll(filepath.Join(dir, "a.yaml"), 0o700))
		},
		"a file that is too large": func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "a.yaml"), onePolicy()+"# "+strings.Repeat("x", policy.MaxFileSize))
		},
		"an empty file": func(t *testing.T, dir string) { write(t, filepath.Join(dir, "a.yaml"), "") },
		"a broken file": func(t *testing.T, dir string) { write(t, filepath.Join(dir, "a.yaml"), "version: [\n") },
		"a link to itself": func(t *testing.T, dir string) {
			require.NoError(t, os.MkdirAll(dir, 0o700))
			link(t, "a.yaml", filepath.Join(dir, "a.yaml"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			paths := userPaths(t)
			prepare(t, paths.Policy)
			p, err := LoadPolicy(paths, defaultSettings(paths))
			require.Error(t, err)
			assert.ErrorContains(t, err, paths.Policy)
			assert.Nil(t, p.Snapshot)
		})
	}
}

func link(t *testing.T, target, path string) {
	t.Helper()
	if err := os.Symlink(target, path); err != nil {
		t.Skipf("this system makes no links for this user: %v", err)
	}
}
