package daemon

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"sluicegate/audit"
	"sluicegate/policy"
)

// recordTimeout bounds the writing of a record about the policy.
const recordTimeout = 10 * time.Second

// Reloaded is the result of a reload that was asked for.
type Reloaded struct {
	// Digest is the policy in force now, Changed whether it is a new one.
	Digest  string `json:"digest"`
	Changed bool   `json:"changed"`
}

// Reload loads the policy now and returns when the result is in force. The error
// of a refused load is [policy.Problems] or that of reading; the last good
// policy stays then.
func (d *Daemon) Reload(ctx context.Context, t Trigger) (Reloaded, error) {
	err := d.store.reload(ctx, t)
	r := Reloaded{Digest: d.store.snapshot().Digest(), Changed: err == nil}
	if errors.Is(err, errUnchanged) {
		err = nil
	}
	return r, err
}

// ReopenLog makes the audit log look for its file at once, for a program that
// rotates it.
func (d *Daemon) ReopenLog() { d.audit.Reopen() }

// reloadQuietly is what the watcher calls; the store has said what there is to
// say.
func (d *Daemon) reloadQuietly(ctx context.Context, t Trigger) { _, _ = d.Reload(ctx, t) }

// changed runs after a swap: listeners of new profiles open, live tunnels are
// judged again, the change is recorded.
func (d *Daemon) changed(old, cur *loaded, t Trigger) {
	ctx, cancel := context.WithTimeout(context.Background(), recordTimeout)
	defer cancel()
	restart := d.openNew(ctx, cur.Snapshot)
	revoked := d.proxy.Rejudge()
	added, removed := policy.Diff(old.Snapshot, cur.Snapshot)
	d.logNotices(cur.Snapshot)
	d.log.Info("policy reloaded", "digest", cur.Snapshot.Digest(), "trigger", t, "added", added, "removed", removed, "revoked", revoked)
	e := audit.Event{
		Level: audit.LevelInfo, Event: audit.PolicyReloaded,
		Msg:    fmt.Sprintf("the policy changed: %d rules added, %d removed, %d live connections lost their permission", added, removed, revoked),
		Policy: policyOf(cur),
		Change: &audit.Change{
			Trigger: string(t), OldDigest: old.Snapshot.Digest(), Files: ownFiles(cur.Policy),
			Added: added, Removed: removed, Revoked: revoked, Restart: restart,
		},
	}
	d.recordEvent(ctx, e)
}

// rejected runs after a refused load.
func (d *Daemon) rejected(cur *loaded, r Rejected) {
	ctx, cancel := context.WithTimeout(context.Background(), recordTimeout)
	defer cancel()
	d.log.Error("policy rejected; the last good one stays in force", "trigger", r.Trigger, "digest", cur.Snapshot.Digest(), "error", r.Err.Error())
	c := &audit.Change{Trigger: string(r.Trigger)}
	var problems policy.Problems
	if errors.As(r.Err, &problems) {
		for _, p := range problems {
			msg := p.Msg
			if p.Path != "" {
				msg = p.Path + ": " + msg
			}
			c.Errors = append(c.Errors, audit.ChangeError{File: p.File, Line: p.Line, Column: p.Column, Msg: msg})
		}
	} else {
		c.Errors = []audit.ChangeError{{Msg: r.Err.Error()}}
	}
	d.recordEvent(ctx, audit.Event{
		Level: audit.LevelError, Event: audit.PolicyRejected, Policy: policyOf(cur), Change: c,
		Msg: fmt.Sprintf("a policy with %d faults was rejected; the last good one stays in force", len(c.Errors)),
	})
}

func (d *Daemon) recordEvent(ctx context.Context, e audit.Event) {
	if err := d.audit.Record(ctx, e); err != nil {
		d.log.Error("audit record lost", "event", e.Event, "error", err)
	}
}

func policyOf(l *loaded) *audit.Policy {
	return &audit.Policy{Version: 1, Digest: l.Snapshot.Digest(), Source: l.Source}
}

