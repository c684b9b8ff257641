package dnsguard

import (
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"github.com/miekg/dns"
	"github.com/stretchr/testify/require"
)

// asked is one query that reached the stub.
type asked struct {
	msg    *dns.Msg
	raw    []byte
	stream bool
}

// name is the question as the stub saw it, "NAME TYPE".
func (a asked) name() string {
	q := a.msg.Question[0]
	return q.Name + " " + dns.TypeToString[q.Qtype]
}

// script decides what the stub sends back: any number of messages, as they are.
type script func(asked) [][]byte

// stub is an upstream on loopback, UDP and TCP on one port.
type stub struct {
	t    testing.TB
	addr netip.AddrPort

	mu     sync.Mutex
	script script
	seen   []asked
	conns  []net.Conn

	wg sync.WaitGroup
}

func newStub(t testing.TB, s script) *stub {
	t.Helper()
	tcp, udp, err := listenBoth(t.Context(), netip.MustParseAddrPort("127.0.0.1:0"))
	require.NoError(t, err)
	st := &stub{t: t, addr: addrPort(tcp.Addr()), script: s}
	st.wg.Go(func() { st.serveUDP(udp) })
	st.wg.Go(func() { st.serveTCP(tcp) })
	t.Cleanup(func() {
		_, _ = tcp.Close(), udp.Close()
		st.mu.Lock()
		for _, c := range st.conns {
			_ = c.Close()
		}
		st.mu.Unlock()
		st.wg.Wait()
	})
	return st
}

func (s *stub) serveUDP(c *net.UDPConn) {
	for {
		buf := make([]byte, 4096)
		n, from, err := c.ReadFromUDPAddrPort(buf)
		if err != nil {
			return
		}
		s.wg.Go(func() {
			for _, m := range s.answer(buf[:n], false) {
				_, _ = c.WriteToUDPAddrPort(m, from)
			}
		})
	}
}

func (s *stub) serveTCP(l *net.TCPListener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		s.conns = append(s.conns, c)
		s.mu.Unlock()
		s.wg.Go(func() {
			defer func() { _ = c.Close() }()
			raw, err := readFramed(c)
			if err != nil {
				return
			}
			for _, m := range s.answer(raw, true) {
				_, _ = c.Write(frame(m))
			}
			_, _ = readFramed(c) // the client closes
		})
	}
}

func (s *stub) answer(raw []byte, stream bool) [][]byte {
	a := asked{msg: new(dns.Msg), raw: raw, stream: stream}
	if err := a.msg.Unpack(raw); err != nil || len(a.msg.Question) != 1 {
		s.t.Errorf("the upstream got no query: %x", raw)
		return nil
	}
	s.mu.Lock()
	s.seen = append(s.seen, a)
	do := s.script
	s.mu.Unlock()
	return do(a)
}

// does changes what the stub answers from now on.
func (s *stub) does(next script) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.script = next
}

// queries are the questions that came, "NAME TYPE", in order.
func (s *stub) queries() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for _, a := range s.seen {
		out = append(out, a.name())
	}
	return out
}

func (s *stub) all() []asked {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.seen)
}

func frame(m []byte) []byte {
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(m))), m...)
}

func readFramed(c net.Conn) ([]byte, error) {
	var size [2]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return nil, err
	}
	m := make([]byte, binary.BigEndian.Uint16(size[:]))
	_, err := io.ReadFull(c, m)
	return m, err
}

// Scripts.

// records answers with these records, in zone file form, in the answer section
// if they are of the question's type or aliases. Too long a datagram is cut.
func records(rrs ...string) script {
	parsed := parseRecords(rrs)
	return func(a asked) [][]byte {
		m := reply2(a)
		for _, rr := range parsed {
			switch t := rr.Header().Rrtype; t {
			case a.msg.Question[0].Qtype, dns.TypeCNAME, dns.TypeDNAME:
				m.Answer = append(m.Answer, rr)
			case dns.TypeSOA:
				m.Ns = append(m.Ns, rr)
			}
		}
		m.Compress = a.stream
		if !a.stream {
			m.Truncate(maxUDP)
		}
		return packed(m)
	}
}

func parseRecords(rrs []string) []dns.RR {
	out := make([]dns.RR, 0, len(rrs))
	for _, text := range rrs {
		rr, err := dns.NewRR(text)
		if err != nil {
			panic(err)
		}
		out = append(out, rr)
	}
	return out
}

// reply2 is an empty answer to what was asked.
func reply2(a asked) *dns.Msg {
	m := new(dns.Msg).SetReply(a.msg)
	m.RecursionAvailable = true
	return m
}

func packed(m *dns.Msg) [][]byte {
	b, err := m.Pack()
	if err != nil {
		panic(err)
	}
	return [][]byte{b}
}

func rcode(code int, rrs ...string) script {
	authority := parseRecords(rrs)
	return func(a asked) [][]byte {
		m := reply2(a)
		m.Rcode, m.Ns = code, authority
		return packed(m)
	}
}

func silence(asked) [][]byte { return nil }

// raw sends the answer of s after change.
func raw(s script, change func([]byte) []byte) script {
	return func(a asked) [][]byte {
		out := s(a)
		for i := range out {
			out[i] = change(out[i])
		}
		return out
	}
}

// inTurn sends what every script says, one after the other.
func inTurn(scripts ...script) script {
	return func(a asked) [][]byte {
		var out [][]byte
		for _, s := range scripts {
			out = append(out, s(a)...)
		}
		return out
	}
}
