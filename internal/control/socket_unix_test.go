//go:build unix

package control

import (
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// tryListen calls Listen and closes what it made.
func tryListen(t *testing.T, path string) error {
	t.Helper()
	s, err := Listen(t.Context(), Options{Path: path, Handler: http.HandlerFunc(hello)})
	if err == nil {
		require.NoError(t, s.Close())
	}
	return err
}

// leaveStale makes a socket as a killed daemon leaves it.
func leaveStale(t *testing.T, path string) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	require.NoError(t, err)
	l.SetUnlinkOnClose(false)
	require.NoError(t, l.Close())
	require.FileExists(t, path)
}

// requireOneLine asserts that an error is one a person can act on.
func requireOneLine(t *testing.T, err error, kind error, parts ...string) {
	t.Helper()
	require.ErrorIs(t, err, kind)
	assert.NotContains(t, err.Error(), "\n")
	for _, p := range parts {
		assert.ErrorContains(t, err, p)
	}
}

func TestSocketIsPrivate(t *testing.T) {
	t.Parallel()
	w := start(t, hello, nil)
	for path, want := range map[string]fs.FileMode{
		filepath.Dir(w.path): fs.ModeDir | 0o700,
		w.path:               fs.ModeSocket | 0o600,
		w.path + ".lock":     0o600,
	} {
		info, err := os.Lstat(path)
		require.NoError(t, err)
		assert.Equal(t, want, info.Mode(), path)
	}
}

func TestStaleSocketIsReplaced(t *testing.T) {
	t.Parallel()
	path := filepath.Join(shortDir(t), "s")
	leaveStale(t, path)
	require.NoError(t, tryListen(t, path))
	assert.NoFileExists(t, path)
}

func TestRunningDaemonIsLeftAlone(t *testing.T) {
	t.Parallel()
	w := start(t, hello, nil)
	err := tryListen(t, w.path)
	requireOneLine(t, err, ErrRunning)
	assert.EqualError(t, err, "another sluicegate daemon is running (control socket "+w.path+")")
	require.NoError(t, NewClient(w.path).Get(t.Context(), "/", nil, nil), "the first one still answers")
}

func TestListenerWithoutLockIsLeftAlone(t *testing.T) {
	t.Parallel()
	path := filepath.Join(shortDir(t), "s")
	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	defer l.Close()
	requireOneLine(t, tryListen(t, path), ErrRunning, path)
	c, err := net.Dial("unix", path)
	require.NoError(t, err, "the socket is still there")
	require.NoError(t, c.Close())
}

// TestListenerWithFullQueueIsLeftAlone: a daemon that is too busy to accept is
// not a dead one.
func TestListenerWithFullQueueIsLeftAlone(t *testing.T) {
	t.Parallel()
	path := filepath.Join(shortDir(t), "s")
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	require.NoError(t, err)
	defer syscall.Close(fd)
	require.NoError(t, syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}))
	require.NoError(t, syscall.Listen(fd, 0))
	for range 8 {
		c, err := net.Dial("unix", path)
		if err != nil {
			if !isBusy(err) {
				t.Skipf("this system doesn't tell a full queue from a dead socket: %v", err)
			}
			requireOneLine(t, tryListen(t, path), ErrRunning, path)
			assert.FileExists(t, path)
			return
		}
		defer c.Close()
	}
	t.Skip("this system's queue is larger than asked for")
}

func TestSimultaneousStarts(t *testing.T) {
	t.Parallel()
	for range 20 {
		path := filepath.Join(shortDir(t), "s")
		leaveStale(t, path)
		var won atomic.Pointer[Server]
		var wins, running atomic.Int32
		var wg sync.WaitGroup
		begin := make(chan struct{})
		for range 16 {
			wg.Go(func() {
				<-begin
				s, err := Listen(t.Context(), Options{Path: path, Handler: http.HandlerFunc(hello)})
				if err != nil {
					assert.ErrorIs(t, err, ErrRunning)
					running.Add(1)
					return
				}
				wins.Add(1)
				won.Store(s)
			})
		}
		close(begin)
		wg.Wait()
		require.Equal(t, int32(1), wins.Load())
		require.Equal(t, int32(15), running.Load())
		won.Load().Start()
		require.NoError(t, NewClient(path).Get(t.Context(), "/", nil, nil), "the winner has the socket")
		require.NoError(t, won.Load().Close())
	}
}

