package identity

import (
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const nobody = 65534

// listen returns a TCP listener, or skips the test if the host has no such
// address family.
func listen(t testing.TB, network, addr string) *net.TCPListener {
	t.Helper()
	l, err := net.Listen(network, addr)
	if err != nil && strings.Contains(addr, "::1") {
		t.Skipf("this host has no IPv6 loopback: %v", err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l.(*net.TCPListener)
}

// connect dials l at addr and returns both ends.
func connect(t testing.TB, l *net.TCPListener, network, addr string) (server, client *net.TCPConn) {
	t.Helper()
	c, err := net.Dial(network, addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return accept(t, l), c.(*net.TCPConn)
}

func accept(t testing.TB, l *net.TCPListener) *net.TCPConn {
	t.Helper()
	c, err := l.AcceptTCP()
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// ends returns the addresses of an accepted connection as TCP takes them.
func ends(c net.Conn) (local, remote netip.AddrPort) {
	return c.LocalAddr().(*net.TCPAddr).AddrPort(), c.RemoteAddr().(*net.TCPAddr).AddrPort()
}

// dialMapped connects an IPv6 socket to an IPv4 address, which package net
// never does by itself.
func dialMapped(t *testing.T, port uint16) {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET6, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Skipf("this host has no IPv6 sockets: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	mapped := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	require.NoError(t, syscall.Connect(fd, &syscall.SockaddrInet6{Port: int(port), Addr: mapped.As16()}))
}

func TestTCPOwnUser(t *testing.T) {
	t.Parallel()
	want := Peer{UID: uint32(os.Geteuid()), Known: true, How: HowSockDiag}
	check := func(t *testing.T, server net.Conn) {
		t.Helper()
		local, remote := ends(server)
		p, err := TCP(local, remote)
		require.NoError(t, err)
		assert.Equal(t, want, p)
		assert.True(t, Self().Entitled(p))
	}

	t.Run("ipv4", func(t *testing.T) {
		t.Parallel()
		l := listen(t, "tcp4", "127.0.0.1:0")
		server, _ := connect(t, l, "tcp4", l.Addr().String())
		check(t, server)
	})
	t.Run("ipv6", func(t *testing.T) {
		t.Parallel()
		l := listen(t, "tcp6", "[::1]:0")
		server, _ := connect(t, l, "tcp6", l.Addr().String())
		check(t, server)
	})
	t.Run("ipv6 client to ipv4 listener", func(t *testing.T) {
		t.Parallel()
		l := listen(t, "tcp4", "127.0.0.1:0")
		_, port := ends2(l)
		dialMapped(t, port)
		check(t, accept(t, l))
	})
	t.Run("ipv4 client to dual-stack listener", func(t *testing.T) {
		t.Parallel()
		l := listen(t, "tcp", ":0")
		_, port := ends2(l)
		server, _ := connect(t, l, "tcp4", netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port).String())
		check(t, server)
	})
	t.Run("mapped addresses as asked", func(t *testing.T) {
		t.Parallel()
		l := listen(t, "tcp4", "127.0.0.1:0")
		server, _ := connect(t, l, "tcp4", l.Addr().String())
		local, remote := ends(server)
		p, err := TCP(mapped(local), mapped(remote))
		require.NoError(t, err)
		assert.Equal(t, want, p)
		p, err = TCP(mapped(local), remote)
		require.NoError(t, err)
		assert.Equal(t, want, p)
	})
	t.Run("half-closed client keeps its owner", func(t *testing.T) {
		t.Parallel()
		l := listen(t, "tcp4", "127.0.0.1:0")
		server, client := connect(t, l, "tcp4", l.Addr().String())
		require.NoError(t, client.CloseWrite())
		_, err := io.ReadAll(server)
		require.NoError(t, err)
		check(t, server)
	})
	t.Run("multipath client", func(t *testing.T) {
		t.Parallel()
		server, _ := multipath(t)
		check(t, server)
	})
}

// ends2 returns the address and port of a listener.
func ends2(l net.Listener) (netip.Addr, uint16) {
	a := l.Addr().(*net.TCPAddr).AddrPort()
	return a.Addr(), a.Port()
}

func mapped(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom16(a.Addr().As16()), a.Port())
}

// multipath returns a connection whose client speaks MPTCP: the socket of its
// process and the one on the wire are different ones.
func multipath(t *testing.T) (server, client *net.TCPConn) {
	t.Helper()
	var lc net.ListenConfig
	lc.SetMultipathTCP(true)
	l, err := lc.Listen(t.Context(), "tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	var d net.Dialer
	d.SetMultipathTCP(true)
	c, err := d.Dial("tcp4", l.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	server, client = accept(t, l.(*net.TCPListener)), c.(*net.TCPConn)
	if used, err := client.MultipathTCP(); err != nil || !used {
		t.Skipf("this kernel doesn't speak MPTCP (%v)", err)
	}
	return server, client
}

// requireUnknown reads server until the client's end is seen and asserts that
// nobody is taken for the client then.
func requireUnknown(t *testing.T, server *net.TCPConn) {
	t.Helper()
	_, err := io.ReadAll(server)
	require.NoError(t, err)
	local, remote := ends(server)
	p, err := TCP(local, remote)
	require.NoError(t, err)
	assert.False(t, p.Known, "a closed client has no owner, got %+v", p)
	assert.Contains(t, []string{HowOrphaned, HowNoSocket}, p.How)
	assert.False(t, Self().Entitled(p))
}

func TestTCPClosedClient(t *testing.T) {
	t.Parallel()
	for network, addr := range map[string]string{"tcp4": "127.0.0.1:0", "tcp6": "[::1]:0"} {
		t.Run(network, func(t *testing.T) {
			t.Parallel()
			l := listen(t, network, addr)
			server, client := connect(t, l, network, l.Addr().String())
			_, err := client.Write([]byte("in flight"))
			require.NoError(t, err)
			require.NoError(t, client.Close())
			requireUnknown(t, server)
		})
	}
}

// TestTCPTimeWait: after both ends closed, the client's kernel keeps a
// TIME_WAIT entry, which reports uid 0.
func TestTCPTimeWait(t *testing.T) {
	t.Parallel()
	l := listen(t, "tcp4", "127.0.0.1:0")
	server, client := connect(t, l, "tcp4", l.Addr().String())
	require.NoError(t, client.CloseWrite())
	_, err := io.ReadAll(server)
	require.NoError(t, err)
	local, remote := ends(server)
	require.NoError(t, server.Close())
	_, err = io.ReadAll(client)
	require.NoError(t, err)
	require.NoError(t, client.Close())
	p, err := TCP(local, remote)
	require.NoError(t, err)
	assert.False(t, p.Known, "%+v", p)
}

// TestTCPListenerOnClientPort: the kernel answers with a listener on the
// client's port when the client's socket is gone.
func TestTCPListenerOnClientPort(t *testing.T) {
	t.Parallel()
	l := listen(t, "tcp4", "127.0.0.1:0")
	impostor := listen(t, "tcp4", "127.0.0.1:0")
	want, err := newConnID(impostor.Addr().(*net.TCPAddr).AddrPort(), l.Addr().(*net.TCPAddr).AddrPort())
	require.NoError(t, err)
	found, err := sockets.find(want)
	require.NoError(t, err, "the premise of this test: the kernel finds the listener")
	require.NotZero(t, found.inode)

	p, err := TCP(want.dst, want.src)
	require.NoError(t, err)
	assert.Equal(t, Peer{How: HowNoSocket}, p)
}

func TestTCPUnknownAndUnusable(t *testing.T) {
	t.Parallel()
	a := netip.MustParseAddrPort
	tests := map[string]struct {
		local, remote netip.AddrPort
		err           string // "" means an unknown peer without error
	}{
		"no such connection":       {a("127.0.0.1:9"), a("127.0.0.1:1"), ""},
		"no such connection, v6":   {a("[::1]:9"), a("[::1]:1"), ""},
		"another host":             {a("127.0.0.1:9"), a("192.0.2.1:4711"), ""},
		"zero values":              {netip.AddrPort{}, netip.AddrPort{}, "not valid"},
		"zero remote":              {a("127.0.0.1:9"), netip.AddrPort{}, "not valid"},
		"zero local":               {netip.AddrPort{}, a("127.0.0.1:9"), "not valid"},
		"two families":             {a("127.0.0.1:9"), a("[::1]:9"), "two families"},
		"zone":                     {a("[fe80::1%lo]:9"), a("[fe80::1%lo]:10"), "zone"},
		"port 0":                   {a("127.0.0.1:9"), a("127.0.0.1:0"), "port"},
		"mapped against true ipv6": {a("[::ffff:127.0.0.1]:9"), a("[::1]:9"), "two families"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := TCP(tt.local, tt.remote)
			assert.False(t, p.Known)
			assert.False(t, Self().Entitled(p))
			if tt.err == "" {
				require.NoError(t, err)
				assert.Equal(t, HowNoSocket, p.How)
				return
			}
			require.ErrorContains(t, err, tt.err)
			assert.Equal(t, Peer{}, p)
		})
	}
}

// startAsNobody runs the test binary as a helper of another user.
func startAsNobody(t *testing.T, role, addr string) *exec.Cmd {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to start a client of another user")
	}
	// Not by its path: the folder of the test binary is closed to other users.
	cmd := exec.Command("/proc/self/exe")
	cmd.Dir = "/"
	cmd.Env = []string{helperEnv + "=" + role, helperAddr + "=" + addr}
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	require.NoError(t, cmd.Start())
	return cmd
}

func TestTCPOtherUser(t *testing.T) {
	t.Parallel()
	for network, addr := range map[string]string{"tcp4": "127.0.0.1:0", "tcp6": "[::1]:0"} {
		t.Run(network, func(t *testing.T) {
			t.Parallel()
			l := listen(t, network, addr)
			cmd := startAsNobody(t, "hold", l.Addr().String())
			server := accept(t, l)
			local, remote := ends(server)
			p, err := TCP(local, remote)
			require.NoError(t, err)
			assert.Equal(t, Peer{UID: nobody, Known: true, How: HowSockDiag}, p)
			assert.False(t, Self().Entitled(p))
			require.NoError(t, server.Close())
			require.NoError(t, cmd.Wait())
		})
	}
}

// TestTCPStrayClientIsNeverRoot is the attack the inode check is for: another
// user connects, sends a request and is gone before the look-up. With MPTCP the
// kernel keeps the socket on the wire and its owner, so the user stays known.
func TestTCPStrayClientIsNeverRoot(t *testing.T) {
	t.Parallel()
	for role, multipath := range map[string]bool{"stray": false, "stray-multipath": true} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			var lc net.ListenConfig
			lc.SetMultipathTCP(multipath)
			ln, err := lc.Listen(t.Context(), "tcp4", "127.0.0.1:0")
			require.NoError(t, err)
			defer ln.Close()
			l := ln.(*net.TCPListener)
			cmd := startAsNobody(t, role, l.Addr().String())
			before, after := map[string]int{}, map[string]int{}
			for range strayConnections {
				server := accept(t, l)
				requireNotRoot(t, server, before)
				_, err := io.ReadAll(server)
				require.NoError(t, err)
				requireNotRoot(t, server, after)
				require.NoError(t, server.Close())
			}
			require.NoError(t, cmd.Wait())
			t.Logf("answers at once: %v, at the client's end: %v", before, after)
		})
	}
}

// requireNotRoot asserts that the client of another user is that user or
// unknown, and counts which.
func requireNotRoot(t *testing.T, server net.Conn, count map[string]int) {
	t.Helper()
	local, remote := ends(server)
	p, err := TCP(local, remote)
	require.NoError(t, err)
	if p.Known {
		require.Equal(t, uint32(nobody), p.UID)
	}
	require.False(t, Self().Entitled(p))
	count[p.How]++
}

func TestTCPConcurrent(t *testing.T) {
	t.Parallel()
	const callers, rounds = 64, 20
	l := listen(t, "tcp4", "127.0.0.1:0")
	type pair struct{ local, remote netip.AddrPort }
	pairs := make([]pair, callers)
	for i := range pairs {
		server, _ := connect(t, l, "tcp4", l.Addr().String())
		pairs[i].local, pairs[i].remote = ends(server)
	}
	want := Peer{UID: uint32(os.Geteuid()), Known: true, How: HowSockDiag}
	var wg sync.WaitGroup
	for _, p := range pairs {
		wg.Go(func() {
			for range rounds {
				got, err := TCP(p.local, p.remote)
				assert.NoError(t, err)
				assert.Equal(t, want, got)
				// An unanswered question must not shift later answers.
				got, err = TCP(p.local, netip.AddrPortFrom(p.remote.Addr(), 1))
				assert.NoError(t, err)
				assert.Equal(t, Peer{How: HowNoSocket}, got)
			}
		})
	}
	wg.Wait()
}

func TestTCPAllocations(t *testing.T) {
	l := listen(t, "tcp4", "127.0.0.1:0")
	server, _ := connect(t, l, "tcp4", l.Addr().String())
	local, remote := ends(server)
	allocs := testing.AllocsPerRun(200, func() {
		_, _ = TCP(local, remote)
	})
	assert.LessOrEqual(t, allocs, 2.0)
}
