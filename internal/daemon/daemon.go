package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"path/filepath"
	"sync"
	"time"

	"sluicegate/audit"
	"sluicegate/dnsguard"
	"sluicegate/internal/control"
	"sluicegate/internal/identity"
	"sluicegate/proxy"
)

// drainTime is how long a stop waits for live requests and tunnels.
const drainTime = 5 * time.Second

// Options are what a daemon needs to start.
type Options struct {
	Paths    Paths
	Settings Settings
	// Version of the program, for records and status.
	Version string
	// Logger for operators; nil discards.
	Logger *slog.Logger
}

// Daemon is a running gate. Make it with Start.
type Daemon struct {
	opts    Options
	log     *slog.Logger
	started time.Time
	store   *store

	audit   *audit.Log
	proxy   *proxy.Server
	dns     *dnsguard.Server
	control *control.Server
	machine *machine

	mu    sync.Mutex
	bound []Bound
	// restart says what of the policy takes effect only after a restart.
	restart []string

	done chan struct{}
	wg   sync.WaitGroup
}

// Start loads the policy, opens the audit log, binds every listener, records
// service.started and serves. It returns when all of that is done, or with
// everything undone and an error that says how to mend it.
func Start(ctx context.Context, opts Options) (_ *Daemon, err error) {
	d := &Daemon{opts: opts, log: opts.Logger, started: time.Now(), done: make(chan struct{})}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	defer func() {
		if err != nil {
			d.abort()
		}
	}()
	// The control socket comes first: it tells best that a gate runs already.
	d.control, err = control.Listen(ctx, control.Options{Path: opts.Paths.Control, Logger: d.log, Handler: d.routes()})
	if err != nil {
		return nil, controlError(err)
	}
	d.audit, err = audit.Open(ctx, audit.Options{
		File: opts.Settings.AuditFile, MaxSize: opts.Settings.RotateSize, Sync: opts.Settings.Sync,
		Version: opts.Version, Logger: d.log,
	})
	if err != nil {
		return nil, auditError(err)
	}
	d.store = &store{
		load: func() (Policy, error) { return LoadPolicy(opts.Paths, opts.Settings) },
		kept: &archive{dir: filepath.Join(opts.Paths.State, "policy")},
		log:  d.log, now: time.Now, changed: d.changed, rejectedLoad: d.rejected,
	}
	d.store.start()
	d.logNotices(d.store.snapshot())
	if err = d.startProxy(ctx); err != nil {
		return nil, err
	}
	if err = d.record(ctx, audit.ServiceStarted, &audit.Service{
		Listeners: d.listeners(), PreviousStop: d.audit.PreviousStop(),
	}); err != nil {
		return nil, fmt.Errorf("writing the first audit record: %w", err)
	}
	d.dns.Start()
	d.proxy.Start()
	d.control.Start()
	watching, stop := context.WithCancel(context.Background())
	d.background(func() { d.machine.watch(d.done) })
	d.background(func() { d.expire(d.done) })
	d.background(func() {
		w := &watcher{dir: policyDir(opts.Paths, opts.Settings), log: d.log, reload: d.reloadQuietly}
		w.run(watching)
	})
	d.background(func() {
		<-d.done
		stop()
	})
	return d, nil
}

// controlError adds the mend to an error that has none: what the system said
// about a folder that can't be made or used. The control socket moves with the
// state folder, wherever it was.
func controlError(err error) error {
	for _, told := range []error{control.ErrRunning, control.ErrUntrustedPath, control.ErrPath} {
		if errors.Is(err, told) {
			return err
		}
	}
	return fmt.Errorf("%w: choose a folder that this user may write to with --state-dir", err)
}

// auditError does the same for what the system said about the audit log; the
// log's own errors say what to do.
func auditError(err error) error {
	if system := (*fs.PathError)(nil); errors.As(err, &system) {
		return fmt.Errorf("%w: set audit.file to a place that this user may write to", err)
	}
	return err
}

func (d *Daemon) background(f func()) {
	d.wg.Add(1)
	go func() {
		defer d.wg.Done()
		f()
	}()
}

