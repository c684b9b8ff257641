package dnsguard

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sluicegate/audit"
	"sluicegate/audit/audittest"
	"sluicegate/policy"
)

// testWait is how long a test waits for what must come. It only passes in a test
// that fails.
const testWait = 10 * time.Second

// Profiles of stdYAML.
const (
	std     = "agent/commands"
	blocked = "agent/blocked"
	open    = "agent/open"
	observe = "agent/observe"
)

// stdYAML is the policy of most tests.
const stdYAML = `version: 1
product: agent
surface: local
profiles:
  commands:
    listen: {port: 18101}
    network: allowlist
    allow:
      - {host: api.anthropic.com, id: api}
      - {host: "*.example.com", id: wild}
      - {host: files.pkg.example.net, id: files}
      - {host: cache.corp.example, resolves_to: [10.20.0.0/16], ports: [443], id: cache}
      - {host: localhost, resolves_to: [127.0.0.1, "::1"], ports: [8080], id: local}
      - {host: db.internal, resolves_to: [10.20.0.0/16], ports: [443], id: db}
      - {host: ipv4only.arpa, id: ipv4only}
      - {host: use-application-dns.net, id: canary}
      - {host: 1.0.0.1.in-addr.arpa, id: reverse}
      - {host: "*.corp.example.org", id: corp}
    deny:
      - {host: paste.example.com, id: paste, why: "paste target"}
  blocked: {listen: {port: 18102}, network: blocked}
  open:
    listen: {port: 18103}
    network: open
    deny:
      - {host: evil.test, id: evil}
  observe: {listen: {port: 18104}, network: allowlist, mode: observe}
`

// The log of the daemon can be the recorder, and is asked for its health.
var _ interface {
	Recorder
	Healthy() bool
} = (*audit.Log)(nil)

// world is a guard on loopback: an upstream that does what a test says, a
// recorder, and clients.
type world struct {
	t testing.TB
	*Server
	stub *stub
	rec  *audittest.Recorder

	// Swapped by tests.
	snapshot atomic.Pointer[policy.Snapshot]
	local    atomic.Pointer[policy.LocalSet]
	peer     atomic.Pointer[Peer]

	addr map[string]netip.AddrPort
}

// setup is what a test may change of a world.
type setup struct {
	world    *world
	server   ServerConfig
	resolver Config
}

func newWorld(t testing.TB, change ...func(*setup)) *world {
	t.Helper()
	w := &world{t: t, rec: &audittest.Recorder{}, addr: map[string]netip.AddrPort{}}
	w.stub = newStub(t, records("api.anthropic.com. 300 IN A 160.79.104.10", "api.anthropic.com. 300 IN AAAA 2607:6bc0::10"))
	w.load(stdYAML)
	w.peer.Store(&Peer{UID: 1000, UIDKnown: true, User: "ada", Entitled: true})
	c := setup{
		world: w,
		server: ServerConfig{
			Snapshot: w.snapshot.Load, Local: w.local.Load, Recorder: w.rec, Identifier: w, PolicySource: func() string { return "test" },
		},
		resolver: Config{Upstreams: []string{w.stub.addr.String()}},
	}
	for _, f := range change {
		f(&c)
	}
	if c.server.Resolver == nil {
		r, err := New(c.resolver)
		require.NoError(t, err)
		c.server.Resolver = r
	}
	var err error
	w.Server, err = NewServer(c.server)
	require.NoError(t, err)
	for _, p := range []string{std, blocked, open, observe, "agent/gone"} {
		w.addr[p], err = w.Listen(t.Context(), p, netip.MustParseAddrPort("127.0.0.1:0"))
		require.NoError(t, err)
	}
	w.Start()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testWait)
		defer cancel()
		w.Shutdown(ctx)
		assert.NoError(t, w.rec.Invalid())
	})
	return w
}

// load makes a policy the one of the moment.
func (w *world) load(yaml string) {
	w.t.Helper()
	s, err := policy.Compile([]policy.File{{Name: "agent.yaml", Data: []byte(yaml)}})
	require.NoError(w.t, err)
	w.snapshot.Store(s)
}

// Identify implements Identifier.
func (w *world) Identify(_, _ netip.AddrPort) Peer { return *w.peer.Load() }

