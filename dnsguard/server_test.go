package dnsguard

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sluicegate/audit"
	"sluicegate/policy"
)

func TestNewServerWantsItsFields(t *testing.T) {
	_, err := NewServer(ServerConfig{})
	assert.ErrorContains(t, err, "required")
}

func TestListen(t *testing.T) {
	w := newWorld(t)
	for _, addr := range []string{"0.0.0.0:0", "[::]:0", "192.0.2.1:53", "[::ffff:0.0.0.0]:0"} {
		_, err := w.Listen(t.Context(), std, netip.MustParseAddrPort(addr))
		assert.ErrorContains(t, err, "only loopback", addr)
	}
	_, err := w.Listen(t.Context(), std, w.addr[std])
	assert.Error(t, err, "the port is taken")
	assert.Contains(t, w.Addresses(), w.addr[std])

	six, err := w.Listen(t.Context(), std, netip.MustParseAddrPort("[::1]:0"))
	if err == nil {
		w.addr["six"] = six
		assert.Equal(t, rcodeNXDomain, w.ask("six", q("evil.test", dns.TypeA).msg()).Rcode)
		assert.Equal(t, rcodeNXDomain, w.askTCP("six", q("evil.test", dns.TypeA).msg()).Rcode)
	}

	late, err := w.Listen(t.Context(), std, netip.MustParseAddrPort("127.0.0.1:0"))
	require.NoError(t, err)
	w.addr["late"] = late
	assert.Equal(t, rcodeNXDomain, w.ask("late", q("evil.test", dns.TypeA).msg()).Rcode, "a listener that came after the start")
	w.Unlisten(late)
	w.Unlisten(late) // it is gone: nothing happens
	assert.NotContains(t, w.Addresses(), late)
	again, err := w.Listen(t.Context(), std, late)
	require.NoError(t, err, "both sockets are free again")
	w.Unlisten(again)

	w.Shutdown(t.Context())
	_, err = w.Listen(t.Context(), std, netip.MustParseAddrPort("127.0.0.1:0"))
	assert.ErrorIs(t, err, net.ErrClosed)
}

// A server that was never started has sockets to close and nothing to wait for.
func TestShutdownBeforeStart(t *testing.T) {
	w := newWorld(t)
	s, err := NewServer(w.cfg)
	require.NoError(t, err)
	addr, err := s.Listen(t.Context(), std, netip.MustParseAddrPort("127.0.0.1:0"))
	require.NoError(t, err)
	s.Unlisten(addr)
	addr, err = s.Listen(t.Context(), std, addr)
	require.NoError(t, err)
	s.Shutdown(t.Context())
	s.Start() // too late
	_, err = net.Dial("tcp", addr.String())
	assert.Error(t, err)
}

// 70: what one profile may know another one may not.
func TestCatalogue70_ProfilesAreSeparate(t *testing.T) {
	w := newWorld(t)
	m := q("api.anthropic.com", dns.TypeA).msg()
	assert.Len(t, w.ask(std, m).Answer, 1)
	assert.Equal(t, rcodeNXDomain, w.ask(blocked, m).Rcode)
	assert.Equal(t, rcodeNXDomain, w.ask("agent/gone", m).Rcode)
}

// 98: no policy denies everything.
func TestCatalogue98_NoPolicy(t *testing.T) {
	w := newWorld(t)
	w.snapshot.Store(nil)
	for _, name := range []string{"api.anthropic.com", "use-application-dns.net", "resolver.arpa", ".", "localhost"} {
		got := w.ask(std, qe(name, dns.TypeA).msg())
		assert.Equal(t, rcodeNXDomain, got.Rcode, name)
		ede, _ := edeOf(got)
		assert.Equal(t, 14, ede)
		assert.Equal(t, "no_policy", w.last().Reason)
		assert.Equal(t, "unknown", w.last().Product)
	}
	assert.Empty(t, w.stub.queries())
}

