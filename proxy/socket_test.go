//go:build unix

package proxy

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sluicegate/audit"
)

// IdentifySocket implements SocketIdentifier.
func (w *world) IdentifySocket(*net.UnixConn) Peer { return *w.peer.Load() }

// unixSocket is a path that is short enough.
func unixSocket(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sg")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(dir)) })
	return filepath.Join(dir, "x.sock")
}

func dialUnix(t *testing.T, path string) (*net.UnixConn, *bufio.Reader) {
	t.Helper()
	c, err := net.Dial("unix", path)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
	return c.(*net.UnixConn), bufio.NewReader(c)
}

// A Unix socket serves what a port does: CONNECT, SOCKS, plain HTTP, refusals,
// half-close; its file has the permissions asked for and goes with the server.
func TestUnixSocket(t *testing.T) {
	const size = 1 << 20
	path := unixSocket(t)
	w := newWorld(t)
	require.NoError(t, w.ListenUnix(t.Context(), std, path, 0o660))
	info, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o660), info.Mode().Perm())
	w.site(allowedIP+":80", func(string) string { return ok("hi") })
	w.origin(allowedIP+":443", func(c *originConn) {
		b, _ := io.ReadAll(c.br)
		c.write(string(b) + strings.Repeat("x", size))
	})

	for name, request := range map[string]string{"connect": connectTo("allowed.test:443"), "socks": socksHello + socksTo("allowed.test:443")} {
		c, br := dialUnix(t, path)
		_, err := io.WriteString(c, request)
		require.NoError(t, err)
		granted := map[string]string{"connect": established, "socks": "\x05\x00" + socksReplied(0)}[name]
		head := make([]byte, len(granted))
		_, err = io.ReadFull(br, head)
		require.NoError(t, err)
		assert.Equal(t, granted, string(head))
		_, err = io.WriteString(c, "req")
		require.NoError(t, err)
		require.NoError(t, c.CloseWrite())
		b, err := io.ReadAll(br)
		require.NoError(t, err)
		assert.Len(t, b, size+3, name)
	}
	c, br := dialUnix(t, path)
	for range 2 {
		_, err := io.WriteString(c, get("http://allowed.test/"))
		require.NoError(t, err)
		r, err := http.ReadResponse(br, nil)
		require.NoError(t, err)
		b, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		assert.Equal(t, "hi", string(b))
	}
	require.NoError(t, c.Close())
	c, br = dialUnix(t, path)
	_, err = io.WriteString(c, connectTo("evil.test:443"))
	require.NoError(t, err)
	b, err := io.ReadAll(br)
	require.NoError(t, err)
	assert.Contains(t, string(b), "HTTP/1.1 403 ")
	w.finish()
	denied := w.only(audit.EgressDenied)
	assert.Equal(t, "unix", denied.Client.Address)
	assert.Zero(t, denied.Client.Port)
	assert.Equal(t, "dev", denied.User)
	_, err = os.Lstat(path)
	assert.ErrorIs(t, err, os.ErrNotExist)
}

// Another user is refused there too.
func TestUnixSocketOfAnotherUser(t *testing.T) {
	path := unixSocket(t)
	w := newWorld(t)
	w.peer.Store(&Peer{UID: 7, UIDKnown: true})
	require.NoError(t, w.ListenUnix(t.Context(), std, path, 0o666))
	c, br := dialUnix(t, path)
	_, err := io.WriteString(c, connectTo("allowed.test:443"))
	require.NoError(t, err)
	b, err := io.ReadAll(br)
	require.NoError(t, err)
	assert.Contains(t, string(b), "bad_identity")
	w.finish()
}

// What a killed process left is replaced, anything else is not.
func TestUnixSocketPath(t *testing.T) {
	path := unixSocket(t)
	w := newWorld(t)
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	require.NoError(t, err)
	require.NoError(t, syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}))
	require.NoError(t, syscall.Close(fd))
	require.NoError(t, w.ListenUnix(t.Context(), std, path, 0o600), "a socket without a server")

	file := unixSocket(t)
	require.NoError(t, os.WriteFile(file, []byte("mine"), 0o600))
	assert.ErrorContains(t, w.ListenUnix(t.Context(), std, file, 0o600), "not a socket: move it away")
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, "mine", string(b))
	link := unixSocket(t)
	require.NoError(t, os.Symlink(file, link))
	assert.Error(t, w.ListenUnix(t.Context(), std, link, 0o600))
	w.finish()
}
