package dnsguard

import (
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// 93: who does not read loses the connection, and nothing waits for it.
func TestCatalogue93_ClientThatDoesNotRead(t *testing.T) {
	w := newWorld(t)
	c := w.dial("tcp", std)
	defer func() { _ = c.Close() }()
	require.NoError(t, c.(*net.TCPConn).SetReadBuffer(4096))
	packet := frame(pack1(qe("evil.test", dns.TypeA).msg()))
	var writer sync.WaitGroup
	writer.Go(func() {
		for {
			if _, err := c.Write(packet); err != nil {
				return
			}
		}
	})
	require.Eventually(t, func() bool { return w.Stats().Queries > 0 }, testWait, time.Millisecond)
	// The buffers fill up first, which a loaded machine does slowly. The client
	// may learn of the end late: its side of the connection is full too.
	require.Eventually(t, func() bool { return w.Stats().Connections == 0 }, 6*testWait, time.Millisecond)
	assert.Equal(t, rcodeNXDomain, w.askTCP(std, q("evil.test", dns.TypeA).msg()).Rcode)
	_ = c.Close()
	writer.Wait()
}

// 94: idle connections are capped and take nothing from UDP.
func TestCatalogue94_IdleConnections(t *testing.T) {
	const limit = 4
	w := newWorld(t, func(s *setup) { s.server.Limits = Limits{Connections: limit, Idle: time.Minute} })
	var conns []net.Conn
	for range 3 * limit {
		c := w.dial("tcp", std)
		defer func() { _ = c.Close() }()
		conns = append(conns, c)
	}
	// The ones over the limit were closed. Which they are the queue decides.
	closed := make(chan error)
	for _, c := range conns {
		go func() {
			_, err := c.Read(make([]byte, 1))
			closed <- err
		}()
	}
	for range 2 * limit {
		require.NotErrorIs(t, <-closed, os.ErrDeadlineExceeded, "too few were closed")
	}
	assert.Equal(t, limit, w.Stats().Connections)
	assert.Equal(t, rcodeNXDomain, w.ask(std, q("evil.test", dns.TypeA).msg()).Rcode)
	assert.Equal(t, rcodeNXDomain, w.askTCP(blocked, q("evil.test", dns.TypeA).msg()).Rcode, "another profile has its own")
	for _, c := range conns {
		_ = c.Close()
	}
	for range limit {
		<-closed
	}
}

// A connection without a query ends.
func TestIdleConnectionEnds(t *testing.T) {
	w := newWorld(t, func(s *setup) { s.server.Limits.Idle = 50 * time.Millisecond })
	c := w.dial("tcp", std)
	defer func() { _ = c.Close() }()
	_, err := c.Write([]byte{0, 200, 1}) // half a message is no query
	require.NoError(t, err)
	_, err = c.Read(make([]byte, 1))
	assert.Error(t, err)
	var timeout net.Error
	if assert.ErrorAs(t, netError(err), &timeout) {
		assert.False(t, timeout.Timeout())
	}
}

// netError wraps what is none, so that the end of a stream can be looked at.
func netError(err error) error { return &net.OpError{Op: "read", Err: err} }

// 95: a connection serves as many queries as it is sent.
func TestCatalogue95_ManyQueriesOnAConnection(t *testing.T) {
	w := newWorld(t)
	c := w.dial("tcp", std)
	defer func() { _ = c.Close() }()
	for i := range 130 {
		m := q("api.anthropic.com", dns.TypeA).msg()
		m.Id = uint16(i)
		_, err := c.Write(frame(pack1(m)))
		require.NoError(t, err)
		b, err := readFramed(c)
		require.NoError(t, err, i)
		require.Len(t, w.unpack(b, m).Answer, 1)
	}
	// A response ends it.
	m := q("api.anthropic.com", dns.TypeA).msg()
	m.Response = true
	_, err := c.Write(frame(pack1(m)))
	require.NoError(t, err)
	_, err = readFramed(c)
	assert.Error(t, err)
	assert.Equal(t, int64(1), w.Stats().Dropped)
}

// A dead upstream holds up no denial, and what waits is bounded.
func TestQueriesAreBounded(t *testing.T) {
	reached := make(chan struct{}, 64)
	release := make(chan struct{})
	w := newWorld(t, func(s *setup) { s.server.Limits.Queries = 4 })
	w.stub.does(func(a asked) [][]byte {
		reached <- struct{}{}
		<-release
		return records("a.example.com. 60 IN A 1.1.1.1", "b.example.com. 60 IN A 1.1.1.1")(a)
	})
	c := w.dial("udp", std)
	defer func() { _ = c.Close() }()
	for i, name := range []string{"a.example.com", "b.example.com"} { // half of four may wait
		m := q(name, dns.TypeA).msg()
		m.Id = uint16(i)
		_, err := c.Write(pack1(m))
		require.NoError(t, err)
		<-reached
	}
	got := w.ask(std, q("c.example.com", dns.TypeA).msg())
	assert.Equal(t, rcodeServFail, got.Rcode)
	assert.Equal(t, "limit", w.last().Reason)
	assert.Equal(t, rcodeNXDomain, w.ask(std, q("evil.test", dns.TypeA).msg()).Rcode, "denials go on")
	close(release)
	for range 2 {
		_, err := c.Read(make([]byte, 4096))
		require.NoError(t, err)
	}
}

// When all places are taken a datagram is answered at once.
func TestBusy(t *testing.T) {
	w := newWorld(t, func(s *setup) { s.server.Limits.Queries = 1 })
	p := w.profiles[std]
	p.slots <- struct{}{}
	got := w.ask(std, q("api.anthropic.com", dns.TypeA).msg())
	assert.Equal(t, rcodeServFail, got.Rcode)
	assert.Equal(t, "limit", w.last().Reason)
	assert.Equal(t, "api.anthropic.com. IN A", w.last().Request.TargetRaw)
	<-p.slots
	assert.Len(t, w.ask(std, q("api.anthropic.com", dns.TypeA).msg()).Answer, 1)
}

// Broken packets can't fill the log.
func TestBrokenPacketsAreBounded(t *testing.T) {
	now := time.Now()
	w := newWorld(t, func(s *setup) { s.server.testOnlyNow = func() time.Time { return now } })
	c := w.dial("udp", std)
	defer func() { _ = c.Close() }()
	packet := []byte{0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0}
	buf := make([]byte, 512)
	for range brokenBurst {
		_, err := c.Write(packet)
		require.NoError(t, err)
		_, err = c.Read(buf)
		require.NoError(t, err)
	}
	for range 20 {
		silent(t, w, packet, false)
		silent(t, w, packet[:5], false)
	}
	assert.Eventually(t, func() bool { return w.Stats().Dropped == 40 }, testWait, time.Millisecond)
	assert.Len(t, w.reasonsOfPackets(), brokenBurst)
}

func TestBucket(t *testing.T) {
	var b bucket
	now := time.Now()
	for range brokenBurst {
		assert.True(t, b.take(now))
	}
	assert.False(t, b.take(now))
	now = now.Add(time.Second)
	for range brokenRate {
		assert.True(t, b.take(now))
	}
	assert.False(t, b.take(now))
	assert.True(t, b.take(now.Add(time.Hour)))
}

func TestOnlyLoopbackIsAnswered(t *testing.T) {
	w := newWorld(t)
	b := w.bindings[0]
	packet := pack1(q("evil.test", dns.TypeA).msg())
	for addr, want := range map[string]bool{"127.0.0.1": true, "127.9.9.9": true, "::1": true, "192.0.2.1": false, "::": false} {
		c := client{addr: netip.AddrPortFrom(netip.MustParseAddr(addr), 1234)}
		assert.Equal(t, want, b.checkPacket(packet, c), addr)
		assert.False(t, b.checkPacket(packet[:3], c), addr)
		assert.False(t, b.checkPacket(make([]byte, maxQuery+1), c), addr)
	}
	assert.Len(t, w.rec.Events(), 3, "broken packets from here are recorded")
}

// The library never gets more than a header, and would read no more.
func TestLibraryParsesNothing(t *testing.T) {
	assert.Equal(t, dns.MsgAccept, onlyHeaders(dns.Header{Bits: 0x7900}))
	for _, h := range []dns.Header{{Bits: 1 << 15}, {Qdcount: 1}, {Ancount: 1}, {Nscount: 1}, {Arcount: 1}} {
		assert.Equal(t, dns.MsgIgnore, onlyHeaders(h))
	}
	packet := pack1(qe("evil.test", dns.TypeA).msg())
	h, ok := parseHeader(bareHeader(packet))
	assert.True(t, ok)
	assert.Zero(t, h.qd|h.an|h.ns|h.ar)
}
