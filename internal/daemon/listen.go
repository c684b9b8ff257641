package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"path/filepath"
	"strings"

	"sluicegate/audit"
	"sluicegate/policy"
	"sluicegate/proxy"
)

// Bound is a profile and the addresses it listens on.
type Bound struct {
	Profile   policy.Profile
	Addresses []netip.AddrPort
	// DNS are the addresses of the DNS listener, none without one.
	DNS []netip.AddrPort
	// Unix is the path of the Unix socket, "" without one, unixMode what its
	// permissions were when it was bound.
	Unix     string
	unixMode fs.FileMode
}

var (
	loopback4 = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	loopback6 = netip.IPv6Loopback()
)

// anyPortTries is how often a port that is free on both addresses is looked
// for when a profile asks for any.
const anyPortTries = 20

// binder makes and closes listeners; *proxy.Server is one.
type binder interface {
	Listen(ctx context.Context, profile string, addr netip.AddrPort) (netip.AddrPort, error)
	Unlisten(addr netip.AddrPort)
}

var _ binder = (*proxy.Server)(nil)

// bindAll binds 127.0.0.1 and ::1 for every profile. A host without IPv6 has no
// ::1, which is said; any other failure is an error.
func bindAll(ctx context.Context, s binder, profiles []policy.Profile, log *slog.Logger) ([]Bound, error) {
	var out []Bound
	for _, p := range profiles {
		addrs, err := bindProfile(ctx, s, p)
		if err != nil {
			return nil, err
		}
		if len(addrs) == 1 {
			log.Warn("this host has no IPv6 loopback: the profile listens on IPv4 only", "profile", p.Name, "address", addrs[0])
		}
		out = append(out, Bound{Profile: p, Addresses: addrs})
	}
	return out, nil
}

func bindProfile(ctx context.Context, s binder, p policy.Profile) ([]netip.AddrPort, error) {
	return bindPort(ctx, s, p, p.Port, "port")
}

// bindPort binds one port of a profile; key is the setting that has it.
func bindPort(ctx context.Context, s binder, p policy.Profile, want uint16, key string) ([]netip.AddrPort, error) {
	for try := 0; ; try++ {
		four, err := s.Listen(ctx, p.Name, netip.AddrPortFrom(loopback4, want))
		if err != nil {
			return nil, bindPortError(p, key, netip.AddrPortFrom(loopback4, want), err)
		}
		six, err := s.Listen(ctx, p.Name, netip.AddrPortFrom(loopback6, four.Port()))
		switch {
		case err == nil:
			return []netip.AddrPort{four, six}, nil
		case noSuchAddress(err):
			return []netip.AddrPort{four}, nil
		case want != 0 || try == anyPortTries:
			return nil, bindPortError(p, key, netip.AddrPortFrom(loopback6, four.Port()), err)
		}
		s.Unlisten(four)
	}
}

// bindError says which listener, why, and how to mend it, in one line.
func bindError(p policy.Profile, addr netip.AddrPort, err error) error {
	return bindPortError(p, "port", addr, err)
}

func bindPortError(p policy.Profile, key string, addr netip.AddrPort, err error) error {
	_, name, _ := strings.Cut(p.Name, "/")
	mend := ""
	switch {
	case inUse(err):
		mend = fmt.Sprintf(": the port is in use; stop the program that has it, or set profiles.%s.listen.%s of product %s to another one", name, key, p.Product)
		return fmt.Errorf("listening on %s for %s%s", addr, p.Name, mend)
	case notPermitted(err):
		mend = fmt.Sprintf(": this user may not bind the port; set profiles.%s.listen.%s of product %s to one above 1023", name, key, p.Product)
		return fmt.Errorf("listening on %s for %s%s", addr, p.Name, mend)
	}
	var inner interface{ Unwrap() error }
	for errors.As(err, &inner) && inner.Unwrap() != nil {
		err = inner.Unwrap()
	}
	return fmt.Errorf("listening on %s for %s: %w", addr, p.Name, err)
}

// bindDNS binds the DNS listeners of a profile, none if it has none.
func (d *Daemon) bindDNS(ctx context.Context, p policy.Profile) ([]netip.AddrPort, error) {
	if !p.DNS {
		return nil, nil
	}
	return bindPort(ctx, d.dns, p, p.DNSPort, "dns")
}

// bindUnix binds the Unix socket of a profile, if it has one. It stands beside the control socket, whose lock makes sure that no other
// gate serves there, and in whose folder nobody else can put anything.
func (d *Daemon) bindUnix(ctx context.Context, b *Bound, p policy.Profile) error {
	if p.Unix == "" {
		return nil
	}
	path := filepath.Join(filepath.Dir(d.opts.Paths.Control), p.Unix)
	for _, other := range d.bound {
		if other.Unix == path && other.Profile.Name != p.Name {
			// It would be taken for a socket that a killed gate left.
			return fmt.Errorf("listening on %s for %s: it stays the socket of %s until a restart", path, p.Name, other.Profile.Name)
		}
	}
	if err := d.proxy.ListenUnix(ctx, p.Name, path, p.UnixMode); err != nil {
		return fmt.Errorf("listening on %s for %s: %w", path, p.Name, err)
	}
	b.Unix, b.unixMode = path, p.UnixMode
	return nil
}

// listeners lists the bound addresses for the record.
func (d *Daemon) listeners() []audit.Listener {
	var out []audit.Listener
	for _, b := range d.bound {
		for _, a := range b.Addresses {
			out = append(out, audit.Listener{Profile: b.Profile.Name, Address: a.String()})
		}
		for _, a := range b.DNS {
			out = append(out, audit.Listener{Profile: b.Profile.Name, Address: "dns " + a.String()})
		}
		if b.Unix != "" {
			out = append(out, audit.Listener{Profile: b.Profile.Name, Address: "unix " + b.Unix})
		}
	}
	return out
}
