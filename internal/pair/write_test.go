package pair

import (
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// below is a root with the parents of the product's folder.
func below(t *testing.T) Places {
	t.Helper()
	root := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(root, "etc"), 0o755))
	return Locate(Linux, root, "", "", "", "")
}

func content(t *testing.T) []byte {
	t.Helper()
	c, err := Settings(ports)
	require.NoError(t, err)
	return c
}

// names lists what is in a folder.
func names(t *testing.T, dir string) []string {
	t.Helper()
	all, _, err := Disk{}.Names(dir)
	require.NoError(t, err)
	return all
}

func TestWriteAndRemove(t *testing.T) {
	p := below(t)
	removed, err := Remove(p)
	require.NoError(t, err)
	assert.False(t, removed, "there is nothing yet")

	changed, err := Write(p, content(t))
	require.NoError(t, err)
	assert.True(t, changed)
	got, mode, err := Disk{}.Read(p.Own, maxFile)
	require.NoError(t, err)
	assert.Equal(t, string(content(t)), string(got))
	assert.Equal(t, []string{FileName}, names(t, p.DropIns), "nothing temporary is left")
	if runtime.GOOS != "windows" {
		assert.Equal(t, fs.FileMode(fileMode), mode.Perm())
		info, err := os.Stat(p.DropIns)
		require.NoError(t, err)
		assert.Equal(t, fs.FileMode(folderMode), info.Mode().Perm())
	}

	before, err := os.Stat(p.Own)
	require.NoError(t, err)
	changed, err = Write(p, content(t))
	require.NoError(t, err)
	assert.False(t, changed)
	after, err := os.Stat(p.Own)
	require.NoError(t, err)
	assert.True(t, os.SameFile(before, after), "the same content was written again")

	other, err := Settings(Ports{Process: 1, Commands: 2})
	require.NoError(t, err)
	changed, err = Write(p, other)
	require.NoError(t, err)
	assert.True(t, changed, "other ports")

	removed, err = Remove(p)
	require.NoError(t, err)
	assert.True(t, removed)
	assert.Empty(t, names(t, p.DropIns))
}

// What is not ours, or not what it seems, is neither replaced nor removed.
func TestWriteRefuses(t *testing.T) {
	tests := map[string]struct {
		prepare func(t *testing.T, p Places)
		path    func(p Places) string
		why     string
	}{
		"a foreign key": {
			func(t *testing.T, p Places) { put(t, p.Own, `{"sandbox":{"enabled":true},"model":"x"}`) },
			func(p Places) string { return p.Own }, "has keys that sluicegate does not write",
		},
		"a foreign key below": {
			func(t *testing.T, p Places) { put(t, p.Own, `{"sandbox":{"excludedCommands":[]}}`) },
			func(p Places) string { return p.Own }, "has keys that sluicegate does not write",
		},
		"a foreign variable": {
			func(t *testing.T, p Places) { put(t, p.Own, `{"env":{"TOKEN":"x"}}`) },
			func(p Places) string { return p.Own }, "has keys that sluicegate does not write",
		},
		"a key twice": {
			func(t *testing.T, p Places) { put(t, p.Own, `{"env":{"TOKEN":"x"},"env":{}}`) },
			func(p Places) string { return p.Own }, "has keys that sluicegate does not write",
		},
		"no JSON": {
			func(t *testing.T, p Places) { put(t, p.Own, "") },
			func(p Places) string { return p.Own }, "has keys that sluicegate does not write",
		},
		"a big file": {
			func(t *testing.T, p Places) {
				put(t, p.Own, "{}")
				require.NoError(t, os.Truncate(p.Own, maxFile+1))
			},
			func(p Places) string { return p.Own }, "was not written by sluicegate: it is larger",
		},
		"a folder": {
			func(t *testing.T, p Places) { require.NoError(t, os.MkdirAll(p.Own, 0o755)) },
			func(p Places) string { return p.Own }, "was not written by sluicegate: it is not a regular file",
		},
		"a link to a file of ours": {
			func(t *testing.T, p Places) {
				target := filepath.Join(t.TempDir(), "target")
				put(t, target, string(content(t)))
				require.NoError(t, os.MkdirAll(p.DropIns, 0o755))
				link(t, target, p.Own)
			},
			func(p Places) string { return p.Own }, "is a symbolic link",
		},
		"a link to nothing": {
			func(t *testing.T, p Places) {
				require.NoError(t, os.MkdirAll(p.DropIns, 0o755))
				link(t, filepath.Join(t.TempDir(), "nothing"), p.Own)
			},
			func(p Places) string { return p.Own }, "is a symbolic link",
		},
		"a linked folder": {
			func(t *testing.T, p Places) {
				require.NoError(t, os.MkdirAll(filepath.Dir(p.DropIns), 0o755))
				link(t, t.TempDir(), p.DropIns)
			},
			func(p Places) string { return p.DropIns }, "is a symbolic link",
		},
		"a linked folder above": {
			func(t *testing.T, p Places) { link(t, t.TempDir(), filepath.Dir(p.DropIns)) },
			func(p Places) string { return filepath.Dir(p.DropIns) }, "is a symbolic link",
		},
		"a file in place of the folder": {
			func(t *testing.T, p Places) { put(t, p.DropIns, "") },
			func(p Places) string { return p.DropIns }, "is not a folder",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := below(t)
			tt.prepare(t, p)
			before, err := os.Lstat(tt.path(p))
			require.NoError(t, err)
			for do, run := range map[string]func() (bool, error){
				"write":  func() (bool, error) { return Write(p, content(t)) },
				"remove": func() (bool, error) { return Remove(p) },
			} {
				done, err := run()
				var refused *Refused
				require.ErrorAs(t, err, &refused, do)
				assert.False(t, done, do)
				assert.Equal(t, tt.path(p), refused.Path, do)
				assert.Contains(t, refused.Why, tt.why, do)
				assert.NotEmpty(t, refused.Mend)
				after, err := os.Lstat(tt.path(p))
				require.NoError(t, err, do)
				assert.True(t, os.SameFile(before, after), do)
				assert.Equal(t, before.Size(), after.Size(), do)
			}
		})
	}
}

