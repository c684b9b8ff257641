package dnsguard

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/miekg/dns"

	"sluicegate/audit"
)

// discard is a recorder that costs nothing.
type discard struct{}

func (discard) Record(context.Context, audit.Event) error { return nil }

// BenchmarkDenied is a query for a denied name, over a socket, one after the
// other.
func BenchmarkDenied(b *testing.B) { benchmarkSocket(b, "evil.test") }

// BenchmarkAllowedStub is one for an allowed name, with an upstream on loopback.
func BenchmarkAllowedStub(b *testing.B) { benchmarkSocket(b, "api.anthropic.com") }

func benchmarkSocket(b *testing.B, name string) {
	w := newWorld(b, func(s *setup) { s.server.Recorder = discard{} })
	answer := records("api.anthropic.com. 300 IN A 160.79.104.10")
	w.stub.does(answer)
	c, err := net.Dial("udp", w.addr[std].String())
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	packet, buf := pack1(qe(name, dns.TypeA).msg()), make([]byte, 4096)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Write(packet); err != nil {
			b.Fatal(err)
		}
		if _, err := c.Read(buf); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkDeniedParallel is the same with many clients.
func BenchmarkDeniedParallel(b *testing.B) {
	w := newWorld(b, func(s *setup) { s.server.Recorder = discard{} })
	packet := pack1(qe("evil.test", dns.TypeA).msg())
	b.ReportAllocs()
	b.SetParallelism(8)
	b.RunParallel(func(pb *testing.PB) {
		c, err := net.Dial("udp", w.addr[std].String())
		if err != nil {
			b.Error(err)
			return
		}
		defer func() { _ = c.Close() }()
		buf := make([]byte, 4096)
		for pb.Next() {
			_, err = c.Write(packet)
			if err == nil {
				_, err = c.Read(buf)
			}
			if err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// BenchmarkServeDenied is the handler alone, without sockets.
func BenchmarkServeDenied(b *testing.B) { benchmarkServe(b, "evil.test") }

// BenchmarkServeAllowed is the handler with an upstream that answers at once.
func BenchmarkServeAllowed(b *testing.B) { benchmarkServe(b, "api.anthropic.com") }

func benchmarkServe(b *testing.B, name string) {
	answer := Answer{Addrs: []netip.Addr{netip.MustParseAddr("160.79.104.10")}, TTL: time.Minute}
	w := newWorld(b, func(s *setup) {
		s.server.Recorder = discard{}
		s.resolver.testOnlyExchange = func(context.Context, netip.AddrPort, question, func(error)) (Answer, error) { return answer, nil }
	})
	p := w.profiles[std]
	c := client{addr: netip.MustParseAddrPort("127.0.0.1:1234"), peer: Peer{Entitled: true}}
	packet := pack1(qe(name, dns.TypeA).msg())
	b.ReportAllocs()
	for b.Loop() {
		if out, _ := p.serve(b.Context(), c, packet, false); out == nil {
			b.Fatal("no answer")
		}
	}
}

// BenchmarkReadAnswer reads an answer with a chain and four addresses.
func BenchmarkReadAnswer(b *testing.B) {
	m := q("a.example", dns.TypeA).msg()
	msg := records("a.example. 60 IN CNAME b.test.", "b.test. 60 IN A 1.1.1.1", "b.test. 60 IN A 1.1.1.2",
		"b.test. 60 IN A 1.1.1.3", "b.test. 60 IN A 1.1.1.4")(asked{msg: m})[0]
	b.ReportAllocs()
	for b.Loop() {
		if a, err := readAnswer(msg, aQuestion); err != nil || len(a.Addrs) != 4 {
			b.Fatal(a, err)
		}
	}
}
