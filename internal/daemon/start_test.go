package daemon

import (
	"context"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"testing"

	"sluicegate/audit"
	"sluicegate/internal/control"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// Start either serves or leaves nothing behind: no goroutine, no socket, no
// lock, no port, and no record of a start that did not happen.
func TestStartUndoes(t *testing.T) {
	for name, tc := range map[string]struct {
		// obstruct puts something in the way and returns how to take it away.
		obstruct func(t *testing.T, o *Options) (mend func())
		check    func(t *testing.T, o Options, err error)
	}{
		"another gate runs": {
			func(t *testing.T, o *Options) func() {
				other := *o
				d, err := Start(t.Context(), other)
				require.NoError(t, err)
				return func() { require.NoError(t, d.Shutdown(t.Context(), "signal")) }
			},
			func(t *testing.T, _ Options, err error) { assert.ErrorIs(t, err, control.ErrRunning) },
		},
		"the state folder is a file": {
			func(t *testing.T, o *Options) func() {
				write(t, o.Paths.State, "")
				return func() { require.NoError(t, os.Remove(o.Paths.State)) }
			},
			func(t *testing.T, _ Options, err error) { assert.ErrorContains(t, err, "--state-dir") },
		},
		"the audit log is a folder": {
			func(t *testing.T, o *Options) func() {
				require.NoError(t, os.MkdirAll(o.Paths.Audit, 0o700))
				return func() { require.NoError(t, os.Remove(o.Paths.Audit)) }
			},
			func(t *testing.T, _ Options, err error) { assert.ErrorContains(t, err, "is a folder") },
		},
		"the audit log is in a file": {
			func(t *testing.T, o *Options) func() {
				file := filepath.Join(filepath.Dir(o.Paths.State), "file")
				write(t, file, "")
				o.Settings.AuditFile = filepath.Join(file, "audit.jsonl")
				return func() { require.NoError(t, os.Remove(file)) }
			},
			func(t *testing.T, _ Options, err error) { assert.ErrorContains(t, err, "set audit.file") },
		},
		"another program writes the log": {
			func(t *testing.T, o *Options) func() {
				l, err := audit.Open(t.Context(), audit.Options{File: o.Settings.AuditFile})
				require.NoError(t, err)
				return func() { require.NoError(t, l.Close(t.Context())) }
			},
			func(t *testing.T, _ Options, err error) { assert.ErrorIs(t, err, audit.ErrLocked) },
		},
		"a DNS server is none": {
			func(_ *testing.T, o *Options) func() {
				was := o.Settings.Upstreams
				o.Settings.Upstreams = []string{"dns.example.com"}
				return func() { o.Settings.Upstreams = was }
			},
			func(t *testing.T, _ Options, err error) { assert.ErrorContains(t, err, "dns.example.com") },
		},
		"the second port is taken": {
			func(t *testing.T, o *Options) func() {
				l, err := net.Listen("tcp4", "127.0.0.1:0")
				require.NoError(t, err)
				_, port, err := net.SplitHostPort(l.Addr().String())
				require.NoError(t, err)
				write(t, filepath.Join(o.Paths.Policy, "b.yaml"),
					"version: 1\nproduct: claude-code\nprofiles:\n  process:\n    listen: {port: "+port+"}\n")
				return func() { require.NoError(t, l.Close()) }
			},
			func(t *testing.T, _ Options, err error) {
				assert.ErrorContains(t, err, "for claude-code/process: the port is in use")
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			quiet := goleak.IgnoreCurrent()
			o := newOptions(t)
			mend := tc.obstruct(t, &o)
			d, err := Start(t.Context(), o)
			require.Error(t, err)
			assert.Nil(t, d)
			tc.check(t, o, err)
			mend()
			goleak.VerifyNone(t, quiet)
			assertNothingRuns(t, o)
		})
	}
}

// assertNothingRuns starts a daemon where another one failed to.
func assertNothingRuns(t *testing.T, o Options) {
	t.Helper()
	_, err := os.Lstat(o.Paths.Control)
	require.ErrorIs(t, err, fs.ErrNotExist, "the control socket is still there")
	before := story(t, o.Settings.AuditFile)
	d, err := Start(t.Context(), o)
	require.NoError(t, err, "what Start had done was not undone")
	id := refusedBy(t, d.bound[0].Addresses[0].String(), "forbidden.example.net")
	assert.NotEmpty(t, id)
	require.NoError(t, d.Shutdown(t.Context(), "signal"))
	assert.Equal(t, append(before, audit.ServiceStarted, audit.EgressDenied, audit.ServiceStopped), story(t, o.Settings.AuditFile))
}

// events reads a log; one that is not there has none.
func events(t *testing.T, path string) (all []audit.Event) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer func() { require.NoError(t, f.Close()) }()
	_, err = audit.Scan(f, func(line []byte) error {
		e, err := audit.Parse(line)
		all = append(all, e)
		return err
	})
	require.NoError(t, err)
	return all
}

// story is the names of a log's events.
func story(t *testing.T, path string) (names []audit.Name) {
	t.Helper()
	for _, e := range events(t, path) {
		names = append(names, e.Event)
	}
	return names
}

func TestStartWhenAskedToStop(t *testing.T) {
	quiet := goleak.IgnoreCurrent()
	o := newOptions(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Start(ctx, o)
	require.ErrorIs(t, err, context.Canceled)
	goleak.VerifyNone(t, quiet)
	assertNothingRuns(t, o)
}

func TestStartedRecord(t *testing.T) {
	o := newOptions(t)
	d := start(t, o)
	all := events(t, o.Settings.AuditFile)
	require.Len(t, all, 1)
	e := all[0]
	assert.Equal(t, audit.ServiceStarted, e.Event)
	assert.Equal(t, "v1.2.3", e.Daemon.Version)
	assert.Equal(t, "unknown", e.Service.PreviousStop)
	assert.Equal(t, &audit.Policy{Version: 1, Digest: d.store.snapshot().Digest(), Source: o.Paths.Policy}, e.Policy)
	var want []audit.Listener
	for _, a := range d.bound[0].Addresses {
		want = append(want, audit.Listener{Profile: commands, Address: a.String()})
	}
	assert.Equal(t, want, e.Service.Listeners)
}