func TestIdentity(t *testing.T) {
	w := newWorld(t)
	w.ask(std, q("evil.test", dns.TypeA).msg())
	udp := w.last().Client
	assert.Equal(t, "none", udp.Attribution)
	assert.Nil(t, udp.UID)
	w.askTCP(std, q("evil.test", dns.TypeA).msg())
	tcp := w.last()
	assert.Equal(t, "verified", tcp.Client.Attribution)
	assert.Equal(t, uint32(1000), *tcp.Client.UID)
	assert.Equal(t, "ada", tcp.User)

	w.peer.Store(&Peer{UID: 1001, UIDKnown: true})
	for _, name := range []string{"api.anthropic.com", "example.com", "mask.icloud.com"} {
		got := w.askTCP(std, qe(name, dns.TypeA).msg())
		assert.Equal(t, rcodeNXDomain, got.Rcode, "also of an ancestor: who may not ask learns nothing")
		ede, _ := edeOf(got)
		assert.Equal(t, 18, ede)
		assert.Equal(t, "bad_identity", w.last().Reason)
	}
	assert.Empty(t, w.stub.queries())
}

// packetPeers also knows senders of datagrams.
type packetPeers struct{ *world }

func (p packetPeers) IdentifyPacket(_, _ netip.AddrPort) Peer { return *p.peer.Load() }

func TestIdentityOfDatagrams(t *testing.T) {
	w := newWorld(t, func(s *setup) { s.server.Identifier = packetPeers{s.world} })
	w.peer.Store(&Peer{UID: 1001, UIDKnown: true})
	got := w.ask(std, q("api.anthropic.com", dns.TypeA).msg())
	assert.Equal(t, rcodeNXDomain, got.Rcode)
	assert.Equal(t, "bad_identity", w.last().Reason)
	assert.Equal(t, uint32(1001), *w.last().Client.UID)
}

func TestObserve(t *testing.T) {
	w := newWorld(t)
	w.stub.does(records("new.test. 60 IN A 1.1.1.1"))
	assert.Equal(t, []string{"A 1.1.1.1"}, answers3(w.ask(observe, q("new.test", dns.TypeA).msg())))
	e := w.last()
	assert.Equal(t, audit.Name("dns.observed"), e.Event)
	assert.Equal(t, "would_deny", e.Decision)
	assert.Equal(t, "observe", e.Reason)
	assert.Equal(t, "not_listed", e.Would)
	assert.Equal(t, "observe", e.Mode)

	// The guard is never relaxed; both lines belong to one flow.
	w.stub.does(records("new.test. 60 IN A 10.0.0.1"))
	assert.Empty(t, w.ask(observe, q("new.test", dns.TypeA).msg()).Answer)
	all := w.rec.Events()[1:]
	require.Len(t, all, 2)
	assert.Equal(t, "dest_private", all[1].Reason)
	assert.Equal(t, all[0].Flow, all[1].Flow)
	assert.NotEmpty(t, all[0].Flow)
	w.ask(observe, q("printer", dns.TypeA).msg())
	assert.Equal(t, "local_name", w.last().Reason)
}

// sick is a recorder that says of itself that it can't write.
type sick struct{ Recorder }

func (sick) Healthy() bool { return false }

func TestRecordsThatCanNotBeWritten(t *testing.T) {
	w := newWorld(t)
	w.rec.FailWith(errors.New("disk full"))
	for _, name := range []string{"evil.test", "printer", "example.com"} {
		got := w.ask(std, qe(name, dns.TypeA).msg())
		assert.Equal(t, rcodeServFail, got.Rcode, "no refusal without its record: %s", name)
	}
	w.stub.does(records("new.test. 60 IN A 1.1.1.1"))
	assert.Equal(t, rcodeServFail, w.ask(observe, q("new.test", dns.TypeA).msg()).Rcode)
	assert.Empty(t, w.stub.queries(), "not even asked")

	w = newWorld(t, func(s *setup) { s.server.Recorder = sick{s.server.Recorder} })
	assert.Equal(t, rcodeServFail, w.ask(std, q("api.anthropic.com", dns.TypeA).msg()).Rcode)
	assert.Equal(t, "audit_unavailable", w.last().Reason)
	assert.Empty(t, w.stub.queries())

	w = newWorld(t, func(s *setup) { s.server.Recorder, s.server.AllowUnrecorded = sick{s.server.Recorder}, true })
	assert.Len(t, w.ask(std, q("api.anthropic.com", dns.TypeA).msg()).Answer, 1)
}

