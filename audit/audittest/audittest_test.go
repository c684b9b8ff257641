package audittest_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sluicegate/audit"
	"sluicegate/audit/audittest"
)

// recorder is what consumers declare; both must have it.
type recorder interface {
	Record(ctx context.Context, e audit.Event) error
}

var (
	_ recorder = (*audit.Log)(nil)
	_ recorder = (*audittest.Recorder)(nil)
)

func TestRecorderKeepsEventsInOrder(t *testing.T) {
	var r audittest.Recorder
	require.NoError(t, r.Record(t.Context(), audit.Event{Event: audit.EgressDenied, Dest: "a.example.com"}))
	require.NoError(t, r.Record(t.Context(), audit.Event{Event: audit.EgressClosed, ID: "given"}))

	events := r.Events()
	require.Len(t, events, 2)
	assert.Equal(t, "a.example.com", events[0].Dest)
	assert.NotEmpty(t, events[0].ID)
	assert.False(t, events[0].Time.IsZero())
	assert.Equal(t, audit.LevelInfo, events[0].Level)
	assert.Equal(t, uint64(1), events[0].Seq)
	assert.Equal(t, "given", events[1].ID)
	assert.Equal(t, uint64(2), events[1].Seq)

	events[0].Dest = "changed"
	assert.Equal(t, "a.example.com", r.Events()[0].Dest, "the caller got a copy")
}

func TestRecorderFailWith(t *testing.T) {
	var r audittest.Recorder
	r.FailWith(fmt.Errorf("%w: disk full", audit.ErrStorage))
	require.ErrorIs(t, r.Record(t.Context(), audit.Event{}), audit.ErrStorage)
	assert.Empty(t, r.Events())

	r.FailWith(nil)
	require.NoError(t, r.Record(t.Context(), audit.Event{}))
	assert.Len(t, r.Events(), 1)
}

func TestRecorderKeepsEventOfCallerWhoLeft(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()

	var r audittest.Recorder
	require.ErrorIs(t, r.Record(ctx, audit.Event{}), context.Canceled)
	assert.Len(t, r.Events(), 1)
}

func TestRecorderWaitFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r audittest.Recorder
		got := make(chan audit.Event)
		go func() {
			got <- r.WaitFor(t, func(e audit.Event) bool { return e.Dest == "b.example.com" })
		}()

		synctest.Wait() // until WaitFor waits
		for _, dest := range []string{"a.example.com", "b.example.com"} {
			require.NoError(t, r.Record(t.Context(), audit.Event{Dest: dest}))
		}
		assert.Equal(t, uint64(2), (<-got).Seq)

		// One that is there already is found at once.
		assert.Equal(t, uint64(1), r.WaitFor(t, func(audit.Event) bool { return true }).Seq)
	})
}

// fatal is a test that notes that it failed.
type fatal struct {
	testing.TB
	msg string
}

func (f *fatal) Helper() {}

func (f *fatal) Fatalf(format string, args ...any) {
	f.msg = fmt.Sprintf(format, args...)
	panic(f)
}

func TestRecorderWaitForFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r audittest.Recorder
		require.NoError(t, r.Record(t.Context(), audit.Event{Event: audit.EgressDenied, Reason: "not_listed"}))

		f := &fatal{}
		assert.Panics(t, func() { r.WaitFor(f, func(audit.Event) bool { return false }) })
		assert.Contains(t, f.msg, "egress.denied  not_listed")
	})
}