// startProxy makes the proxy and binds the listeners; it serves nothing yet.
func (d *Daemon) startProxy(ctx context.Context) error {
	s := d.opts.Settings
	resolver, err := dnsguard.New(dnsguard.Config{Upstreams: s.Upstreams, Own: d.ownDNS, Logger: d.log})
	if err != nil {
		return err
	}
	peers := &peers{own: identity.Self(), log: d.log, names: map[uint32]string{}}
	d.machine = &machine{log: d.log}
	d.proxy, err = proxy.New(proxy.Config{
		Snapshot:        d.store.snapshot,
		Local:           d.machine.local,
		Recorder:        d.audit,
		Resolver:        names{resolver},
		Identifier:      peers,
		Limits:          s.Limits,
		Detail:          s.Detail,
		Allowed:         s.Allowed,
		AllowUnrecorded: s.AllowUnrecorded,
		PolicySource:    func() string { return d.store.current().Source },
		Logger:          d.log,
	})
	if err != nil {
		return err
	}
	d.dns, err = dnsguard.NewServer(dnsguard.ServerConfig{
		Snapshot: d.store.snapshot, Local: d.machine.local, Recorder: d.audit, Resolver: resolver,
		Identifier: dnsPeers{peers}, HideReason: s.Detail == proxy.DetailNone, AllowUnrecorded: s.AllowUnrecorded,
		PolicySource: func() string { return d.store.current().Source }, Logger: d.log,
	})
	if err != nil {
		return err
	}
	if d.bound, err = bindAll(ctx, d.proxy, d.store.snapshot().Profiles(), d.log); err != nil {
		return err
	}
	for i := range d.bound {
		b := &d.bound[i]
		if b.DNS, err = d.bindDNS(ctx, b.Profile); err != nil {
			return err
		}
		if err = d.bindUnix(ctx, b, b.Profile); err != nil {
			return err
		}
	}
	d.learnPorts()
	if err := d.machine.refresh(); err != nil {
		return fmt.Errorf("reading own addresses: %w", err)
	}
	return nil
}

// learnPorts tells the guard which ports are the gate's own.
func (d *Daemon) learnPorts() {
	var ports []uint16
	for _, b := range d.bound {
		for _, a := range append(b.Addresses[:len(b.Addresses):len(b.Addresses)], b.DNS...) {
			ports = append(ports, a.Port())
		}
	}
	d.machine.setPorts(ports)
}

// ownDNS are the gate's own DNS listeners, which must not be asked.
func (d *Daemon) ownDNS() []netip.AddrPort {
	if d.dns == nil {
		return nil
	}
	return d.dns.Addresses()
}

// names joins the proxy to the resolver.
type names struct{ r *dnsguard.Resolver }

var _ proxy.Resolver = names{}

// Resolve implements proxy.Resolver.
func (n names) Resolve(ctx context.Context, q proxy.Query) (proxy.Answer, error) {
	addrs, err := n.r.Lookup(ctx, q.Name)
	return proxy.Answer{Addrs: addrs}, err
}

// record writes a record about the service itself.
func (d *Daemon) record(ctx context.Context, name audit.Name, s *audit.Service) error {
	msg := "the gate started"
	if name == audit.ServiceStopped {
		msg = "the gate stopped"
	}
	return d.audit.Record(ctx, audit.Event{
		Level: audit.LevelInfo, Msg: msg, Event: name, Service: s,
		Policy: policyOf(d.store.current()),
	})
}

// abort undoes what Start has done so far.
func (d *Daemon) abort() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if d.dns != nil {
		d.dns.Shutdown(ctx)
	}
	if d.proxy != nil {
		d.proxy.Shutdown(ctx)
	}
	if d.control != nil {
		_ = d.control.Close()
	}
	if d.audit != nil {
		_ = d.audit.Close(context.Background())
	}
}

// Shutdown stops to accept, waits up to 5 s (or until ctx ends) for live
// requests and tunnels, ends the rest, records service.stopped and closes
// everything. cause is why: signal or error.
func (d *Daemon) Shutdown(ctx context.Context, cause string) error {
	close(d.done)
	d.wg.Wait()
	drain, cancel := context.WithTimeout(ctx, drainTime)
	defer cancel()
	cut := d.proxy.Shutdown(drain)
	d.dns.Shutdown(drain)
	if cut > 0 {
		d.log.Warn("ended what was still open", "count", cut)
	}
	// The last record and the log's own end get time even if ctx is over.
	last, cancelLast := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
	defer cancelLast()
	return errors.Join(
		d.record(last, audit.ServiceStopped, &audit.Service{Cause: cause, CutFlows: cut}),
		d.control.Shutdown(last),
		d.audit.Close(last),
	)
}