// ownFiles names the files of a policy that are not the shipped groups.
func ownFiles(p Policy) []string {
	var out []string
	for _, f := range p.Files {
		if !f.Shipped {
			out = append(out, f.Name)
		}
	}
	return out
}

func (d *Daemon) logNotices(s *policy.Snapshot) {
	for _, n := range s.Notices() {
		d.log.Warn("policy notice", "file", n.File, "line", n.Line, "path", n.Path, "notice", n.Msg)
	}
}

// openNew binds the listeners of profiles that are new, and says what needs a
// restart. A removed profile keeps its listeners and is refused there.
func (d *Daemon) openNew(ctx context.Context, s *policy.Snapshot) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var restart []string
	for _, p := range s.Profiles() {
		b := d.boundOf(p.Name)
		if b == nil {
			addrs, err := bindProfile(ctx, d.proxy, p)
			if err != nil {
				d.log.Error("opening the listeners of a new profile", "profile", p.Name, "error", err)
				restart = append(restart, err.Error())
				continue
			}
			nb := Bound{Profile: p, Addresses: addrs}
			restart = append(restart, d.openDNS(ctx, &nb, p)...)
			restart = append(restart, d.openUnix(ctx, &nb, p)...)
			d.bound = append(d.bound, nb)
			continue
		}
		restart = append(restart, d.openDNS(ctx, b, p)...)
		restart = append(restart, d.openUnix(ctx, b, p)...)
		if p.Port != 0 && b.Profile.Port != p.Port {
			restart = append(restart, fmt.Sprintf("%s: the port stays %d until a restart", p.Name, b.Addresses[0].Port()))
		}
		port := b.Profile.Port
		b.Profile = p
		b.Profile.Port = port
	}
	d.restart = restart
	d.learnPorts()
	return strings.Join(restart, "; ")
}

// openDNS opens the DNS listener that a profile has got, and says what needs a
// restart.
func (d *Daemon) openDNS(ctx context.Context, b *Bound, p policy.Profile) []string {
	switch {
	case !p.DNS:
		return nil
	case len(b.DNS) == 0:
		addrs, err := d.bindDNS(ctx, p)
		if err != nil {
			d.log.Error("opening the DNS listener of a profile", "profile", p.Name, "error", err)
			return []string{err.Error()}
		}
		b.DNS = addrs
		return nil
	case p.DNSPort != 0 && p.DNSPort != b.DNS[0].Port():
		return []string{fmt.Sprintf("%s: the DNS port stays %d until a restart", p.Name, b.DNS[0].Port())}
	default:
		return nil
	}
}

// openUnix does the same for the Unix socket.
func (d *Daemon) openUnix(ctx context.Context, b *Bound, p policy.Profile) []string {
	switch {
	case p.Unix == "":
		// One that was taken out of the policy stays, as a port does.
		return nil
	case b.Unix == "":
		if err := d.bindUnix(ctx, b, p); err != nil {
			d.log.Error("opening the Unix socket of a profile", "profile", p.Name, "error", err)
			return []string{err.Error()}
		}
		return nil
	case p.Unix != filepath.Base(b.Unix) || p.UnixMode != b.unixMode:
		return []string{fmt.Sprintf("%s: the Unix socket stays %s with its permissions until a restart", p.Name, b.Unix)}
	default:
		return nil
	}
}

func (d *Daemon) boundOf(profile string) *Bound {
	for i := range d.bound {
		if d.bound[i].Profile.Name == profile {
			return &d.bound[i]
		}
	}
	return nil
}

// expire judges live tunnels again whenever the passing of time alone takes a
// permission away.
func (d *Daemon) expire(done <-chan struct{}) {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	snapshot := d.store.snapshot()
	next := snapshot.NextChange(time.Now())
	for {
		select {
		case <-done:
			return
		case now := <-t.C:
			if cur := d.store.snapshot(); cur != snapshot {
				snapshot, next = cur, cur.NextChange(now)
			}
			if next.IsZero() || now.Before(next) {
				continue
			}
			next = snapshot.NextChange(now)
			if n := d.proxy.Rejudge(); n > 0 {
				d.log.Info("live connections lost an expired permission", "count", n)
			}
		}
	}
}
