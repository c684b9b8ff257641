package proxy

import (
	"context"
	"io"
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sluicegate/audit"
)

// stop shuts down in the background and returns what Shutdown will return.
func (w *world) stop(ctx context.Context) <-chan int {
	cut := make(chan int, 1)
	go func() { cut <- w.Shutdown(ctx) }()
	return cut
}

// over is a context that has ended.
func over() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// Silent connections, idle ones and such with half a request do not hold up a
// shutdown.
func TestShutdownWithSilentConnections(t *testing.T) {
	w := newWorld(t)
	w.numbered()
	var clients []*client
	for range 5 {
		clients = append(clients, w.dial(std))
	}
	half := w.dial(std)
	half.send("GET http://allowed.te")
	idle := w.dial(std)
	idle.send(get("http://allowed.test/"))
	idle.want(200, "/")
	idleHalf := w.dial(std)
	idleHalf.send(get("http://allowed.test/") + "GET http://")
	idleHalf.want(200, "/")
	clients = append(clients, half, idle, idleHalf)
	w.wait("all connections", func() bool { return w.Stats().Connections == len(clients) })

	assert.Zero(t, w.Shutdown(t.Context()))
	for _, c := range clients {
		assert.Empty(t, c.ended())
	}
	assert.Zero(t, w.Stats().Connections)
	assert.Equal(t, []string{closed80, closed80}, w.rec.briefs())
}

// A running transfer is waited for, while no new connection is accepted and the
// answer announces the end.
func TestShutdownDrains(t *testing.T) {
	w := newWorld(t)
	asked, finish := make(chan struct{}, 1), make(chan struct{})
	w.origin(allowedIP+":80", func(c *originConn) {
		c.request()
		asked <- struct{}{}
		<-finish
		c.write(ok("hi"))
	})
	w.origin(allowedIP+":443", echo)
	tunnel := w.tunnelTo(std, "allowed.test:443")
	c := w.dial(std)
	c.send(get("http://allowed.test/"))
	<-asked
	cut := w.stop(t.Context())
	w.wait("the listeners to close", func() bool {
		probe, err := net.Dial("tcp", w.addr[twin].String())
		if err == nil {
			_ = probe.Close()
		}
		return err != nil
	})
	_, err := w.Listen(t.Context(), std, netip.MustParseAddrPort("127.0.0.1:0"))
	require.ErrorIs(t, err, net.ErrClosed)

	tunnel.send("still")
	assert.Equal(t, "still", tunnel.read(5))
	select {
	case <-cut:
		t.Error("it did not wait")
	default:
	}
	close(finish)
	assert.True(t, c.want(200, "hi").Close)
	require.NoError(t, tunnel.CloseWrite())
	assert.Empty(t, tunnel.rest())
	assert.Zero(t, <-cut)
	assert.ElementsMatch(t, []string{opened443, closed443, closed80}, w.rec.briefs())
}

// What does not end in time is ended, and the record says why.
func TestShutdownCuts(t *testing.T) {
	w := newWorld(t)
	asked := make(chan struct{}, 4)
	w.origin(allowedIP+":80", func(c *originConn) {
		c.originHead()
		asked <- struct{}{}
		_, _ = io.Copy(io.Discard, c.br)
	})
	w.origin(otherIP+":80", func(c *originConn) {
		c.originHead()
		c.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk("half"))
		_, _ = io.Copy(io.Discard, c.br)
	})
	w.origin(allowedIP+":443", func(c *originConn) { _, _ = io.Copy(io.Discard, c.br) })
	w.names.script("a.wild.test", func(ctx context.Context, _ Query) (Answer, error) {
		asked <- struct{}{}
		<-ctx.Done()
		return Answer{}, ctx.Err()
	})
	tunnel := w.tunnelTo(std, "allowed.test:443")
	waiting := w.dial(std)
	waiting.send(get("http://allowed.test/"))
	<-asked
	streaming := w.dial(std)
	streaming.send(get("http://other.test/"))
	assert.Contains(t, streaming.head(), "chunked")
	assert.Equal(t, chunk("half"), streaming.read(len(chunk("half"))))
	opening := w.dial(std)
	opening.send(connectTo("a.wild.test:443"))
	<-asked
	socket := w.dial(std)
	socket.send(webSocketTo("allowed.test"))
	<-asked

	assert.Equal(t, 5, w.Shutdown(over()))
	assert.Empty(t, tunnel.ended())
	assert.Empty(t, streaming.ended(), "no end of the body")
	for _, c := range []*client{waiting, opening, socket} {
		if got := c.ended(); got != "" {
			assert.Contains(t, got, " 503 ")
		}
	}
	assert.ElementsMatch(t, []string{
		opened443,
		"egress.closed allow rule allowed.test:443 [allowed] gate|shutdown",
		"egress.closed error shutdown allowed.test:80 [allowed] gate|shutdown",
		"egress.closed error shutdown allowed.test:80 [allowed] gate|shutdown",
		"egress.closed allow rule other.test:80 [other] gate|shutdown",
		"egress.closed error shutdown a.wild.test:443 [wild] gate|shutdown",
	}, w.rec.briefs())
	assert.Zero(t, w.Stats().Connections)
	assert.Zero(t, w.Stats().Flows)
	assert.Zero(t, w.Shutdown(t.Context()), "a second one has nothing to do")
}

