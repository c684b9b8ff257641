package proxy

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Upstream connections are kept for one profile only.
func TestPoolIsPerProfile(t *testing.T) {
	w := newWorld(t)
	o := w.numbered()
	for range 2 {
		for _, profile := range []string{std, twin, any_} {
			c := w.dial(profile)
			c.send(get("http://allowed.test/"))
			c.want(200, "/")
		}
	}
	w.finish()
	assert.Equal(t, 3, o.accepted())
	assert.Len(t, w.rec.Events(), 6)
}

// Connections that were dialled under one policy are not used under another,
// neither the idle ones nor those in use when it changed.
func TestPoolIsPerPolicy(t *testing.T) {
	w := newWorld(t)
	busy, finish := make(chan struct{}), make(chan struct{})
	ended := make(chan string, 4)
	o := w.origin(allowedIP+":80", func(c *originConn) {
		for {
			raw, more := c.request()
			if !more {
				ended <- "ended"
				return
			}
			if strings.HasPrefix(raw, "GET /slow") {
				close(busy)
				<-finish
			}
			c.write(ok("hi"))
		}
	})
	slow := w.dial(std)
	slow.send(get("http://allowed.test/slow"))
	<-busy
	c := w.dial(std)
	c.send(get("http://allowed.test/1"))
	c.want(200, "hi")
	assert.Equal(t, 2, o.accepted())

	// The policy changes: the idle connection is dropped with the next request.
	w.load(stdYAML() + "# changed\n")
	c.send(get("http://allowed.test/2"))
	c.want(200, "hi")
	<-ended
	assert.Equal(t, 3, o.accepted())

	// The busy one is dropped when it is done.
	close(finish)
	slow.want(200, "hi")
	<-ended
	slow.send(get("http://allowed.test/3"))
	slow.want(200, "hi")
	assert.Equal(t, 3, o.accepted(), "the new policy's connection is kept")
	w.wantRecords(closed80, closed80, closed80, closed80)
	assert.Len(t, w.names.asked(), 3)
}

// A request that took its pool before the policy changed, and connects after it,
// leaves nothing behind.
func TestPoolOfAPastPolicy(t *testing.T) {
	w := newWorld(t)
	ended := make(chan error, 1)
	o := w.origin(allowedIP+":80", func(c *originConn) {
		c.request()
		c.write(ok("hi"))
		_, err := c.br.ReadByte()
		ended <- err
	})
	ps := &pools{dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", o.ln.Addr().String())
	}}
	old := ps.acquire("old")
	ps.release(ps.acquire("new"))
	r, err := old.transport.RoundTrip(judged(http.MethodGet, "http://allowed.test/"))
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, r.Body)
	require.NoError(t, err)
	require.NoError(t, r.Body.Close())
	ps.release(old)
	assert.Equal(t, io.EOF, <-ended, "it was not closed")

	ps.close()
	late := ps.acquire("later")
	assert.True(t, late.retired, "after the end nothing is kept")
	ps.release(late)
}

// Names with the same address do not share connections either.
func TestPoolIsPerName(t *testing.T) {
	w := newWorld(t)
	w.names.set("other.test", allowedIP)
	o := w.numbered()
	c := w.dial(std)
	for _, name := range []string{"allowed.test", "other.test", "allowed.test", "other.test"} {
		c.send(get("http://" + name + "/"))
		c.want(200, "/")
	}
	assert.Equal(t, 2, o.accepted())
	w.wantQueries("allowed.test", "other.test")
}

// The record of a request on a kept connection names where it went.
func TestPoolRecords(t *testing.T) {
	w := newWorld(t)
	w.numbered()
	c := w.dial(std)
	for range 2 {
		c.send(get("http://allowed.test/"))
		c.want(200, "/")
	}
	w.finish()
	first, second := w.rec.Events()[0], w.rec.Events()[1]
	assert.NotEqual(t, first.Flow, second.Flow)
	assert.NotNil(t, first.Server)
	assert.Equal(t, first.Server, second.Server)
	assert.Equal(t, first.Resolved, second.Resolved)
}
