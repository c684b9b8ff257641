package dnsguard

import (
	"context"
	"encoding/binary"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"sluicegate/audit/audittest"
	"sluicegate/policy"
)

// FuzzQuery gives any packet to the handler: it does not panic, answers with at
// most one packet of the right size, asks the upstream only for names the policy
// allows, and records every refusal.
func FuzzQuery(f *testing.F) {
	for _, m := range []*dns.Msg{
		q("api.anthropic.com", dns.TypeA).msg(), qe("A.example.COM", dns.TypeAAAA).msg(), qe("evil.test", dns.TypeTXT).msg(),
		q("printer", dns.TypeA).msg(), chaos(), q(".", dns.TypeNS).msg(), q("example.com", dns.TypeHTTPS).msg(),
	} {
		f.Add(pack1(m), false)
	}
	f.Add([]byte("\x12\x34\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00"), true)
	f.Add([]byte("\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x09x.example\x03com\x00\x00\x01\x00\x01"), false)
	snapshot, err := policy.Compile([]policy.File{{Name: "agent.yaml", Data: []byte(stdYAML)}})
	if err != nil {
		f.Fatal(err)
	}
	var asked atomic.Pointer[string]
	ask := func(_ context.Context, _ netip.AddrPort, t question, _ func(error)) (Answer, error) {
		asked.Store(&t.name)
		addr := netip.MustParseAddr("1.1.1.1")
		if t.kind == TypeAAAA {
			addr = netip.MustParseAddr("2606:4700::1111")
		}
		return Answer{Addrs: []netip.Addr{addr}, TTL: time.Minute}, nil
	}
	resolver, err := New(Config{Upstreams: []string{"192.0.2.1"}, testOnlyExchange: ask})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, packet []byte, stream bool) {
		if h, ok := parseHeader(packet); !ok || h.flags&flagQR != 0 {
			return // the sockets pass these over
		}
		asked.Store(nil)
		rec := &audittest.Recorder{}
		s, err := NewServer(ServerConfig{
			Snapshot: func() *policy.Snapshot { return snapshot }, Recorder: rec, Resolver: resolver, Identifier: anybody{},
		})
		if err != nil {
			t.Fatal(err)
		}
		c := client{addr: netip.MustParseAddrPort("127.0.0.1:1234"), peer: Peer{Entitled: true}, stream: stream}
		out, _ := s.profile(std).serve(t.Context(), c, packet, false)
		if len(out) < headerLen || binary.BigEndian.Uint16(out) != binary.BigEndian.Uint16(packet) || out[2]&0x80 == 0 {
			t.Fatalf("no answer: %x", out)
		}
		if !stream && len(out) > maxUDP {
			t.Fatalf("%d bytes over UDP", len(out))
		}
		m := new(dns.Msg)
		if err := m.Unpack(out); err != nil {
			t.Fatalf("the answer can't be read: %v: %x", err, out)
		}
		events := rec.Events()
		for _, e := range events {
			if e.Reason == "internal" {
				t.Fatalf("a fault: %+v", e)
			}
		}
		name := asked.Load()
		refused := m.Rcode != rcodeNoError || len(m.Answer) == 0 && (name != nil || !strings.EqualFold(m.Question[0].Name, ipv4Only+"."))
		switch {
		case len(events) > 1, refused != (len(events) == 1):
			t.Fatalf("%d records for %s", len(events), m)
		case name == nil:
		case refused:
			t.Fatalf("asked for %s and refused", *name)
		default:
			d, err := policy.ParseHostPort(*name, 53)
			if err != nil {
				t.Fatal(err)
			}
			verdict := snapshot.Decide(policy.Request{Profile: std, Entitled: true, Destination: d, Proto: policy.ProtoDNS})
			if !verdict.Allowed() || !strings.EqualFold(m.Question[0].Name, *name+".") {
				t.Fatalf("asked for %s, which is %s, for a question about %s", *name, verdict.Reason, m.Question[0].Name)
			}
		}
	})
}

// anybody may ask.
type anybody struct{}

func (anybody) Identify(_, _ netip.AddrPort) Peer { return Peer{Entitled: true} }

// FuzzAnswer reads any packet as an upstream's: it does not panic, and what it
// takes is bounded and on the chain from the name.
func FuzzAnswer(f *testing.F) {
	m := q("a.example", dns.TypeA).msg()
	for _, s := range []script{
		records("a.example. 60 IN A 1.1.1.1"), records("a.example. 60 IN CNAME b.test.", "b.test. 60 IN A 1.1.1.1"),
		records("example. 60 IN DNAME test.", "a.test. 60 IN A 1.1.1.1"), rcode(rcodeNXDomain, "example. 60 IN SOA ns. m. 1 2 3 4 60"),
		records("a.example. 60 IN CNAME a.example."), rcode(rcodeRefused),
	} {
		f.Add(s(asked{msg: m, stream: true})[0], true)
		f.Add(s(asked{msg: m})[0], false)
	}
	f.Fuzz(func(t *testing.T, msg []byte, matched bool) {
		id := m.Id
		if matched && len(msg) >= headerLen {
			id = binary.BigEndian.Uint16(msg)
		}
		if !answers(msg, id, aQuestion) {
			return
		}
		a, err := readReply(msg, aQuestion)
		if err != nil {
			if len(a.Addrs)+len(a.Chain) > 0 {
				t.Fatalf("an answer and an error: %+v, %v", a, err)
			}
			if reasonOf(classify(err)) == "" {
				t.Fatalf("an error without a reason: %v", err)
			}
			return
		}
		if len(a.Chain) > maxChain || a.TTL < 0 || a.NoName && len(a.Addrs) > 0 {
			t.Fatalf("%+v", a)
		}
		for _, addr := range a.Addrs {
			if !addr.IsValid() || addr.Is4In6() {
				t.Fatalf("%v", addr)
			}
		}
		for _, name := range a.Chain {
			if _, err := policy.ParseHostPort(name, 53); err != nil {
				t.Fatalf("%q is no canonical name", name)
			}
		}
		query := query{name: []byte(aQuestion.wire), kind: typeA, class: classIN, asked: true}
		r := &reply{chain: a.Chain, addrs: a.Addrs, ttl: a.TTL}
		if out, err := packReply(&query, r, minUDP); err != nil || len(out) > minUDP {
			t.Fatalf("it can't be passed on: %v", err)
		}
	})
}
