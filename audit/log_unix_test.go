//go:build unix

package audit

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestModes(t *testing.T) {
	old := syscall.Umask(0o022)
	defer syscall.Umask(old)

	dir := filepath.Join(t.TempDir(), "log")
	path := filepath.Join(dir, "audit.jsonl")
	mode := func(path string) fs.FileMode {
		info, err := os.Stat(path)
		require.NoError(t, err)

		return info.Mode().Perm()
	}

	l := openLog(t, Options{File: path, MaxSize: 1})
	record(t, l, denied("example.com"))
	assert.Equal(t, fs.FileMode(0o700), mode(dir))
	assert.Equal(t, fs.FileMode(0o640), mode(path))

	// A mode that an administrator chose is kept over a rotation, in spite of
	// the umask.
	require.NoError(t, os.Chmod(path, 0o660))
	record(t, l, denied("example.com"))
	assert.Equal(t, fs.FileMode(0o660), mode(path))
	files, err := Files(path)
	require.NoError(t, err)
	require.Len(t, files, 2)
	assert.Equal(t, fs.FileMode(0o660), mode(files[0]))
}

func TestOpenRefusesPipe(t *testing.T) {
	path := logPath(t)
	require.NoError(t, syscall.Mkfifo(path, 0o600))
	_, err := Open(t.Context(), Options{File: path})
	require.ErrorContains(t, err, path+" is not a regular file (p---------): set audit.file to another path")
}

func TestOpenRefusesLinkThatAppearsLate(t *testing.T) {
	// Without the check in front, as if the link had been made just after it.
	path := logPath(t)
	require.NoError(t, os.Symlink(filepath.Join(t.TempDir(), "target"), path))
	_, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND|os.O_CREATE|openFlags, fileMode)
	require.ErrorIs(t, err, syscall.ELOOP)
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	target := filepath.Join(dir, "target")
	require.NoError(t, os.WriteFile(target, nil, 0o600))
	link, dangling := filepath.Join(dir, "link"), filepath.Join(dir, "dangling")
	require.NoError(t, os.Symlink(target, link))
	require.NoError(t, os.Symlink(filepath.Join(dir, "missing"), dangling))
	folder := filepath.Join(dir, "folder")
	require.NoError(t, os.Mkdir(folder, 0o700))
	locked := filepath.Join(dir, "locked")
	require.NoError(t, os.Symlink(target, locked+".lock"))

	for _, tc := range []struct{ name, path, want string }{
		{"no name", "", "no file name"},
		{"symbolic link", link, link + " is a symbolic link: set audit.file to"},
		{"dangling link", dangling, dangling + " is a symbolic link"},
		{"folder", folder, folder + " is a folder: set audit.file to a file in it, such as "},
		{"below a file", filepath.Join(target, "x"), "creating the audit log's folder"},
		{"lock is a link", locked, locked + ".lock is not a regular file: remove it"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Open(t.Context(), Options{File: tc.path})
			require.ErrorContains(t, err, tc.want)
			assert.NotContains(t, err.Error(), "\n", "one line")
		})
	}
	assert.NoFileExists(t, filepath.Join(dir, "missing"))
	info, err := os.Stat(target)
	require.NoError(t, err)
	assert.Zero(t, info.Size(), "nothing was written through a link")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = Open(ctx, Options{File: filepath.Join(dir, "new")})
	require.ErrorIs(t, err, context.Canceled)
}
