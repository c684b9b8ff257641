package dnsguard

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// Bounds of reading the machine's settings.
const (
	// checkEvery is how old the knowledge of a settings file may get.
	checkEvery = 2 * time.Second
	// maxServers is how many servers of resolv.conf count, as for every other
	// reader of it (MAXNS).
	maxServers = 3
	// maxSettings is how much of a settings file is read: some hosts files are
	// block lists.
	maxSettings = 8 << 20
)

// systemSource is the machine's own settings: the servers of resolv.conf and the
// names of the hosts file. Search domains are ignored, so that no name becomes
// another one. It is safe for concurrent use; nil has no hosts.
type systemSource struct {
	resolv settings[[]netip.AddrPort]
	names  settings[map[string][]netip.Addr]
	// lookup asks the system's own resolver where no file names servers.
	lookup func(ctx context.Context, network, host string) ([]netip.Addr, error)
}

func newSystemSource(log *slog.Logger) *systemSource {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &systemSource{
		resolv: settings[[]netip.AddrPort]{path: resolvConf, parse: parseResolvConf, log: log, now: time.Now},
		names:  settings[map[string][]netip.Addr]{path: hostsFile, parse: parseHosts, log: log, now: time.Now},
		lookup: (&net.Resolver{}).LookupNetIP,
	}
}

func (s *systemSource) servers() []netip.AddrPort { return s.resolv.get() }

// hosts answers from the hosts file; ok is false if it does not have the name.
func (s *systemSource) hosts(t question) (a Answer, ok bool) {
	if s == nil {
		return Answer{}, false
	}
	addrs, ok := s.names.get()[t.name]
	if !ok {
		return Answer{}, false
	}
	a.TTL = localTTL
	for _, addr := range addrs {
		if addr.Is4() == (t.kind == TypeA) {
			a.Addrs = append(a.Addrs, addr)
		}
	}
	return a, true
}

// library asks the system's resolver. It tells neither a TTL nor the chain of
// names. Where it reads the same settings it asks this machine's port 53, which
// must not be ours.
func (s *systemSource) library(ctx context.Context, t question, own []netip.AddrPort) (Answer, error) {
	if resolvConf != "" && slices.ContainsFunc(own, func(a netip.AddrPort) bool { return a.Port() == 53 }) {
		return Answer{}, errAllOwn
	}
	network := "ip4"
	if t.kind == TypeAAAA {
		network = "ip6"
	}
	found, err := s.lookup(ctx, network, t.name+".")
	var dns *net.DNSError
	switch {
	case errors.As(err, &dns) && dns.IsNotFound:
		return Answer{TTL: negativeTTL}, nil
	case err != nil:
		return Answer{}, ctxError(ctx, err)
	}
	a := Answer{TTL: localTTL}
	for _, addr := range found {
		if addr = addr.Unmap(); !slices.Contains(a.Addrs, addr) {
			a.Addrs = append(a.Addrs, addr)
		}
	}
	return a, nil
}

// settings is one file, read again when it was changed or replaced.
type settings[T any] struct {
	path  string // "" for none
	parse func([]byte) T
	log   *slog.Logger
	now   func() time.Time

	mu      sync.Mutex
	checked time.Time
	seen    os.FileInfo // nil if there is no file
	value   T
}

// get returns what the file says. One that can't be read says nothing; callers
// must not change it.
func (s *settings[T]) get() T {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if s.path == "" || !s.checked.IsZero() && now.Sub(s.checked) < checkEvery {
		return s.value
	}
	first := s.checked.IsZero()
	s.checked = now
	info, err := os.Stat(s.path)
	if err != nil {
		info = nil
	}
	if !first && sameFile(s.seen, info) {
		return s.value
	}
	s.seen = info
	var zero T
	s.value = zero
	if data, err := readSettings(s.path); err == nil {
		s.value = s.parse(data)
	}
	if !first {
		s.log.Info("the machine's DNS settings changed", "file", s.path)
	}
	return s.value
}

// sameFile tells whether nothing of a file changed: not its inode, size or time.
func sameFile(a, b os.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

func readSettings(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return io.ReadAll(io.LimitReader(f, maxSettings))
}

// parseResolvConf reads the name servers, resolv.conf(5). A scope (fe80::1%eth0)
// stays with its address. What is no address is passed over.
func parseResolvConf(data []byte) []netip.AddrPort {
	var out []netip.AddrPort
	for line := range bytes.Lines(data) {
		f := strings.Fields(string(line))
		if len(f) < 2 || f[0] != "nameserver" {
			continue
		}
		a, err := netip.ParseAddr(f[1])
		if err != nil {
			continue
		}
		ap := netip.AddrPortFrom(a, 53)
		if len(out) < maxServers && !slices.Contains(out, ap) {
			out = append(out, ap)
		}
	}
	return out
}

// parseHosts reads a hosts file, hosts(5): an address and the names it has.
func parseHosts(data []byte) map[string][]netip.Addr {
	out := map[string][]netip.Addr{}
	for line := range bytes.Lines(data) {
		text, _, _ := strings.Cut(string(line), "#")
		f := strings.Fields(text)
		if len(f) < 2 {
			continue
		}
		a, err := netip.ParseAddr(f[0])
		if err != nil {
			continue
		}
		a = a.Unmap()
		for _, name := range f[1:] {
			name = strings.TrimSuffix(strings.ToLower(name), ".")
			if !slices.Contains(out[name], a) {
				out[name] = append(out[name], a)
			}
		}
	}
	return out
}