func TestHideReason(t *testing.T) {
	w := newWorld(t, func(s *setup) { s.server.HideReason = true })
	_, text := edeOf(w.ask(std, qe("evil.test", dns.TypeA).msg()))
	assert.Equal(t, w.last().ID, text)
}

// faulty panics for one name.
type faulty struct{ Recorder }

func (f faulty) Record(ctx context.Context, e audit.Event) error {
	if e.Dest == "panic.test" && e.Reason != "internal" || e.Dest == "worse.test" {
		panic("a fault")
	}
	return f.Recorder.Record(ctx, e)
}

// 92: a fault of ours is one query's and nobody else's.
func TestCatalogue92_Panic(t *testing.T) {
	w := newWorld(t, func(s *setup) { s.server.Recorder = faulty{s.server.Recorder} })
	for _, ask := range []func(string, *dns.Msg) *dns.Msg{w.ask, w.askTCP} {
		assert.Equal(t, rcodeServFail, ask(std, q("panic.test", dns.TypeA).msg()).Rcode)
		assert.Equal(t, "internal", w.last().Reason)
	}
	h, _ := parseHeader(w.send(std, pack1(q("worse.test", dns.TypeA).msg())))
	assert.Equal(t, rcodeServFail, h.rcode(), "also when the record of it fails")
	assert.Equal(t, rcodeNXDomain, w.ask(std, q("evil.test", dns.TypeA).msg()).Rcode)
}

// 99: every answer is of one policy, whichever.
func TestCatalogue99_ReloadUnderLoad(t *testing.T) {
	w := newWorld(t)
	w.stub.does(records("a.example.com. 60 IN A 1.1.1.1"))
	other := strings.ReplaceAll(stdYAML, `"*.example.com"`, `"*.example.org"`)
	a, err := policy.Compile([]policy.File{{Name: "agent.yaml", Data: []byte(stdYAML)}})
	require.NoError(t, err)
	b, err := policy.Compile([]policy.File{{Name: "agent.yaml", Data: []byte(other)}})
	require.NoError(t, err)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				got := w.ask(std, q("a.example.com", dns.TypeA).msg())
				allowed := len(got.Answer) == 1 && got.Rcode == rcodeNoError
				denied := len(got.Answer) == 0 && got.Rcode == rcodeNXDomain
				assert.True(t, allowed || denied, got.String())
			}
		})
	}
	for i := range 200 {
		w.snapshot.Store(map[bool]*policy.Snapshot{true: a, false: b}[i%2 == 0])
	}
	wg.Wait()
	for _, e := range w.rec.Events() {
		assert.Equal(t, b.Digest(), e.Policy.Digest, "who refuses it is the policy without the rule")
	}
}

// 62: an answer that fits only compressed is sent whole.
func TestCatalogue62_Compression(t *testing.T) {
	w := newWorld(t)
	var rrs []string
	name := strings.Repeat("long-label-", 3) + "x.example.com."
	for i := range 20 {
		rrs = append(rrs, fmt.Sprintf("%s 60 IN A 8.8.8.%d", name, i))
	}
	w.stub.does(records(rrs...))
	m := q(name, dns.TypeA).msg()
	b := w.send(std, pack1(m))
	got := w.unpack(b, m)
	assert.False(t, got.Truncated)
	assert.Len(t, got.Answer, len(rrs))
	assert.LessOrEqual(t, len(b), minUDP)
	got.Compress = false
	assert.Greater(t, got.Len(), minUDP)
}

func TestShutdownEndsWhatIsUnderWay(t *testing.T) {
	reached := make(chan struct{}, 8)
	w := newWorld(t)
	w.stub.does(func(asked) [][]byte { reached <- struct{}{}; return nil })
	c := w.dial("tcp", std)
	defer func() { _ = c.Close() }()
	_, err := c.Write(frame(pack1(q("api.anthropic.com", dns.TypeA).msg())))
	require.NoError(t, err)
	idle := w.dial("tcp", std)
	defer func() { _ = idle.Close() }()
	<-reached
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	w.Shutdown(ctx)
	w.Shutdown(ctx) // the second time there is nothing to do
	assert.Zero(t, w.Stats().Connections)
	_, err = idle.Read(make([]byte, 1))
	assert.Error(t, err)
}
