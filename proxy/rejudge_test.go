package proxy

import (
	"context"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sluicegate/audit"
	"sluicegate/policy"
)

// without is the usual policy with another host in the place of one.
func without(host string) string {
	return strings.ReplaceAll(stdYAML(), "host: "+host+",", "host: gone.test,")
}

// R-C03: a live tunnel ends when its rule is gone, others are not touched, and
// new requests are refused at once.
func TestR_C03_RevokedTunnelEnds(t *testing.T) {
	w := newWorld(t)
	w.origin(allowedIP+":443", echo)
	w.origin(otherIP+":443", echo)
	lost, kept := w.dial(std), w.dial(std)
	for c, target := range map[*client]string{lost: "allowed.test:443", kept: "other.test:443"} {
		c.send(connectTo(target))
		require.Equal(t, established, c.head())
		c.send("a")
		require.Equal(t, "a", c.read(1))
	}
	w.load(without("allowed.test"))
	require.Equal(t, 1, w.Rejudge())
	assert.Empty(t, lost.rest())

	kept.send("b")
	require.Equal(t, "b", kept.read(1))
	require.Zero(t, w.Rejudge())
	again := w.dial(std)
	again.send(connectTo("allowed.test:443"))
	require.Equal(t, 403, again.status())
	require.NoError(t, kept.CloseWrite())
	assert.Empty(t, kept.rest())
	w.finish()

	var ends []string
	for _, e := range w.rec.Events() {
		if e.Event == audit.EgressClosed {
			ends = append(ends, e.Dest+" "+e.End.Who+" "+e.End.Why)
		}
	}
	assert.ElementsMatch(t, []string{"allowed.test gate revoked", "other.test client client_closed"}, ends)
}

// A rule whose end passes takes its tunnels along.
func TestExpiredTunnelEnds(t *testing.T) {
	start := time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
	var clock atomic.Pointer[time.Time]
	clock.Store(&start)
	w := newWorld(t, func(c *Config) { c.testOnlyNow = func() time.Time { return *clock.Load() } })
	w.load(strings.Replace(stdYAML(), "{host: allowed.test, id: allowed, tls: any}", "{host: allowed.test, id: allowed, tls: any, expires: '2026-06-01T00:00:10Z'}", 1))
	w.origin(allowedIP+":443", echo)
	c := w.dial(std)
	c.send(connectTo("allowed.test:443"))
	require.Equal(t, established, c.head())
	require.Zero(t, w.Rejudge())
	w.wait("the tunnel", func() bool { return w.Stats().Opened == 1 })
	end := start.Add(10 * time.Second)
	clock.Store(&end)
	require.Equal(t, 1, w.Rejudge())
	assert.Empty(t, c.rest())
	w.finish()
	assert.Equal(t, "revoked", w.only(audit.EgressClosed).End.Why)
}

// A grant that now names other addresses ends what was let through by the old
// ones.
func TestChangedGrantEndsTunnel(t *testing.T) {
	w := newWorld(t)
	w.names.set("lan.test", "10.1.2.3")
	w.origin("10.1.2.3:443", echo)
	c := w.dial(std)
	c.send(connectTo("lan.test:443"))
	require.Equal(t, established, c.head())
	w.load(strings.ReplaceAll(stdYAML(), "10.0.0.0/8", "10.2.0.0/16"))
	require.Equal(t, 1, w.Rejudge())
	assert.Empty(t, c.rest())
	w.finish()
}

// A policy that changes between the verdict and the tunnel is not missed: here
// it changes while the name is being resolved, before there is anything to
// judge again.
func TestPolicyChangesWhileOpening(t *testing.T) {
	w := newWorld(t)
	w.origin(allowedIP+":443", echo)
	w.names.script("allowed.test", func(context.Context, Query) (Answer, error) {
		w.load(without("allowed.test"))
		w.Rejudge()
		return Answer{Addrs: []netip.Addr{netip.MustParseAddr(allowedIP)}}, nil
	})
	c := w.dial(std)
	c.send(connectTo("allowed.test:443"))
	require.Equal(t, 403, c.status())
	w.finish()
	assert.Equal(t, string(policy.ReasonRevoked), w.only(audit.EgressDenied).Reason)
}
