package dnsguard

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sluicegate/policy"
)

// step2 is what a server does when it is asked: after a while, answer or fail.
// With soft it tells of a broken answer first.
type step2 struct {
	after time.Duration
	err   error
	soft  error
	never bool
}

var aQuestion = question{name: "a.example", wire: "\x01a\x07example", kind: TypeA}

// raceOf runs a race on the fake clock: server i does steps[i] in turn, and
// stays silent when there are none left. It returns the answer's server, the
// asks as "SERVER@TIME", the time it took and the error.
func raceOf(t *testing.T, timeout time.Duration, steps ...[]step2) (winner int, asks []string, took time.Duration, err error) {
	t.Helper()
	winner = -1
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		start := time.Now()
		ask := func(ctx context.Context, server netip.AddrPort, _ question, soft func(error)) (Answer, error) {
			i := int(server.Port()) - 1
			mu.Lock()
			asks = append(asks, fmt.Sprintf("%d@%s", i, time.Since(start)))
			do := step2{never: true}
			if len(steps[i]) > 0 {
				do, steps[i] = steps[i][0], steps[i][1:]
			}
			mu.Unlock()
			if do.soft != nil {
				soft(do.soft)
			}
			if do.never {
				<-ctx.Done()
				return Answer{}, ctx.Err()
			}
			select {
			case <-time.After(do.after):
				return Answer{TTL: time.Duration(i + 1)}, do.err
			case <-ctx.Done():
				return Answer{}, ctx.Err()
			}
		}
		var servers []netip.AddrPort
		for i := range steps {
			servers = append(servers, netip.AddrPortFrom(netip.IPv6Loopback(), uint16(i+1)))
		}
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		defer cancel()
		var a Answer
		a, err = race(ctx, ask, servers, aQuestion)
		took = time.Since(start)
		if err == nil {
			winner = int(a.TTL) - 1
		}
	})
	return winner, asks, took, err
}

func TestRace(t *testing.T) {
	refused := &rcodeError{rcodeRefused}
	quick, slow := step2{after: 10 * time.Millisecond}, step2{after: 600 * time.Millisecond}
	no, never := step2{after: 10 * time.Millisecond, err: refused}, step2{never: true}
	broken := step2{soft: errMalformed, never: true}
	tests := map[string]struct {
		steps  [][]step2
		winner int
		asks   []string
		took   time.Duration
		err    error
	}{
		"first answers":          {[][]step2{{quick}, {quick}}, 0, []string{"0@0s"}, 10 * time.Millisecond, nil},
		"first fails":            {[][]step2{{no}, {quick}}, 1, []string{"0@0s", "1@10ms"}, 20 * time.Millisecond, nil},
		"first is silent":        {[][]step2{{never}, {quick}}, 1, []string{"0@0s", "1@400ms"}, 410 * time.Millisecond, nil},
		"first is slow and wins": {[][]step2{{slow}, {slow}}, 0, []string{"0@0s", "1@400ms"}, 600 * time.Millisecond, nil},
		"all fail":               {[][]step2{{no}, {no}, {no}}, -1, []string{"0@0s", "1@10ms", "2@20ms"}, 30 * time.Millisecond, refused},
		"silent, and one fails":  {[][]step2{{never}, {no}}, -1, []string{"0@0s", "1@400ms", "0@1.4s", "0@2.4s", "0@4.4s"}, 5 * time.Second, refused},
		"a lost datagram":        {[][]step2{{never, quick}}, 0, []string{"0@0s", "0@1s"}, 1010 * time.Millisecond, nil},
		"nobody ever":            {[][]step2{nil}, -1, []string{"0@0s", "0@1s", "0@3s"}, 5 * time.Second, errNoAnswer},
		"broken, then good":      {[][]step2{{broken}, {quick}}, 1, []string{"0@0s", "1@0s"}, 10 * time.Millisecond, nil},
		"only broken":            {[][]step2{{broken}}, -1, []string{"0@0s"}, 400 * time.Millisecond, errMalformed},
		"broken, good follows":   {[][]step2{{{soft: errMalformed, after: 300 * time.Millisecond}}}, 0, []string{"0@0s"}, 300 * time.Millisecond, nil},
		"about the name":         {[][]step2{{{err: errLoop}}, {quick}}, -1, []string{"0@0s"}, 0, errLoop},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			winner, asks, took, err := raceOf(t, 5*time.Second, tt.steps...)
			assert.Equal(t, tt.winner, winner)
			assert.Equal(t, tt.asks, asks)
			assert.Equal(t, tt.took, took)
			if tt.err == nil {
				assert.NoError(t, err)
			} else {
				assert.ErrorIs(t, err, tt.err)
			}
		})
	}
}

