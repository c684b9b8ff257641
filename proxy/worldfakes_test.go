package proxy

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"sluicegate/audit"
	"sluicegate/audit/audittest"
)

// recorder is a log in memory with the health of a real one.
type recorder struct {
	audittest.Recorder
	ill atomic.Bool

	mu   sync.Mutex
	hook func(audit.Event)
}

func newRecorder() *recorder { return &recorder{} }

// before calls fn for every record before it is written; it may block or panic.
func (r *recorder) before(fn func(audit.Event)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hook = fn
}

// Record implements Recorder.
func (r *recorder) Record(ctx context.Context, e audit.Event) error {
	r.mu.Lock()
	hook := r.hook
	r.mu.Unlock()
	if hook != nil {
		hook(e)
	}
	err := r.Recorder.Record(ctx, e)
	r.ill.Store(err != nil)
	return err
}

// Healthy implements Recorder.
func (r *recorder) Healthy() bool { return !r.ill.Load() }

func (r *recorder) briefs() []string { return briefs(r.Events()) }

// errDisk is what a log says that can't write.
var errDisk = errors.New("no space left on device")

// names is a resolver with scripted answers that counts.
type names struct {
	t testing.TB

	mu      sync.Mutex
	answers map[string]func(context.Context, Query) (Answer, error)
	queries []Query
}

// set makes a name resolve to addresses.
func (n *names) set(name string, addrs ...string) {
	var a Answer
	for _, s := range addrs {
		a.Addrs = append(a.Addrs, netip.MustParseAddr(s))
	}
	n.script(name, func(context.Context, Query) (Answer, error) { return a, nil })
}

// fail makes a name fail.
func (n *names) fail(name string, err error) {
	n.script(name, func(context.Context, Query) (Answer, error) { return Answer{}, err })
}

func (n *names) script(name string, fn func(context.Context, Query) (Answer, error)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.answers == nil {
		n.answers = map[string]func(context.Context, Query) (Answer, error){}
	}
	n.answers[name] = fn
}

// Resolve implements Resolver.
func (n *names) Resolve(ctx context.Context, q Query) (Answer, error) {
	n.mu.Lock()
	n.queries = append(n.queries, q)
	fn := n.answers[q.Name]
	n.mu.Unlock()
	if fn == nil {
		n.t.Errorf("look-up of %q, which nobody scripted", q.Name)
		return Answer{}, errors.New("not scripted")
	}
	return fn(ctx, q)
}

func (n *names) asked() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []string
	for _, q := range n.queries {
		out = append(out, q.Name)
	}
	return out
}

// network is the internet: it carries a connection to a judged public address to
// an origin on loopback, below the dialer's control function.
type network struct {
	t testing.TB

	mu      sync.Mutex
	routes  map[netip.AddrPort]func(context.Context) (*net.TCPConn, error)
	dials   []netip.AddrPort
	origins []*origin
}

// at says what happens to a connection to an address.
func (n *network) at(addr string, fn func(context.Context) (*net.TCPConn, error)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.routes == nil {
		n.routes = map[netip.AddrPort]func(context.Context) (*net.TCPConn, error){}
	}
	n.routes[netip.MustParseAddrPort(addr)] = fn
}

// dial is Config.testOnlyDial.
func (n *network) dial(ctx context.Context, d *net.Dialer, addr netip.AddrPort) (*net.TCPConn, error) {
	family := "tcp4"
	if addr.Addr().Is6() {
		family = "tcp6"
	}
	if err := d.ControlContext(ctx, family, addr.String(), nil); err != nil {
		return nil, err
	}
	n.mu.Lock()
	n.dials = append(n.dials, addr)
	fn := n.routes[addr]
	n.mu.Unlock()
	if fn == nil {
		n.t.Errorf("dial of %s, where nothing is", addr)
		return nil, syscall.ECONNREFUSED
	}
	return fn(ctx)
}

func (n *network) dialled() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []string
	for _, a := range n.dials {
		out = append(out, a.String())
	}
	return out
}

func (n *network) close() {
	n.mu.Lock()
	origins := slices.Clone(n.origins)
	n.mu.Unlock()
	for _, o := range origins {
		o.close()
	}
}

// refuse is a host that answers with a reset.
func refuse(context.Context) (*net.TCPConn, error) {
	return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
}

// blackhole is a host that never answers.
func blackhole(ctx context.Context) (*net.TCPConn, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}