// Files of ours that somebody changed within our keys are still ours.
func TestWriteReplacesOwnFiles(t *testing.T) {
	for _, text := range []string{"{}", `{"sandbox":{"enabled":false}}`, `{"env":{"NO_PROXY":"*"}}`} {
		p := below(t)
		put(t, p.Own, text)
		changed, err := Write(p, content(t))
		require.NoError(t, err)
		assert.True(t, changed)
	}
}

// A mode that lets others change the file is mended though the content is right.
func TestWriteMendsTheMode(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("needs file modes")
	}
	p := below(t)
	put(t, p.Own, string(content(t)))
	require.NoError(t, os.Chmod(p.Own, 0o666))
	changed, err := Write(p, content(t))
	require.NoError(t, err)
	assert.True(t, changed)
	info, err := os.Stat(p.Own)
	require.NoError(t, err)
	assert.Equal(t, fs.FileMode(fileMode), info.Mode().Perm())
}

func TestWriteWithoutPermission(t *testing.T) {
	if runtime.GOOS == "windows" || os.Geteuid() == 0 {
		t.Skip("needs a user whom file modes bind")
	}
	p := below(t)
	etc := filepath.Dir(filepath.Dir(p.DropIns))
	require.NoError(t, os.Chmod(etc, 0o555))
	t.Cleanup(func() { _ = os.Chmod(etc, 0o755) })
	_, err := Write(p, content(t))
	require.ErrorIs(t, err, fs.ErrPermission)
}

// A failed write leaves neither a file nor something temporary.
func TestReplaceFails(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	require.NoError(t, os.MkdirAll(filepath.Join(path, "full"), 0o755))
	require.Error(t, replace(path, []byte("x")), "a folder that is not empty is in the way")
	assert.Equal(t, []string{"file"}, names(t, dir))
}

func TestDiskRead(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	put(t, path, "12345")
	_, _, err := Disk{}.Read(path, 5)
	require.NoError(t, err)
	_, _, err = Disk{}.Read(path, 4)
	require.ErrorIs(t, err, errTooBig)
	_, _, err = Disk{}.Read(dir, 5)
	require.ErrorIs(t, err, errNotRegular)
	_, _, err = Disk{}.Read(filepath.Join(dir, "none"), 5)
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, _, err = Disk{}.Names(filepath.Join(dir, "none"))
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, _, err = Disk{}.Names(path)
	require.Error(t, err)
}

func put(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
}

func link(t *testing.T, target, path string) {
	t.Helper()
	if err := os.Symlink(target, path); err != nil {
		t.Skipf("no symbolic links here: %v", err)
	}
}
