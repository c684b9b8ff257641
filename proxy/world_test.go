package proxy

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"sluicegate/audit"
	"sluicegate/policy"
)

// patience is how long a test waits for what must come. It only passes in a
// test that fails.
const patience = 10 * time.Second

// Profiles of stdPolicy.
const (
	std  = "agent/std"  // the usual allowlist
	any_ = "agent/any"  // everything public
	twin = "agent/twin" // the same as std, on another listener
)

// stdYAML is the policy of most tests and of the adversarial cases. Its tunnels
// may carry anything; what they must begin with otherwise is tested with strict. Names
// resolve by the world's resolver, see newWorld.
func stdYAML() string {
	// Ids are unique over all profiles: those of twin end in a 2.
	rules := func(suffix string) string {
		return strings.ReplaceAll(`
    allow:
      - {host: allowed.test, id: allowed#, tls: any}
      - {host: other.test, id: other#, tls: any}
      - {host: "*.wild.test", id: wild#, tls: any}
      - {host: ports.test, ports: [80, 443, 8080], id: ports#, tls: any}
      - {host: lan.test, resolves_to: [10.0.0.0/8], ports: [80, 443], id: lan#, tls: any}
    deny:
      - {host: blocked.wild.test, id: blocked#}
`, "#", suffix)
	}
	return "version: 1\nproduct: agent\nprofiles:\n" +
		"  std:\n    listen: {port: 18001}" + rules("") +
		"  twin:\n    listen: {port: 18002}" + rules("2") +
		"  any:\n    listen: {port: 18003}\n    network: open\n    allow:\n      - {host: allowed.test, id: any-allowed, tls: any}\n"
}

// Addresses of the fake internet.
const (
	allowedIP = "93.184.216.34"
	otherIP   = "93.184.216.35"
)

// world is a gate on loopback with everything around it faked: who connects,
// what resolves, what is dialled, where records go.
type world struct {
	t testing.TB
	*Server
	rec   *recorder
	names *names
	net   *network

	// Swapped by tests.
	snapshot atomic.Pointer[policy.Snapshot]
	local    atomic.Pointer[policy.LocalSet]
	peer     atomic.Pointer[Peer]
	// boom is called when the gate asks what is known of this machine.
	boom atomic.Pointer[func()]

	addr    map[string]netip.AddrPort
	clients []*client
	stopped bool
}

// newWorld starts a gate with the usual policy; change may alter the rest.
func newWorld(t testing.TB, change ...func(*Config)) *world {
	t.Helper()
	leaks := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, leaks) })
	w := &world{
		t: t, rec: newRecorder(), names: &names{t: t}, net: &network{t: t},
		addr: map[string]netip.AddrPort{},
	}
	w.load(stdYAML())
	w.peer.Store(&Peer{UID: 1000, UIDKnown: true, User: "dev", Entitled: true})
	for _, name := range []string{"allowed.test", "ports.test", "a.wild.test"} {
		w.names.set(name, allowedIP)
	}
	w.names.set("other.test", otherIP)
	cfg := Config{
		Snapshot: w.snapshot.Load, Local: w.localSet,
		Recorder: w.rec, Resolver: w.names, Identifier: w,
		PolicySource: func() string { return "test" }, testOnlyDial: w.net.dial,
	}
	for _, c := range change {
		c(&cfg)
	}
	var err error
	w.Server, err = New(cfg)
	require.NoError(t, err)
	t.Cleanup(w.shutdown)
	for _, profile := range []string{std, any_, twin} {
		w.listen(profile)
	}
	w.Start()
	return w
}

// load makes yaml the policy from now on.
func (w *world) load(yaml string) {
	w.t.Helper()
	s, err := policy.Compile([]policy.File{{Name: "agent.yaml", Data: []byte(yaml)}})
	require.NoError(w.t, err)
	w.snapshot.Store(s)
}

func (w *world) localSet() *policy.LocalSet {
	if fn := w.boom.Load(); fn != nil {
		(*fn)()
	}
	return w.local.Load()
}