// question2 is a query of a client: recursion desired, OPT only if edns is set.
type question2 struct {
	name string
	kind uint16
	edns uint16
}

func (q question2) msg() *dns.Msg {
	m := new(dns.Msg).SetQuestion(dns.Fqdn(q.name), q.kind)
	if q.edns != 0 {
		m.SetEdns0(q.edns, false)
	}
	return m
}

// send sends a packet to a profile over UDP and returns the answer's bytes.
func (w *world) send(profile string, packet []byte) []byte {
	w.t.Helper()
	c := w.dial("udp", profile)
	defer func() { _ = c.Close() }()
	_, err := c.Write(packet)
	require.NoError(w.t, err)
	buf := make([]byte, 1<<16)
	n, err := c.Read(buf)
	require.NoError(w.t, err, "no answer")
	return buf[:n]
}

// sendTCP does the same over TCP, on a connection of its own.
func (w *world) sendTCP(profile string, packet []byte) []byte {
	w.t.Helper()
	c := w.dial("tcp", profile)
	defer func() { _ = c.Close() }()
	_, err := c.Write(frame(packet))
	require.NoError(w.t, err)
	out, err := readFramed(c)
	require.NoError(w.t, err, "no answer")
	return out
}

// dial connects to a profile's listener, with a deadline.
func (w *world) dial(network, profile string) net.Conn {
	w.t.Helper()
	c, err := net.Dial(network, w.addr[profile].String())
	require.NoError(w.t, err)
	require.NoError(w.t, c.SetDeadline(time.Now().Add(testWait)))
	return c
}

// ask asks a profile over UDP.
func (w *world) ask(profile string, m *dns.Msg) *dns.Msg {
	w.t.Helper()
	return w.unpack(w.send(profile, pack1(m)), m)
}

// askTCP asks a profile over TCP.
func (w *world) askTCP(profile string, m *dns.Msg) *dns.Msg {
	w.t.Helper()
	return w.unpack(w.sendTCP(profile, pack1(m)), m)
}

func pack1(m *dns.Msg) []byte { return packed(m)[0] }

// unpack reads an answer and checks what holds for every answer.
func (w *world) unpack(b []byte, to *dns.Msg) *dns.Msg {
	w.t.Helper()
	m := new(dns.Msg)
	require.NoError(w.t, m.Unpack(b))
	assert.Equal(w.t, to.Id, m.Id)
	assert.True(w.t, m.Response)
	assert.Equal(w.t, to.RecursionDesired, m.RecursionDesired)
	assert.Equal(w.t, to.Question, m.Question, "the question is repeated exactly")
	assert.Equal(w.t, to.IsEdns0() != nil, m.IsEdns0() != nil, "OPT if and only if the client sent one")
	assert.False(w.t, m.AuthenticatedData)
	return m
}

// answers3 lists the records of the answer section, "TYPE VALUE".
func answers3(m *dns.Msg) []string {
	var out []string
	for _, rr := range m.Answer {
		value := strings.TrimPrefix(rr.String(), rr.Header().String())
		out = append(out, dns.TypeToString[rr.Header().Rrtype]+" "+value)
	}
	return out
}

// edeOf is the Extended DNS Error of an answer and its text.
func edeOf(m *dns.Msg) (int, string) {
	if opt := m.IsEdns0(); opt != nil {
		for _, o := range opt.Option {
			if e, ok := o.(*dns.EDNS0_EDE); ok {
				return int(e.InfoCode), e.ExtraText
			}
		}
	}
	return 0, ""
}

// soaOf is the SOA of the authority section, nil if there is none.
func soaOf(m *dns.Msg) *dns.SOA {
	for _, rr := range m.Ns {
		if soa, ok := rr.(*dns.SOA); ok {
			return soa
		}
	}
	return nil
}

// reasons are those of the records so far.
func (w *world) reasons() []string {
	var out []string
	for _, e := range w.rec.Events() {
		out = append(out, e.Reason)
	}
	return out
}

// last is the only record, or the newest.
func (w *world) last() audit.Event {
	w.t.Helper()
	all := w.rec.Events()
	require.NotEmpty(w.t, all)
	return all[len(all)-1]
}
