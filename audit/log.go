package audit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// defaultMaxSize is the size at which a file is rotated.
	defaultMaxSize = 64 << 20
	// defaultSync is the longest time a line stays only in the page cache.
	defaultSync = 250 * time.Millisecond
	// queueLen is how many lines may wait for the writer before callers block.
	queueLen = 1024
)

// SyncAlways is the value of [Options.Sync] that makes [Log.Record] return only once the line is
// on the disk, so that not even a crash of the machine loses it.
const SyncAlways time.Duration = -1

// Options are what [Open] needs. Only File is required.
type Options struct {
	// File is the path of the live file. Its folder is created, mode 0700, if
	// it is missing. A file named File+".lock" is made beside it.
	File string
	// MaxSize is the size in bytes that a file doesn't exceed; the line that
	// would exceed it begins a new one. 0 means 64 MiB. A single line that is
	// larger than MaxSize gets a file of its own.
	MaxSize int64
	// Sync is the longest time between a write and the fsync of what was
	// written. 0 means 250 ms, SyncAlways an fsync before Record returns.
	Sync time.Duration
	// Version is the program's version, written into every line.
	Version string
	// Logger is for the operator: failures, recoveries and repairs of the log
	// itself. nil discards them.
	Logger *slog.Logger
	// Now gives the time of events without one, and of rotations. nil means
	// time.Now. Timers don't use it. It must be safe for concurrent use.
	Now func() time.Time

	// storage replaces the file system in tests.
	storage storage
}

// Log is an open audit log. Its methods are safe for concurrent use.
type Log struct {
	now      func() time.Time
	boot     string
	host     Host
	daemon   Daemon
	previous string

	// queue takes lines to the writer, which alone touches the file. It is
	// never closed: quit says that no more will come.
	queue   chan *entry
	entries sync.Pool
	// look asks the writer to look at the path now; it has room for one.
	look chan struct{}

	// closing and quit are set and closed by Close, stopped by the writer when
	// it has closed the file; closeErr may be read after that.
	closing  atomic.Bool
	quit     chan struct{}
	stopped  chan struct{}
	closeErr error

	state state
}

// entry is a line on its way from Record to the file.
type entry struct {
	enc      encoder
	event    Name
	decision string
	// done gets exactly one answer from the writer, which never blocks on it.
	done chan error
}

// Open opens the log at o.File for writing and continues the chain where its
// last valid line ends, in that file or, if it is missing or empty, in the newest
// rotated one. What it finds damaged it leaves in place, logs, and tells in an
// audit.gap record; content never makes it fail, since a gate that doesn't start
// is an outage.
//
// It fails if o.File is not a regular file, if another process has the log open
// (ErrLocked), or if the file can't be opened or read. ctx is only for that; it
// doesn't limit the life of the log. Every opened Log must be closed.
func Open(ctx context.Context, o Options) (*Log, error) {
	if o.File == "" {
		return nil, errors.New("opening audit log: no file name: set audit.file")
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("opening audit log: %w", err)
	}
	o.setDefaults()

	if err := os.MkdirAll(filepath.Dir(o.File), dirMode); err != nil {
		return nil, fmt.Errorf("creating the audit log's folder: %w", err)
	}
	held, err := lock(o.File)
	if err != nil {
		return nil, fmt.Errorf("locking audit log: %w", err)
	}

	name, err := os.Hostname()
	if err != nil {
		o.Logger.WarnContext(ctx, "host name is unknown; audit records go without it", "error", err)
	}
	l := &Log{
		now:     o.Now,
		boot:    NewID(),
		host:    Host{Name: name, OS: runtime.GOOS},
		daemon:  Daemon{Version: o.Version, PID: os.Getpid()},
		queue:   make(chan *entry, queueLen),
		look:    make(chan struct{}, 1),
		quit:    make(chan struct{}),
		stopped: make(chan struct{}),
	}
	l.entries.New = func() any { return &entry{done: make(chan error, 1)} }
	l.state.init()

	w := newWriter(l, o, held)
	if err = w.recover(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("opening audit log: %w", err), w.release())
	}

	go w.run()

	return l, nil
}

