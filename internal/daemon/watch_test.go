package daemon

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestWatcherWaitsForQuiet has the exact times of loads for bursts of events.
func TestWatcherWaitsForQuiet(t *testing.T) {
	cases := map[string]struct {
		events []time.Duration // after the start
		loads  []time.Duration
	}{
		"one event":             {[]time.Duration{0}, []time.Duration{200 * time.Millisecond}},
		"a save in three steps": {[]time.Duration{0, 50 * time.Millisecond, 100 * time.Millisecond}, []time.Duration{300 * time.Millisecond}},
		"a storm is cut": {
			[]time.Duration{0, 150e6, 300e6, 450e6, 600e6, 750e6},
			[]time.Duration{800 * time.Millisecond},
		},
		"two saves": {[]time.Duration{0, time.Second}, []time.Duration{200 * time.Millisecond, 1200 * time.Millisecond}},
		"nothing":   {nil, nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				start := time.Now()
				var loads []time.Duration
				w := &watcher{log: slog.New(slog.DiscardHandler), reload: func(_ context.Context, tr Trigger) {
					require.Equal(t, TriggerWatch, tr)
					loads = append(loads, time.Since(start))
				}}
				notify := make(chan struct{}, 1)
				done := make(chan struct{})
				go func() {
					defer close(done)
					w.loop(ctx, notify, nil)
				}()
				for _, at := range c.events {
					time.Sleep(at - time.Since(start))
					notify <- struct{}{}
				}
				time.Sleep(5*time.Second - time.Since(start))
				cancel()
				<-done
				require.Equal(t, c.loads, loads)
			})
		})
	}
}

// TestWatcherPolls finds what no event tells.
func TestWatcherPolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var polls int
		w := &watcher{log: slog.New(slog.DiscardHandler), reload: func(_ context.Context, tr Trigger) {
			require.Equal(t, TriggerPoll, tr)
			polls++
		}}
		done := make(chan struct{})
		go func() {
			defer close(done)
			w.loop(ctx, nil, nil)
		}()
		time.Sleep(91 * time.Second)
		cancel()
		<-done
		require.Equal(t, 3, polls)
	})
}

// TestR_C01_SavesOfEveryStyleAreSeen changes real files the way editors, MDM and
// mounted configuration do; each change must be loaded once it is complete.
func TestR_C01_SavesOfEveryStyleAreSeen(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "a", "policy.d")
	file := filepath.Join(dir, "p.yaml")
	write := func(path, text string) { require.NoError(t, os.WriteFile(path, []byte(text), 0o600)) }

	seen := make(chan string, 100)
	w := &watcher{dir: dir, log: slog.New(slog.DiscardHandler), reload: func(context.Context, Trigger) {
		data, err := os.ReadFile(file)
		if err != nil {
			data = []byte("gone")
		}
		seen <- string(data)
	}}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	// The first load by event proves that the watches are in place.
	require.NoError(t, os.MkdirAll(dir, 0o700))
	go func() {
		defer close(done)
		w.run(ctx)
	}()
	expect := func(step, want string) {
		t.Helper()
		deadline := time.After(20 * time.Second)
		for {
			select {
			case got := <-seen:
				if got == want {
					return
				}
			case <-deadline:
				require.FailNow(t, "the change was not seen", "%s: %s", step, want)
			}
		}
	}
	// Repeated until seen: run may not have added its watches yet.
	tick := time.NewTicker(300 * time.Millisecond)
	defer tick.Stop()
	write(file, "first")
	for ready := false; !ready; {
		select {
		case got := <-seen:
			ready = got == "first"
		case <-tick.C:
			write(file, "first")
		}
	}

	for _, text := range []string{"rename 1", "rename 2", "rename 3"} {
		write(file+".tmp", text)
		require.NoError(t, os.Rename(file+".tmp", file))
		expect("write and rename", text)
	}
	require.NoError(t, os.Rename(file, file+"~"))
	write(file, "vim")
	expect("move away and create", "vim")
	write(file, "in place")
	expect("truncate and write", "in place")
	require.NoError(t, os.Remove(file))
	expect("delete", "gone")
	write(file, "again")
	expect("create again", "again")

	require.NoError(t, os.RemoveAll(dir))
	expect("folder removed", "gone")
	require.NoError(t, os.MkdirAll(dir, 0o700))
	write(file, "new folder")
	expect("folder made again", "new folder")
	write(file, "in the new folder")
	expect("write in the new folder", "in the new folder")

	// Mounted configuration: files link through ..data, which is swapped.
	for _, v := range []string{"v1", "v2"} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, ".."+v), 0o700))
		write(filepath.Join(dir, ".."+v, "p.yaml"), v)
	}
	require.NoError(t, os.Symlink("..v1", filepath.Join(dir, "..data")))
	require.NoError(t, os.Remove(file))
	require.NoError(t, os.Symlink(filepath.Join("..data", "p.yaml"), file))
	expect("linked", "v1")
	require.NoError(t, os.Symlink("..v2", filepath.Join(dir, "..new")))
	require.NoError(t, os.Rename(filepath.Join(dir, "..new"), filepath.Join(dir, "..data")))
	expect("link swapped", "v2")

	// A file that links to another folder.
	other := filepath.Join(root, "elsewhere")
	require.NoError(t, os.MkdirAll(other, 0o700))
	write(filepath.Join(other, "real.yaml"), "far 1")
	require.NoError(t, os.Remove(file))
	require.NoError(t, os.Symlink(filepath.Join(other, "real.yaml"), file))
	expect("link to another folder", "far 1")
	write(filepath.Join(other, "real.yaml"), "far 2")
	expect("change behind the link", "far 2")

	cancel()
	<-done
}
