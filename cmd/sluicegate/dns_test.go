//go:build unix

package main_test

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/miekg/dns"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// dnsServer answers what it was told to and remembers what it was asked. A name
// it was told nothing about does not exist.
type dnsServer struct {
	addr string // the same for UDP and TCP

	mu      sync.Mutex
	answers map[string][]netip.Addr
	asked   []string // names, each once
}

func newDNS(t *testing.T) *dnsServer {
	t.Helper()
	s := &dnsServer{answers: map[string][]netip.Addr{}}
	packets, streams := listenDNS(t)
	s.addr = packets.LocalAddr().String()
	for _, server := range []*dns.Server{
		{PacketConn: packets, Handler: s},
		{Listener: streams, Handler: s},
	} {
		ready, done := make(chan struct{}), make(chan error, 1)
		server.NotifyStartedFunc = func() { close(ready) }
		go func() { done <- server.ActivateAndServe() }()
		<-ready
		t.Cleanup(func() {
			assert.NoError(t, server.Shutdown())
			assert.NoError(t, <-done)
		})
	}
	return s
}

// listenDNS finds a port that is free for both protocols.
func listenDNS(t *testing.T) (net.PacketConn, net.Listener) {
	t.Helper()
	var last error
	for range 20 {
		packets, err := net.ListenPacket("udp4", "127.0.0.1:0")
		require.NoError(t, err)
		streams, err := net.Listen("tcp4", packets.LocalAddr().String())
		if err == nil {
			return packets, streams
		}
		last = err
		require.NoError(t, packets.Close())
	}
	require.NoError(t, last)
	return nil, nil
}

// answer sets the addresses of a name.
func (s *dnsServer) answer(name string, addrs ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers[name] = nil
	for _, a := range addrs {
		s.answers[name] = append(s.answers[name], netip.MustParseAddr(a))
	}
}

// names are the names that were asked for, in order of the first time.
func (s *dnsServer) names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked)
}

// ServeDNS implements dns.Handler.
func (s *dnsServer) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := new(dns.Msg).SetReply(q)
	m.RecursionAvailable = true
	question := q.Question[0]
	name := strings.ToLower(strings.TrimSuffix(question.Name, "."))
	if !slices.Contains(s.asked, name) {
		s.asked = append(s.asked, name)
	}
	addrs, known := s.answers[name]
	if !known {
		m.Rcode = dns.RcodeNameError
	}
	for _, a := range addrs {
		head := dns.RR_Header{Name: question.Name, Rrtype: question.Qtype, Class: dns.ClassINET, Ttl: 5}
		switch {
		case a.Is4() && question.Qtype == dns.TypeA:
			m.Answer = append(m.Answer, &dns.A{Hdr: head, A: a.AsSlice()})
		case a.Is6() && question.Qtype == dns.TypeAAAA:
			m.Answer = append(m.Answer, &dns.AAAA{Hdr: head, AAAA: a.AsSlice()})
		}
	}
	_ = w.WriteMsg(m) // whoever asked may have gone
}
