package proxy

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"sluicegate/policy"
)

func TestOverdue(t *testing.T) {
	l := Limits{Idle: 10 * time.Minute, HalfClosed: 30 * time.Second}
	start := time.Unix(1000, 0)
	for name, tt := range map[string]struct {
		active, half, now time.Duration
		want              policy.Reason
	}{
		"fresh":                      {0, -1, 0, ""},
		"just before the idle limit": {0, -1, 10*time.Minute - 1, ""},
		"at the idle limit":          {0, -1, 10 * time.Minute, policy.ReasonIdleTimeout},
		"moving":                     {9 * time.Minute, -1, 10 * time.Minute, ""},
		"half closed":                {0, time.Second, 30 * time.Second, ""},
		"half closed and silent":     {0, time.Second, 31 * time.Second, policy.ReasonHalfClosedTimeout},
		"half closed after silence":  {0, 9 * time.Minute, 9*time.Minute + 29*time.Second, ""},
		"half closed but moving":     {time.Hour, time.Second, time.Hour + 29*time.Second, ""},
		"half closed, then silent":   {time.Hour, time.Second, time.Hour + 30*time.Second, policy.ReasonHalfClosedTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			f := &flow{}
			f.touch(start.Add(tt.active))
			if tt.half >= 0 {
				f.halfClosed.Store(start.Add(tt.half).UnixNano())
			}
			assert.Empty(t, f.overdue(start.Add(tt.now), l), "not timed")
			f.timed.Store(true)
			assert.Equal(t, tt.want, f.overdue(start.Add(tt.now), l))
		})
	}
}

func TestFlowTable(t *testing.T) {
	table := newFlowTable()
	flows := make([]*flow, 3)
	for i := range flows {
		f := &flow{}
		f.ctx, f.cancel = context.WithCancelCause(t.Context())
		f.touch(time.Unix(int64(1000+i), 0))
		f.timed.Store(true)
		table.add(f)
		flows[i] = f
	}
	assert.Equal(t, 3, table.len())

	table.sweep(time.Unix(1001, 0).Add(time.Minute), Limits{Idle: time.Minute, HalfClosed: time.Minute})
	assert.Equal(t, policy.ReasonIdleTimeout, flows[0].ended())
	assert.Equal(t, policy.ReasonIdleTimeout, flows[1].ended())
	assert.Empty(t, flows[2].ended())

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, table.drained(ended), context.Canceled)
	assert.Equal(t, 3, table.cancelAll(policy.ReasonShutdown))
	assert.Equal(t, policy.ReasonIdleTimeout, flows[0].ended(), "the first cause stays")
	assert.Equal(t, policy.ReasonShutdown, flows[2].ended())

	done := make(chan error)
	go func() { done <- table.drained(t.Context()) }()
	for _, f := range flows {
		table.remove(f)
		table.remove(f)
	}
	require.NoError(t, <-done)
	require.NoError(t, table.drained(ended), "an empty table is drained")

	f := &flow{}
	f.ctx, f.cancel = context.WithCancelCause(t.Context())
	f.cancel(nil)
	assert.Empty(t, f.ended(), "a flow that is over was not ended")
}

func TestInterleave(t *testing.T) {
	addrs := func(s ...string) []netip.Addr {
		var out []netip.Addr
		for _, a := range s {
			out = append(out, netip.MustParseAddr(a))
		}
		return out
	}
	for _, tt := range [][2][]netip.Addr{
		{addrs("1.1.1.1"), addrs("1.1.1.1")},
		{addrs("::1", "::2", "::3", "1.1.1.1", "1.1.1.2"), addrs("::1", "1.1.1.1", "::2", "1.1.1.2", "::3")},
		{addrs("1.1.1.1", "::1", "::2", "::3"), addrs("1.1.1.1", "::1", "::2", "::3")},
		{addrs("::ffff:1.1.1.1", "::1", "1.1.1.2"), addrs("::ffff:1.1.1.1", "::1", "1.1.1.2")},
	} {
		assert.Equal(t, tt[1], interleave(tt[0]))
	}
	rapid.Check(t, func(t *rapid.T) {
		in := rapid.SliceOfN(rapid.SampledFrom(addrs("1.1.1.1", "1.1.1.2", "::1", "::2", "::ffff:9.9.9.9")), 1, 9).Draw(t, "addresses")
		out := interleave(in)
		assert.ElementsMatch(t, in, out)
		assert.Equal(t, in[0], out[0])
	})
}
