//go:build unix

package daemon

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A pipe has no end: reading one would hang the daemon before it says a word.
func TestPipesAreNotRead(t *testing.T) {
	p := userPaths(t)
	require.NoError(t, os.MkdirAll(p.Policy, 0o700))
	require.NoError(t, syscall.Mkfifo(p.Config, 0o600))
	_, err := LoadSettings(p, false)
	assert.ErrorContains(t, err, p.Config+" is not a regular file")

	pipe := filepath.Join(p.Policy, "pipe.yaml")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	_, err = LoadPolicy(p, defaultSettings(p))
	assert.ErrorContains(t, err, pipe+" is not a regular file")
}

// A link that leads nowhere is not the same as no file: somebody wrote settings.
func TestSettingsLinkThatLeadsNowhere(t *testing.T) {
	p := userPaths(t)
	require.NoError(t, os.MkdirAll(filepath.Dir(p.Config), 0o700))
	target := filepath.Join(filepath.Dir(p.Config), "target.yaml")
	require.NoError(t, os.Symlink(target, p.Config))
	_, err := LoadSettings(p, false)
	assert.ErrorContains(t, err, p.Config+" is a symbolic link to something that does not exist")

	write(t, target, "version: 1\nrefusal_detail: rule\n")
	s, err := LoadSettings(p, false)
	require.NoError(t, err, "a link that leads somewhere is a file")
	assert.EqualValues(t, "rule", s.Detail)
}