func TestRaceSurvivesPanic(t *testing.T) {
	ask := func(context.Context, netip.AddrPort, question, func(error)) (Answer, error) { panic("a fault") }
	r, err := New(Config{Upstreams: []string{"192.0.2.1"}, testOnlyExchange: ask})
	require.NoError(t, err)
	_, err = r.Resolve(t.Context(), "a.example", TypeA)
	assert.Equal(t, policy.ReasonInternal, reasonOf(err))
}

func TestFlightSurvivesPanic(t *testing.T) {
	var f flights
	_, err := f.do(t.Context(), aQuestion, func(context.Context) (Answer, error) { panic("a fault") })
	assert.ErrorIs(t, err, errPanic)
	assert.Empty(t, f.running)
}

// 75: many who ask the same at one time cost one look-up.
func TestCatalogue75_Coalescing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var asks []string
		ask := func(ctx context.Context, _ netip.AddrPort, q question, _ func(error)) (Answer, error) {
			mu.Lock()
			asks = append(asks, fmt.Sprintf("%s %d", q.name, q.kind))
			mu.Unlock()
			select {
			case <-time.After(100 * time.Millisecond):
				return Answer{Addrs: []netip.Addr{netip.MustParseAddr("1.1.1.1")}}, nil
			case <-ctx.Done():
				return Answer{}, ctx.Err()
			}
		}
		r, err := New(Config{Upstreams: []string{"192.0.2.1"}, testOnlyExchange: ask})
		require.NoError(t, err)
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				got, err := r.Resolve(t.Context(), "a.example", TypeA)
				assert.NoError(t, err)
				assert.Len(t, got.Addrs, 1)
			})
		}
		// One who leaves early takes nobody along.
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			_, err := r.Resolve(ctx, "a.example", TypeA)
			assert.Equal(t, policy.ReasonDNSTimeout, reasonOf(err))
		})
		wg.Go(func() { _, _ = r.Resolve(t.Context(), "a.example", TypeAAAA) })
		wg.Wait()
		slices.Sort(asks)
		assert.Equal(t, []string{"a.example 1", "a.example 28"}, asks)
		// Nothing is kept: the next one asks again.
		_, err = r.Resolve(t.Context(), "a.example", TypeA)
		require.NoError(t, err)
		assert.Len(t, asks, 3)
	})
}

// When the last waiter leaves, the look-up ends, and the next caller starts one.
func TestFlightEndsWithItsWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		ended := 0
		ask := func(ctx context.Context, _ netip.AddrPort, _ question, _ func(error)) (Answer, error) {
			<-ctx.Done()
			mu.Lock()
			ended++
			mu.Unlock()
			return Answer{}, ctx.Err()
		}
		r, err := New(Config{Upstreams: []string{"192.0.2.1"}, Timeout: time.Hour, testOnlyExchange: ask})
		require.NoError(t, err)
		for i := range 2 {
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			wg.Go(func() {
				_, err := r.Resolve(ctx, "a.example", TypeA)
				assert.ErrorIs(t, err, context.Canceled)
			})
			synctest.Wait()
			cancel()
			wg.Wait()
			synctest.Wait()
			mu.Lock()
			assert.Equal(t, i+1, ended)
			mu.Unlock()
		}
	})
}