func TestWhatIsNoSocketIsKept(t *testing.T) {
	t.Parallel()
	for name, put := range map[string]func(path string) error{
		"file":          func(p string) error { return os.WriteFile(p, []byte("precious"), 0o600) },
		"folder":        func(p string) error { return os.Mkdir(p, 0o700) },
		"fifo":          func(p string) error { return syscall.Mkfifo(p, 0o600) },
		"dangling link": func(p string) error { return os.Symlink("/nowhere", p) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(shortDir(t), "s")
			require.NoError(t, put(path))
			before, err := os.Lstat(path)
			require.NoError(t, err)
			requireOneLine(t, tryListen(t, path), ErrUntrustedPath, path, "not a socket", "move it away")
			after, err := os.Lstat(path)
			require.NoError(t, err)
			assert.True(t, os.SameFile(before, after))
		})
	}
}

func TestLinkToSocketIsKept(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	leaveStale(t, filepath.Join(dir, "other"))
	path := filepath.Join(dir, "s")
	require.NoError(t, os.Symlink("other", path))
	requireOneLine(t, tryListen(t, path), ErrUntrustedPath, "not a socket")
	assert.FileExists(t, filepath.Join(dir, "other"))
}

func TestLockFileMustBeOurs(t *testing.T) {
	t.Parallel()
	for name, put := range map[string]func(path string) error{
		"link": func(p string) error { return os.Symlink(filepath.Join(filepath.Dir(p), "victim"), p) },
		"fifo": func(p string) error { return syscall.Mkfifo(p, 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(shortDir(t), "s")
			require.NoError(t, put(path+".lock"))
			requireOneLine(t, tryListen(t, path), ErrUntrustedPath, path+".lock", "remove it")
			assert.NoFileExists(t, filepath.Join(filepath.Dir(path), "victim"))
		})
	}
	t.Run("open to others", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(shortDir(t), "s")
		require.NoError(t, os.WriteFile(path+".lock", nil, 0o666))
		require.NoError(t, tryListen(t, path))
		info, err := os.Lstat(path + ".lock")
		require.NoError(t, err)
		assert.Equal(t, fs.FileMode(0o600), info.Mode())
	})
}

func TestFolderMustBeClosedToOthers(t *testing.T) {
	t.Parallel()
	for mode, mend := range map[fs.FileMode]string{
		0o770:                 "chmod go-w",
		0o702:                 "chmod go-w",
		0o777:                 "chmod go-w",
		0o777 | fs.ModeSticky: "folder of your own",
		0o700:                 "",
		0o755:                 "",
		0o700 | fs.ModeSticky: "",
	} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(shortDir(t), "run")
			require.NoError(t, os.Mkdir(dir, 0o700))
			require.NoError(t, os.Chmod(dir, mode))
			err := tryListen(t, filepath.Join(dir, "s"))
			if mend == "" {
				require.NoError(t, err)
				return
			}
			requireOneLine(t, err, ErrUntrustedPath, dir, mend)
			assert.NoFileExists(t, filepath.Join(dir, "s.lock"), "nothing is made there")
		})
	}
}

func TestSharedTemporaryFolder(t *testing.T) {
	t.Parallel()
	info, err := os.Stat("/tmp")
	if err != nil || info.Mode()&fs.ModeSticky == 0 {
		t.Skip("/tmp is not a sticky folder here")
	}
	requireOneLine(t, tryListen(t, "/tmp/sluicegate-test.sock"), ErrUntrustedPath, "/tmp", "folder of your own")
}

func TestFolderThatIsNone(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "real"), 0o700))
	require.NoError(t, os.Symlink("real", filepath.Join(dir, "link")))
	requireOneLine(t, tryListen(t, filepath.Join(dir, "link", "s")), ErrUntrustedPath, "symbolic link")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	require.ErrorIs(t, tryListen(t, filepath.Join(dir, "file", "s")), syscall.ENOTDIR)
}

