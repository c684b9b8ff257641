//go:build linux || darwin

package identity

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// unixPair returns both ends of a connection over a Unix socket.
func unixPair(t *testing.T) (server, client *net.UnixConn) {
	t.Helper()
	dir, err := os.MkdirTemp("", "sg") // t.TempDir may be longer than sun_path
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(dir)) })
	addr := &net.UnixAddr{Name: filepath.Join(dir, "s"), Net: "unix"}
	l, err := net.ListenUnix("unix", addr)
	require.NoError(t, err)
	defer l.Close()
	client, err = net.DialUnix("unix", nil, addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	server, err = l.AcceptUnix()
	require.NoError(t, err)
	t.Cleanup(func() { _ = server.Close() })
	return server, client
}

func TestUnixOwnUser(t *testing.T) {
	t.Parallel()
	server, client := unixPair(t)
	for name, c := range map[string]*net.UnixConn{"accepted": server, "dialled": client} {
		p, err := Unix(c)
		require.NoError(t, err, name)
		assert.True(t, p.Known, name)
		assert.Equal(t, uint32(os.Geteuid()), p.UID, name)
		assert.NotEmpty(t, p.How, name)
		assert.True(t, Self().Entitled(p), name)
	}
}

func TestUnixUnusable(t *testing.T) {
	t.Parallel()
	closed, _ := unixPair(t)
	require.NoError(t, closed.Close())
	for name, c := range map[string]*net.UnixConn{"nil": nil, "closed": closed, "zero": {}} {
		p, err := Unix(c)
		require.Error(t, err, name)
		assert.Equal(t, Peer{}, p, name)
		assert.False(t, Self().Entitled(p), name)
	}
}

func TestUnixWithoutPeer(t *testing.T) {
	t.Parallel()
	// A bound datagram socket was never connected: nobody is at the other end.
	dir, err := os.MkdirTemp("", "sg")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(dir)) })
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "s"), Net: "unixgram"})
	require.NoError(t, err)
	defer c.Close()
	p, err := Unix(c)
	require.Error(t, err)
	assert.Equal(t, Peer{}, p)
}
