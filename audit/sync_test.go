package audit

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSyncInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := &faultyStorage{}
		l := openLog(t, Options{File: logPath(t), Sync: time.Second, storage: fs})
		syncs := func() int {
			synctest.Wait()
			_, n, _ := fs.count()

			return n
		}

		time.Sleep(time.Hour)
		assert.Zero(t, syncs(), "nothing to sync")

		record(t, l, denied("a.example.com"))
		time.Sleep(900 * time.Millisecond)
		record(t, l, denied("b.example.com"))
		assert.Zero(t, syncs())
		assert.Zero(t, l.Stats().SyncedSeq)

		time.Sleep(100 * time.Millisecond)
		assert.Equal(t, 1, syncs(), "counted from the first line")
		assert.Equal(t, uint64(2), l.Stats().SyncedSeq)

		time.Sleep(time.Hour)
		assert.Equal(t, 1, syncs(), "an idle log isn't synced again")

		record(t, l, denied("c.example.com"))
		time.Sleep(time.Second)
		assert.Equal(t, 2, syncs())
		closeLog(t, l)
	})
}

// A slow fsync holds up neither lines nor the next fsync's timer.
func TestSyncDoesNotBlockRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		block := make(chan struct{})
		fs := &faultyStorage{onSync: func() error { <-block; return nil }}
		l := openLog(t, Options{File: logPath(t), Sync: time.Second, storage: fs})

		record(t, l, denied("a.example.com"))
		time.Sleep(time.Second)
		synctest.Wait() // the fsync runs
		record(t, l, denied("b.example.com"))
		assert.Zero(t, l.Stats().SyncedSeq)

		close(block)
		synctest.Wait()
		assert.Equal(t, uint64(1), l.Stats().SyncedSeq, "only what was written before it began")
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Equal(t, uint64(2), l.Stats().SyncedSeq)
		closeLog(t, l)
	})
}

func TestSyncAlways(t *testing.T) {
	fs := &faultyStorage{}
	l := openLog(t, Options{File: logPath(t), Sync: SyncAlways, storage: fs})
	for i := range 3 {
		record(t, l, denied("example.com"))
		_, syncs, _ := fs.count()
		assert.Equal(t, i+1, syncs)
		assert.Equal(t, uint64(i+1), l.Stats().SyncedSeq)
	}
}

// A rotation waits for the fsync that is running, and takes its failure for its
// own.
func TestRotationWhileSyncRuns(t *testing.T) {
	for name, result := range map[string]error{"succeeds": nil, "fails": errDisk} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				path := logPath(t)
				block := make(chan struct{})
				fs := &faultyStorage{onSync: func() error { <-block; return result }}
				l := openLog(t, Options{File: path, MaxSize: 1, Sync: time.Second, storage: fs})
				record(t, l, denied("a.example.com"))
				time.Sleep(time.Second)
				synctest.Wait()

				done := make(chan error)
				go func() { done <- l.Record(t.Context(), denied("b.example.com")) }()
				synctest.Wait()
				assert.Equal(t, uint64(1), l.Stats().LastSeq, "the rotation waits")
				close(block)
				require.NoError(t, <-done)
				assert.Equal(t, result == nil, l.Healthy())
				fs.heal()
				closeLog(t, l)

				want := []Name{EgressDenied, AuditRotated, EgressDenied}
				if result != nil {
					want = []Name{EgressDenied, AuditRotated, AuditGap, EgressDenied}
				}
				assert.Equal(t, want, names(verify(t, path, 0)))
			})
		})
	}
}

// As after a failed write, a log that nobody writes to recovers.
func TestSyncAlwaysRecoversWithoutRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := logPath(t)
		fs := &faultyStorage{onSync: func() error { return errDisk }}
		l := openLog(t, Options{File: path, Sync: SyncAlways, storage: fs})
		require.ErrorIs(t, l.Record(t.Context(), denied("a.example.com")), ErrStorage)
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.False(t, l.Healthy())
		_, syncs, _ := fs.count()
		assert.Less(t, syncs, 140, "about one attempt a minute")

		fs.heal()
		time.Sleep(retryMax)
		synctest.Wait()
		assert.True(t, l.Healthy())
		assert.Equal(t, l.Stats().LastSeq, l.Stats().SyncedSeq)
		closeLog(t, l)
		verify(t, path, 0)
		files, err := Files(path)
		require.NoError(t, err)
		assert.Len(t, files, 2)
	})
}
