package daemon

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os/user"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"sluicegate/dnsguard"
	"sluicegate/internal/identity"
	"sluicegate/policy"
	"sluicegate/proxy"
)

// refreshLocal is how old the knowledge of own addresses may get.
const refreshLocal = 5 * time.Second

// machine keeps what the guard must know of this machine.
type machine struct {
	log *slog.Logger
	set atomic.Pointer[policy.LocalSet]

	mu    sync.Mutex
	ports []uint16
}

// setPorts says which ports are the gate's own, and refreshes.
func (m *machine) setPorts(ports []uint16) {
	m.mu.Lock()
	m.ports = ports
	m.mu.Unlock()
	if err := m.refresh(); err != nil {
		m.log.Error("reading own addresses; the last known ones stay in force", "error", err)
	}
}

// local returns the set of the moment.
func (m *machine) local() *policy.LocalSet { return m.set.Load() }

// refresh reads the interfaces and gateways. When they can't be read the last
// known set stays.
func (m *machine) refresh() error {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return err
	}
	var own []netip.Addr
	for _, a := range addrs {
		if p, ok := a.(*net.IPNet); ok {
			if ip, ok := netip.AddrFromSlice(p.IP); ok {
				own = append(own, ip)
			}
		}
	}
	own = append(own, gateways()...)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.set.Store(policy.NewLocalSet(own, m.ports))
	return nil
}

// LocalSet is what a gate that serves s on this machine knows of it, so that a
// command without a daemon decides as the gate would. Ports that the system
// chooses when the gate starts are not known.
func LocalSet(s *policy.Snapshot) (*policy.LocalSet, error) {
	m := &machine{}
	for _, p := range s.Profiles() {
		if p.Port != 0 {
			m.ports = append(m.ports, p.Port)
		}
	}
	if err := m.refresh(); err != nil {
		return nil, fmt.Errorf("reading own addresses: %w", err)
	}
	return m.local(), nil
}

// watch refreshes until done is closed.
func (m *machine) watch(done <-chan struct{}) {
	t := time.NewTicker(refreshLocal)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			if err := m.refresh(); err != nil {
				m.log.Error("reading own addresses; the last known ones stay in force", "error", err)
			}
		case <-done:
			return
		}
	}
}

// peers answers who owns a connection.
type peers struct {
	own identity.OwnUser
	log *slog.Logger

	mu    sync.Mutex
	names map[uint32]string
}

var _ proxy.SocketIdentifier = (*peers)(nil)

// maxNames bounds the cache of user names.
const maxNames = 256

// Identify implements proxy.Identifier. A peer that can't be read is not
// entitled where the system can tell peers at all.
func (p *peers) Identify(local, remote netip.AddrPort) proxy.Peer {
	found, err := identity.TCP(local, remote)
	if err != nil {
		p.log.Warn("reading the owner of a connection", "error", err)
	}
	return p.peer(found)
}

func (p *peers) peer(found identity.Peer) proxy.Peer {
	out := proxy.Peer{UID: found.UID, UIDKnown: found.Known, Entitled: p.own.Entitled(found)}
	if found.Known {
		out.User = p.name(found.UID)
	}
	return out
}

// IdentifySocket implements proxy.SocketIdentifier.
func (p *peers) IdentifySocket(c *net.UnixConn) proxy.Peer {
	found, err := identity.Unix(c)
	if err != nil {
		p.log.Warn("reading the owner of a connection", "error", err)
	}
	return p.peer(found)
}

// dnsPeers is peers for the DNS listeners.
type dnsPeers struct{ *peers }

var _ dnsguard.Identifier = dnsPeers{}

// Identify implements dnsguard.Identifier.
func (p dnsPeers) Identify(local, remote netip.AddrPort) dnsguard.Peer {
	return dnsguard.Peer(p.peers.Identify(local, remote))
}

// name returns a user's name, or the number where it has none.
func (p *peers) name(uid uint32) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n, ok := p.names[uid]; ok {
		return n
	}
	id := strconv.FormatUint(uint64(uid), 10)
	name := id
	if u, err := user.LookupId(id); err == nil && u.Username != "" {
		name = u.Username
	}
	if len(p.names) < maxNames {
		p.names[uid] = name
	}
	return name
}
