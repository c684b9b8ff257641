package proxy

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"sluicegate/audit"
)

// forgetful is a log that costs nothing, so that the gate itself is measured.
type forgetful struct{}

func (forgetful) Record(context.Context, audit.Event) error { return nil }
func (forgetful) Healthy() bool                             { return true }

// benchWorld is a gate in front of one server on loopback that echoes on every
// connection and answers requests.
func benchWorld(b *testing.B) *world {
	b.Helper()
	w := newWorld(b, func(c *Config) { c.Recorder = forgetful{} })
	w.origin(allowedIP+":443", echo)
	w.site(allowedIP+":80", func(string) string { return ok("hi") })
	// The fakes' own bookkeeping is left out.
	w.cfg.Resolver = fixed{netip.MustParseAddr(allowedIP)}
	w.cfg.testOnlyDial = func(ctx context.Context, d *net.Dialer, addr netip.AddrPort) (*net.TCPConn, error) {
		if err := d.ControlContext(ctx, "tcp4", addr.String(), nil); err != nil {
			return nil, err
		}
		return w.net.routes[addr](ctx)
	}
	return w
}

type fixed struct{ addr netip.Addr }

func (f fixed) Resolve(context.Context, Query) (Answer, error) {
	return Answer{Addrs: []netip.Addr{f.addr}}, nil
}

func (w *world) benchDial(b *testing.B, profile string) *client {
	conn, err := net.Dial("tcp", w.addr[profile].String())
	require.NoError(b, err)
	return newClient(b, conn.(*net.TCPConn))
}

// One refused tunnel: accept, head, verdict, answer, close.
func BenchmarkConnectDenied(b *testing.B) {
	w := benchWorld(b)
	for b.Loop() {
		c := w.benchDial(b, std)
		c.send(connectTo("evil.test:443"))
		c.rest()
		_ = c.Close()
	}
}

// One tunnel with an exchange of 64 bytes: accept, head, verdict, dial, relay,
// close.
func BenchmarkConnectAllowed(b *testing.B) {
	w := benchWorld(b)
	hello := string(make([]byte, 64))
	for b.Loop() {
		c := w.benchDial(b, std)
		c.send(connectTo("allowed.test:443"))
		c.read(len(established))
		c.send(hello)
		c.read(len(hello))
		_ = c.CloseWrite()
		c.rest()
		_ = c.Close()
	}
}

// A tunnel's throughput, down.
func BenchmarkTunnelDown(b *testing.B) {
	const size = 1 << 20
	w := benchWorld(b)
	w.origin(otherIP+":443", func(c *originConn) {
		piece := make([]byte, 256<<10)
		for {
			if _, err := c.Write(piece); err != nil {
				return
			}
		}
	})
	w.cfg.Resolver = fixed{netip.MustParseAddr(otherIP)}
	c := w.benchDial(b, std)
	c.send(connectTo("other.test:443"))
	c.read(len(established))
	b.SetBytes(size)
	for b.Loop() {
		_, err := io.CopyN(io.Discard, c, size)
		require.NoError(b, err)
	}
	_ = c.Close()
}

// One forwarded request on kept connections.
func BenchmarkForward(b *testing.B) {
	w := benchWorld(b)
	c := w.benchDial(b, std)
	request := get("http://allowed.test/")
	for b.Loop() {
		c.send(request)
		r, err := http.ReadResponse(c.br, nil)
		require.NoError(b, err)
		_, _ = io.Copy(io.Discard, r.Body)
	}
	_ = c.Close()
}

// The same from several clients at once.
func BenchmarkForwardParallel(b *testing.B) {
	w := benchWorld(b)
	request := get("http://allowed.test/")
	var mu sync.Mutex
	b.RunParallel(func(pb *testing.PB) {
		mu.Lock()
		c := w.benchDial(b, std)
		mu.Unlock()
		for pb.Next() {
			c.send(request)
			r, err := http.ReadResponse(c.br, nil)
			if err != nil {
				b.Error(err)
				return
			}
			_, _ = io.Copy(io.Discard, r.Body)
		}
		_ = c.Close()
	})
}

func BenchmarkParseHead(b *testing.B) {
	for name, in := range map[string]string{
		"connect": lines("CONNECT api.anthropic.com:443 HTTP/1.1", "Host: api.anthropic.com:443", "User-Agent: node", "Proxy-Connection: keep-alive"),
		"get": lines("GET http://packages.example.org/left-pad HTTP/1.1", "Host: packages.example.org", "User-Agent: npm/10.9.0 node/v22.0.0 linux x64",
			"Accept: application/vnd.npm.install-v1+json; q=1.0, application/json; q=0.8, */*", "Accept-Encoding: gzip, deflate", "Connection: keep-alive"),
	} {
		b.Run(name, func(b *testing.B) {
			raw := []byte(in)
			b.SetBytes(int64(len(raw)))
			b.ReportAllocs()
			for b.Loop() {
				n, f := scanHead(raw, 0)
				if f != nil || n != len(raw) {
					b.Fatal(f)
				}
				if _, f := parseHead(raw); f != nil {
					b.Fatal(f)
				}
			}
		})
	}
}
