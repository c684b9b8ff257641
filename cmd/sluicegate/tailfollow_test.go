package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// output collects what a command prints while it runs.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
	// err fails further writes.
	err error
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil {
		return 0, o.err
	}
	return o.buf.Write(b)
}

// take returns what was printed since the last call.
func (o *output) take() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.buf.String()
	o.buf.Reset()
	return s
}

// following runs "tail -f" in a bubble until the test ends, and returns a function
// that waits for some time and then returns what was printed. stop ends it and
// returns its exit code.
func following(t *testing.T, out *output, args ...string) (after func(time.Duration) string, stop func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	code := make(chan int, 1)
	go func() { code <- run(ctx, append([]string{"tail", "-f"}, args...), out, io.Discard) }()
	synctest.Wait()
	return func(d time.Duration) string {
			<-time.After(d)
			synctest.Wait()
			return out.take()
		}, func() int {
			cancel()
			return <-code
		}
}

// prepareSignals makes os/signal start its goroutine here, outside of the bubbles
// that start commands.
func prepareSignals(t *testing.T) {
	t.Helper()
	_, stop := stopSignals(t.Context())
	stop()
}

func TestTailFollow(t *testing.T) {
	file := alone(t)
	prepareSignals(t)
	synctest.Test(t, func(t *testing.T) {
		var out output
		after, stop := following(t, &out, "--event", "egress.denied")
		assert.Empty(t, after(time.Minute), "there is no file yet")

		l := openLog(t, file, 1)
		for i := range 5 {
			require.NoError(t, l.Record(t.Context(), refusal(fmt.Sprintf("h%d.example.com", i))))
			assert.Equal(t, []string{fmt.Sprintf("h%d.example.com", i)}, hosts(after(200*time.Millisecond)))
		}
		closeLog(t, l)
		assert.Empty(t, after(time.Hour))
		assert.Equal(t, exitOK, stop())
	})
}

func TestTailFollowFold(t *testing.T) {
	file := alone(t)
	prepareSignals(t)
	synctest.Test(t, func(t *testing.T) {
		l := openLog(t, file, 0)
		record := func(hosts ...string) {
			for _, host := range hosts {
				require.NoError(t, l.Record(t.Context(), refusal(host)))
			}
		}
		record("a.example.com", "a.example.com")
		var out output
		after, stop := following(t, &out, "--fold")
		first := after(time.Second)
		assert.Equal(t, []string{"a.example.com"}, hosts(first[:strings.Index(first, "\n")]), "at first sight")
		assert.Equal(t, 1, strings.Count(first, "\n"))
		record("a.example.com")
		assert.Empty(t, after(time.Second))
		assert.Contains(t, after(2*time.Second), "2 more like the line above", "after two seconds of quiet")

		record("a.example.com", "a.example.com", "b.example.com")
		got := after(200 * time.Millisecond)
		assert.Equal(t, 3, strings.Count(got, "\n"), "the first, one more, the other")
		assert.Contains(t, got, "1 more like the line above")
		record("b.example.com")
		assert.Equal(t, exitOK, stop())
		closeLog(t, l)
	})
}