// setDefaults fills in what was left zero.
func (o *Options) setDefaults() {
	if o.MaxSize <= 0 {
		o.MaxSize = defaultMaxSize
	}
	if o.Sync == 0 {
		o.Sync = defaultSync
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.storage == nil {
		o.storage = osStorage{}
	}
}

// Record writes e as the next line of the log. It returns nil once the write
// that holds the whole line has returned (with [SyncAlways], once it is synced),
// so the line survives the end of the process from then on. It doesn't keep
// anything e points to.
//
// An error that wraps ErrStorage means that the line could not be stored; it is
// counted, and an audit.gap record will say so before the next line. ErrClosed
// means that the log was closed first. If ctx ends while Record waits, it returns
// ctx's error and the line is still written, unless the error wraps ErrStorage
// too: then the queue was full until ctx ended, and the line counts as lost.
func (l *Log) Record(ctx context.Context, e Event) error {
	if l.closing.Load() {
		return ErrClosed
	}
	l.complete(&e)

	en := l.entries.Get().(*entry)
	en.event, en.decision = e.Event, e.Decision
	en.enc.encode(&e)

	// A line that finds room is written even if ctx has ended already: what
	// happened has happened.
	select {
	case l.queue <- en:
	default:
		select {
		case l.queue <- en:
		case <-l.quit:
			return ErrClosed
		case <-ctx.Done():
			l.state.lose(e.Event)

			return fmt.Errorf("%w: too many records wait: %w", ErrStorage, ctx.Err())
		}
	}

	return l.await(ctx, en)
}

// await waits for the writer's answer to en.
func (l *Log) await(ctx context.Context, en *entry) error {
	var ended error
	select {
	case err := <-en.done:
		l.entries.Put(en)

		return err
	case <-ctx.Done():
		// The writer still has en, so it can't be used again.
		ended = ctx.Err()
	case <-l.stopped:
		// Queued behind the writer's back while it stopped: not written.
		ended = ErrClosed
	}

	// Both may have happened; the answer says more.
	select {
	case err := <-en.done:
		return err
	default:
		return ended
	}
}

// complete fills in what the log knows and what the caller left out.
func (l *Log) complete(e *Event) {
	e.Boot, e.Host, e.Daemon = l.boot, l.host, l.daemon
	if e.ID == "" {
		e.ID = NewID()
	}
	if e.Time.IsZero() {
		e.Time = l.now()
	}
	if e.Level == "" {
		e.Level = LevelInfo
	}
	if e.Msg == "" {
		e.Msg = string(e.Event)
	}
}

// Reopen asks the log to look at its path now: a program that rotates logs moved
// the file away and lines belong into a new one. Without it that is noticed
// within a second. It does not wait, and is safe for concurrent use.
func (l *Log) Reopen() {
	select {
	case l.look <- struct{}{}:
	default:
	}
}

// PreviousStop says how the run before this one ended: clean if its last record
// was service.stopped, unclean if it was another one or was damaged, unknown if
// there is no previous record.
func (l *Log) PreviousStop() string { return l.previous }

// Close writes what waits, syncs the file, closes it and gives up the lock. If
// ctx ends first, Close returns its error while that goes on. It returns the
// error of the last sync, or one that wraps ErrStorage if lines were lost and
// the record of it could not be written. Closing again returns the same.
func (l *Log) Close(ctx context.Context) error {
	if l.closing.CompareAndSwap(false, true) {
		close(l.quit)
	}

	select {
	case <-l.stopped:
		return l.closeErr
	case <-ctx.Done():
		return fmt.Errorf("closing audit log: %w", ctx.Err())
	}
}
