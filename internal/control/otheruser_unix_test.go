//go:build linux || darwin

package control

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const nobody = 65534

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to act as another user")
	}
}

// TestRealOtherUser lets a process of another user through the folder and the
// socket's mode, so that only the uid check is left.
func TestRealOtherUser(t *testing.T) {
	t.Parallel()
	needRoot(t)
	exe, err := os.Executable()
	require.NoError(t, err)
	if _, err := os.Stat("/proc/self/exe"); err == nil {
		exe = "/proc/self/exe" // the test binary's own folder is closed to others
	}
	// Not in $TMPDIR, which may be closed to other users.
	dir, err := os.MkdirTemp("/tmp", "sg")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o755))
	w := start(t, unexpected(t), func(o *Options) { o.Path = filepath.Join(dir, "s") })
	require.NoError(t, os.Chmod(w.path, 0o666))

	var stdout, stderr bytes.Buffer
	cmd := exec.Command(exe)
	cmd.Dir = "/"
	cmd.Env = []string{helperEnv + "=" + w.path}
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	require.NoError(t, cmd.Run(), stderr.String())
	assert.Empty(t, stdout.String(), "not a byte is answered")
	assert.Contains(t, w.log.String(), "uid=65534")
	assert.Equal(t, 1, strings.Count(w.log.String(), "another user refused"))
}

func TestThingsOfAnotherUser(t *testing.T) {
	t.Parallel()
	needRoot(t)
	t.Run("folder", func(t *testing.T) {
		t.Parallel()
		dir := filepath.Join(shortDir(t), "run")
		require.NoError(t, os.Mkdir(dir, 0o755))
		require.NoError(t, os.Chown(dir, nobody, nobody))
		requireOneLine(t, tryListen(t, filepath.Join(dir, "s")), ErrUntrustedPath, dir, "uid 65534", "folder of your own")
	})
	t.Run("folder above", func(t *testing.T) {
		t.Parallel()
		dir := filepath.Join(shortDir(t), "theirs")
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "run"), 0o700))
		require.NoError(t, os.Chown(dir, nobody, nobody))
		requireOneLine(t, tryListen(t, filepath.Join(dir, "run", "s")), ErrUntrustedPath, dir, "uid 65534")
		requireOneLine(t, tryListen(t, filepath.Join(dir, "new", "s")), ErrUntrustedPath, dir)
		assert.NoDirExists(t, filepath.Join(dir, "new"))
	})
	t.Run("link above", func(t *testing.T) {
		t.Parallel()
		base := shortDir(t)
		require.NoError(t, os.Mkdir(filepath.Join(base, "real"), 0o700))
		link := filepath.Join(base, "link")
		require.NoError(t, os.Symlink("real", link))
		require.NoError(t, os.Lchown(link, nobody, nobody))
		requireOneLine(t, tryListen(t, filepath.Join(link, "run", "s")), ErrUntrustedPath, link, "uid 65534")
		assert.NoDirExists(t, filepath.Join(base, "real", "run"))
	})
	t.Run("socket", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(shortDir(t), "s")
		leaveStale(t, path)
		require.NoError(t, os.Chown(path, nobody, nobody))
		requireOneLine(t, tryListen(t, path), ErrUntrustedPath, path, "uid 65534")
		assert.FileExists(t, path)
	})
	t.Run("lock", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(shortDir(t), "s")
		require.NoError(t, os.WriteFile(path+".lock", nil, 0o600))
		require.NoError(t, os.Chown(path+".lock", nobody, nobody))
		requireOneLine(t, tryListen(t, path), ErrUntrustedPath, path+".lock")
	})
}