// Identify implements Identifier.
func (w *world) Identify(_, _ netip.AddrPort) Peer { return *w.peer.Load() }

func (w *world) listen(profile string) {
	w.t.Helper()
	addr, err := w.Listen(w.t.Context(), profile, netip.MustParseAddrPort("127.0.0.1:0"))
	require.NoError(w.t, err)
	w.addr[profile] = addr
}

// shutdown ends the gate at once, however the test went.
func (w *world) shutdown() {
	w.hangUp()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	w.Shutdown(ctx)
	w.stopped = true
	w.net.close()
}

// hangUp closes all clients.
func (w *world) hangUp() {
	for _, c := range w.clients {
		_ = c.Close()
	}
}

// finish lets the clients leave and the gate come to rest, so that no record is
// still to come.
func (w *world) finish() {
	w.t.Helper()
	if w.stopped {
		return
	}
	w.hangUp()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	assert.Zero(w.t, w.Shutdown(ctx), "something was still open")
	w.stopped = true
	assert.Zero(w.t, w.Stats().Connections, "places were not given back")
	assert.NoError(w.t, w.rec.Invalid())
	assert.Zero(w.t, w.profiles[std].conns.Load(), "places of a profile were not given back")
}

// wantRecords finishes and compares all records, see brief.
func (w *world) wantRecords(want ...string) {
	w.t.Helper()
	w.finish()
	assert.Equal(w.t, want, w.rec.briefs())
}

// wantRefused finishes and wants one record, no look-up and no dial.
func (w *world) wantRefused(record string) {
	w.t.Helper()
	w.wantRecords(record)
	w.wantQueries()
	w.wantDials()
}

func (w *world) wantQueries(want ...string) {
	w.t.Helper()
	assert.Equal(w.t, want, w.names.asked(), "look-ups")
}

func (w *world) wantDials(want ...string) {
	w.t.Helper()
	assert.Equal(w.t, want, w.net.dialled(), "dials")
}

// wait waits until ok.
func (w *world) wait(what string, ok func() bool) {
	w.t.Helper()
	require.Eventually(w.t, ok, patience, time.Millisecond, what)
}

// dial connects a client to the listener of a profile.
func (w *world) dial(profile string) *client {
	w.t.Helper()
	conn, err := net.Dial("tcp", w.addr[profile].String())
	require.NoError(w.t, err)
	c := newClient(w.t, conn.(*net.TCPConn))
	w.clients = append(w.clients, c)
	return c
}

// flow returns the only flow there is.
func (w *world) flow() *flow {
	w.t.Helper()
	w.wait("a flow", func() bool { return w.flows.len() == 1 })
	var found *flow
	w.flows.each(func(f *flow) { found = f })
	return found
}

// brief is a record in one line: event, decision, reason, destination, rule and,
// of an end, who and why.
func brief(e audit.Event) string {
	s := fmt.Sprintf("%s %s %s", e.Event, e.Decision, e.Reason)
	if e.Would != "" {
		s += " would=" + e.Would
	}
	dest := "-"
	if e.Dest != "" {
		dest = net.JoinHostPort(e.Dest, fmt.Sprint(e.Port))
	}
	s += " " + dest
	if e.Rule != nil {
		s += " [" + e.Rule.ID + "]"
	}
	if e.End != nil {
		s += " " + e.End.Who + "|" + e.End.Why
	}
	return s
}

func briefs(events []audit.Event) []string {
	var out []string
	for _, e := range events {
		out = append(out, brief(e))
	}
	return out
}

// only returns the only record of that kind.
func (w *world) only(name audit.Name) audit.Event {
	w.t.Helper()
	events := slices.DeleteFunc(w.rec.Events(), func(e audit.Event) bool { return e.Event != name })
	require.Len(w.t, events, 1, "records %s in %s", name, strings.Join(w.rec.briefs(), "; "))
	return events[0]
}
