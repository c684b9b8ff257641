package dnsguard

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// Bounds of the sockets.
const (
	// maxQuery is the longest query that is read. Longer ones are no queries:
	// one with padding has some hundred bytes (RFC 8467).
	maxQuery = 4096
	// writeTime is how long a client may leave an answer unread.
	writeTime = 2 * time.Second
	// pause is the wait after a failed accept or read.
	pause = 50 * time.Millisecond
)

// binding is one bound address of a profile. The library runs its loops: it
// reads, starts a goroutine for each datagram and connection, and waits for them
// at the end. It is shown the header alone, without counts, so that it parses
// nothing of what a client sends: it would do so where a panic ends the program,
// answer faults without a record, and pass on names as text. The packet itself
// travels to the handler as the remote address.
type binding struct {
	s       *Server
	p       *profileServer
	addr    netip.AddrPort
	udp     *packetConn
	tcp     *streamListener
	servers []*dns.Server
	started bool // guarded by Server.mu
	// stop is closed by shutdown, once.
	stop chan struct{}
	wg   sync.WaitGroup
}

func newBinding(s *Server, p *profileServer, udp *net.UDPConn, tcp *net.TCPListener) *binding {
	b := &binding{s: s, p: p, addr: addrPort(tcp.Addr()), stop: make(chan struct{})}
	b.udp = &packetConn{UDPConn: udp, b: b}
	b.tcp = &streamListener{TCPListener: tcp, b: b}
	b.servers = []*dns.Server{
		{
			PacketConn: b.udp, Handler: b, UDPSize: maxQuery, MsgAcceptFunc: onlyHeaders,
			ReadTimeout: time.Minute, // how often an idle loop turns
		},
		{
			Listener: b.tcp, Handler: b, MsgAcceptFunc: onlyHeaders, MaxTCPQueries: -1,
			ReadTimeout: s.cfg.Limits.Idle, IdleTimeout: func() time.Duration { return s.cfg.Limits.Idle },
			DecorateReader: func(r dns.Reader) dns.Reader { return &streamReader{Reader: r, b: b} },
		},
	}
	return b
}

// onlyHeaders makes sure that the library never has more to parse.
func onlyHeaders(h dns.Header) dns.MsgAcceptAction {
	if h.Bits&flagQR != 0 || h.Qdcount|h.Ancount|h.Nscount|h.Arcount != 0 {
		return dns.MsgIgnore
	}
	return dns.MsgAccept
}

// start serves and returns when both sockets are served: the library can't be
// told to stop before. Server.mu is held.
func (b *binding) start() {
	b.started = true
	for _, srv := range b.servers {
		ready := make(chan struct{})
		srv.NotifyStartedFunc = func() { close(ready) }
		gone := make(chan struct{})
		b.wg.Go(func() {
			defer close(gone)
			if err := srv.ActivateAndServe(); err != nil {
				b.s.log.Error("serving a DNS listener", "profile", b.p.name, "address", b.addr, "error", err)
			}
		})
		select {
		case <-ready:
		case <-gone:
		}
	}
}

// shutdown stops to listen and to read, and waits for queries until ctx ends.
// wait must follow. It is called once.
func (b *binding) shutdown(ctx context.Context) {
	close(b.stop)
	b.s.mu.Lock()
	started := b.started
	b.s.mu.Unlock()
	if !started {
		_, _ = b.udp.Close(), b.tcp.Close()
		return
	}
	var wg sync.WaitGroup
	for _, srv := range b.servers {
		wg.Go(func() { _ = srv.ShutdownContext(ctx) })
	}
	wg.Wait()
}

// wait returns when every goroutine is gone.
func (b *binding) wait() { b.wg.Wait() }

// ServeDNS implements dns.Handler: it answers the packet that came along.
func (b *binding) ServeDNS(w dns.ResponseWriter, _ *dns.Msg) {
	p, ok := w.RemoteAddr().(*packet)
	if !ok {
		return // every conn here is ours
	}
	if p.client.stream {
		select {
		case b.p.slots <- struct{}{}:
		case <-b.s.base.Done():
			_ = w.Close()
			return
		}
	}
	defer func() { <-b.p.slots }()
	out, sane := b.p.serve(b.s.base, p.client, p.raw, false)
	if out != nil {
		if _, err := w.Write(out); err != nil {
			b.s.log.Debug("sending an answer", "profile", b.p.name, "error", err)
			sane = false
		}
	}
	if !sane {
		_ = w.Close() // a datagram's is a no-op
	}
}