// Every record is written before Shutdown returns: the log is closed after it.
func TestShutdownWaitsForRecords(t *testing.T) {
	w := newWorld(t)
	asked := make(chan struct{})
	w.origin(allowedIP+":80", func(c *originConn) {
		c.originHead()
		close(asked)
		_, _ = io.Copy(io.Discard, c.br)
	})
	recording, release := make(chan struct{}), make(chan struct{})
	w.rec.before(func(audit.Event) {
		close(recording)
		<-release
	})
	c := w.dial(std)
	c.send(get("http://allowed.test/"))
	<-asked
	cut := w.stop(over())
	<-recording
	select {
	case <-cut:
		t.Error("it returned before the record was written")
	default:
	}
	close(release)
	assert.Equal(t, 1, <-cut)
	assert.Equal(t, []string{"egress.closed error shutdown allowed.test:80 [allowed] gate|shutdown"}, w.rec.briefs())
}

// A client that reads nothing of its refusal does not hold up a shutdown.
func TestShutdownWhileLingering(t *testing.T) {
	w := newWorld(t)
	c := w.dial(std)
	c.send(connectTo("evil.test:443"))
	c.want(403, "")
	// The client does not close.
	assert.Zero(t, w.Shutdown(t.Context()))
	assert.Empty(t, c.ended())
}

func TestNewWantsItsParts(t *testing.T) {
	good := Config{Snapshot: (&world{}).snapshot.Load, Recorder: newRecorder(), Resolver: &names{}, Identifier: &world{}}
	for name, change := range map[string]func(*Config){
		"snapshot":   func(c *Config) { c.Snapshot = nil },
		"recorder":   func(c *Config) { c.Recorder = nil },
		"resolver":   func(c *Config) { c.Resolver = nil },
		"identifier": func(c *Config) { c.Identifier = nil },
	} {
		cfg := good
		change(&cfg)
		_, err := New(cfg)
		require.Error(t, err, name)
	}
	s, err := New(good)
	require.NoError(t, err)
	_, err = s.Listen(t.Context(), std, netip.MustParseAddrPort("0.0.0.0:0"))
	require.ErrorContains(t, err, "only loopback")
	addr, err := s.Listen(t.Context(), std, netip.MustParseAddrPort("127.0.0.1:0"))
	require.NoError(t, err)
	_, err = s.Listen(t.Context(), std, addr)
	require.Error(t, err, "taken")
	assert.Zero(t, s.Shutdown(t.Context()), "without a Start")
	s.Start()
}

// A listener that is taken away accepts no more; what it accepted stays.
func TestUnlisten(t *testing.T) {
	w := newWorld(t)
	w.numbered()
	c := w.dial(std)
	c.send(get("http://allowed.test/1"))
	c.want(200, "/1")
	old := w.addr[std]
	w.Unlisten(old)
	w.Unlisten(old)
	_, err := net.Dial("tcp", old.String())
	require.Error(t, err)
	c.send(get("http://allowed.test/2"))
	c.want(200, "/2")
	w.listen(std)
	c = w.dial(std)
	c.send(get("http://allowed.test/3"))
	c.want(200, "/3")
	w.wantRecords(closed80, closed80, closed80)
}
