package daemon

import (
	"context"
	"log/slog"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Times of the watcher.
const (
	// debounce is the quiet time after the last event before a load, so that a
	// save in several steps is seen once.
	debounce = 200 * time.Millisecond
	// debounceMax bounds the wait while events keep coming.
	debounceMax = 800 * time.Millisecond
	// pollEvery finds what events miss: network folders, bind mounts.
	pollEvery = 30 * time.Second
)

// watcher asks for loads when the policy folder may have changed. It watches
// folders, never files: editors and MDM replace files by rename.
type watcher struct {
	dir    string
	log    *slog.Logger
	reload func(context.Context, Trigger)
}

// run watches until ctx ends.
func (w *watcher) run(ctx context.Context) {
	fw, err := fsnotify.NewWatcher()
	if err != nil {
		w.log.Error("watching the policy folder; it is polled instead", "error", err)
		w.loop(ctx, nil, nil)
		return
	}
	places := &watched{dir: w.dir, fw: fw}
	places.renew()
	notify := make(chan struct{}, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.pump(fw, places, notify)
	}()
	w.loop(ctx, notify, places.renew)
	_ = fw.Close()
	<-done
}

// pump turns the events that concern the policy into notifications, of which
// one at most waits.
func (w *watcher) pump(fw *fsnotify.Watcher, places *watched, notify chan<- struct{}) {
	for {
		select {
		case e, ok := <-fw.Events:
			if !ok {
				return
			}
			if !places.concerns(e.Name) {
				continue
			}
		case err, ok := <-fw.Errors:
			if !ok {
				return
			}
			// Events may be missing: look.
			w.log.Warn("watching the policy folder", "error", err)
		}
		select {
		case notify <- struct{}{}:
		default:
		}
	}
}

// loop turns notifications, ticks and signals into loads. renew, if not nil,
// runs before each: what was replaced has a new inode to watch.
func (w *watcher) loop(ctx context.Context, notify <-chan struct{}, renew func()) {
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	var quiet, latest <-chan time.Time
	load := func(t Trigger) {
		quiet, latest = nil, nil
		if renew != nil {
			renew()
		}
		w.reload(ctx, t)
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-notify:
			quiet = time.After(debounce)
			if latest == nil {
				latest = time.After(debounceMax)
			}
		case <-quiet:
			load(TriggerWatch)
		case <-latest:
			load(TriggerWatch)
		case <-poll.C:
			load(TriggerPoll)
		}
	}
}