func TestFoldersAbove(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	open := filepath.Join(dir, "open")
	require.NoError(t, os.MkdirAll(filepath.Join(open, "run"), 0o700))
	require.NoError(t, os.Chmod(open, 0o777))
	path := filepath.Join(open, "run", "s")
	requireOneLine(t, tryListen(t, path), ErrUntrustedPath, open, "chmod o-w")

	fresh := filepath.Join(open, "not-yet", "s")
	requireOneLine(t, tryListen(t, fresh), ErrUntrustedPath, open)
	assert.NoDirExists(t, filepath.Dir(fresh), "nothing is made before the check")

	// A link of our own is fine, where it leads is judged too.
	require.NoError(t, os.Symlink(open, filepath.Join(dir, "way")))
	requireOneLine(t, tryListen(t, filepath.Join(dir, "way", "run", "s")), ErrUntrustedPath, "chmod o-w")
	require.NoError(t, os.MkdirAll(filepath.Join(open, "in", "run"), 0o700))
	require.NoError(t, os.Symlink(filepath.Join(open, "in"), filepath.Join(dir, "deep")))
	requireOneLine(t, tryListen(t, filepath.Join(dir, "deep", "run", "s")), ErrUntrustedPath, open, "chmod o-w")

	require.NoError(t, os.Chmod(open, 0o777|fs.ModeSticky))
	require.NoError(t, tryListen(t, path), "sticky: others can't replace what is ours")
	require.NoError(t, os.Chmod(open, 0o700))
	require.NoError(t, tryListen(t, filepath.Join(dir, "way", "run", "s")))
}

func TestMissingFoldersAreMade(t *testing.T) {
	t.Parallel()
	path := filepath.Join(shortDir(t), "a", "b", "s")
	require.NoError(t, tryListen(t, path))
	for _, dir := range []string{filepath.Dir(path), filepath.Dir(filepath.Dir(path))} {
		info, err := os.Lstat(dir)
		require.NoError(t, err)
		assert.Equal(t, fs.ModeDir|0o700, info.Mode())
	}
}

func TestPathForm(t *testing.T) {
	t.Parallel()
	long := "/" + strings.Repeat("x", maxPath)
	for path, mend := range map[string]string{
		"":           "no control socket path",
		"run/s":      "not absolute",
		"@abstract":  "not absolute",
		"/run/../s":  "write /s",
		"/run//s":    "write /run/s",
		"/run/s/":    "write /run/s",
		"/run/\x00s": "control characters",
		"/run/\ns":   "control characters",
		long:         "shorter folder",
	} {
		requireOneLine(t, tryListen(t, path), ErrPath, mend)
		requireOneLine(t, NewClient(path).Get(t.Context(), "/", nil, nil), ErrPath, mend)
	}
}

func TestLongestPathWorks(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	longest := filepath.Join(dir, strings.Repeat("x", maxPath-len(dir)-1))
	require.Len(t, longest, maxPath)
	w := start(t, hello, func(o *Options) { o.Path = longest })
	require.NoError(t, NewClient(w.path).Get(t.Context(), "/", nil, nil))
	requireOneLine(t, tryListen(t, longest+"x"), ErrPath, longest)
}

// TestAnotherSocketIsNotRemoved: somebody removed our socket and put another one
// in its place; ending must not take that away.
func TestAnotherSocketIsNotRemoved(t *testing.T) {
	t.Parallel()
	w := start(t, hello, nil)
	require.NoError(t, os.Rename(w.path, w.path+".old")) // keeps the inode in use
	leaveStale(t, w.path)
	require.NoError(t, w.Close())
	assert.FileExists(t, w.path)
}

func TestFailedListenFreesTheLock(t *testing.T) {
	t.Parallel()
	path := filepath.Join(shortDir(t), "s")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.ErrorIs(t, tryListen(t, path), ErrUntrustedPath)
	require.NoError(t, os.Remove(path))
	require.NoError(t, tryListen(t, path))
}