// packet is a message and its sender, in the guise of the sender's address.
type packet struct {
	client client
	raw    []byte
}

// Network implements net.Addr.
func (p *packet) Network() string { return "dns" }

// String implements net.Addr.
func (p *packet) String() string { return p.client.addr.String() }

// checkPacket tells whether a packet can be answered at all. Nothing but a
// header makes it a message, and answering a response makes a loop.
func (b *binding) checkPacket(raw []byte, c client) bool {
	h, ok := parseHeader(raw)
	if ok && h.flags&flagQR == 0 && len(raw) <= maxQuery && c.addr.Addr().IsLoopback() {
		return true
	}
	b.s.dropped.Add(1)
	if !ok && c.addr.Addr().IsLoopback() {
		b.p.noteBroken(b.s.base, c)
	}
	return false
}

// bareHeader makes dst the header that the library is shown.
func bareHeader(dst []byte) []byte {
	clear(dst[4:headerLen])
	return dst[:headerLen]
}

// packetConn is the UDP socket.
type packetConn struct {
	*net.UDPConn
	b *binding
}

// ReadFrom implements net.PacketConn: it returns when there is a query and a
// place for it. It fails only when the socket was closed or a deadline passed.
func (c *packetConn) ReadFrom(buf []byte) (int, net.Addr, error) {
	for failures := 0; ; {
		n, from, err := c.ReadFromUDPAddrPort(buf)
		switch {
		case errors.Is(err, net.ErrClosed), errors.Is(err, os.ErrDeadlineExceeded):
			return 0, nil, err
		case err != nil:
			// Some systems tell of an answer that could not be delivered.
			if failures++; failures > 8 && !c.b.pauseAfter("reading a query", err) {
				return 0, nil, net.ErrClosed
			}
			continue
		}
		failures = 0
		from = netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
		p := &packet{client: client{addr: from}}
		if !c.b.checkPacket(buf[:n], p.client) {
			continue
		}
		p.raw = bytes.Clone(buf[:n])
		p.client.peer = c.b.identifyPacket(from)
		select {
		case c.b.p.slots <- struct{}{}:
			return len(bareHeader(buf)), p, nil
		default:
		}
		// All places are taken. Reading waits for the record of this, so a flood
		// is held up here and not in memory.
		if out, _ := c.b.p.serve(c.b.s.base, p.client, p.raw, true); out != nil {
			_, _ = c.WriteTo(out, p)
		}
	}
}

// WriteTo implements net.PacketConn.
func (c *packetConn) WriteTo(b []byte, to net.Addr) (int, error) {
	p, ok := to.(*packet)
	if !ok {
		return 0, os.ErrInvalid
	}
	return c.WriteToUDPAddrPort(b, p.client.addr)
}

// identifyPacket finds the sender of a datagram if that can be done.
func (b *binding) identifyPacket(from netip.AddrPort) Peer {
	if id, ok := b.s.cfg.Identifier.(PacketIdentifier); ok {
		return id.IdentifyPacket(b.addr, from)
	}
	return Peer{Entitled: from.Addr().IsLoopback()}
}

// pauseAfter waits a little after a failure; false if the binding stops.
func (b *binding) pauseAfter(what string, err error) bool {
	b.s.log.Error(what, "profile", b.p.name, "address", b.addr, "error", err)
	select {
	case <-time.After(pause):
		return true
	case <-b.stop:
		return false
	}
}

// streamReader reads messages for the library.
type streamReader struct {
	dns.Reader
	b *binding
}

var errNoQuery = errors.New("dnsguard: not a query")

// ReadTCP implements dns.Reader: the message goes to the handler, the library
// gets its header. An error ends the connection.
func (r *streamReader) ReadTCP(conn net.Conn, timeout time.Duration) ([]byte, error) {
	raw, err := r.Reader.ReadTCP(conn, timeout)
	if err != nil {
		return nil, err
	}
	c, ok := conn.(*streamConn)
	if !ok || !r.b.checkPacket(raw, c.client) {
		return nil, errNoQuery
	}
	if !c.known {
		c.client.peer = r.b.s.cfg.Identifier.Identify(r.b.addr, c.client.addr)
		c.known = true
	}
	c.current = &packet{client: c.client, raw: raw}
	return bareHeader(append([]byte(nil), raw[:headerLen]...)), nil
}

// addrPort reads a socket's address, unmapped.
func addrPort(a net.Addr) netip.AddrPort {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	ap := t.AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}
