package daemon

import (
	"errors"
	"slices"
	"time"

	"sluicegate/audit"
	"sluicegate/policy"
)

// Health values.
const (
	HealthOK       = "ok"
	HealthDegraded = "degraded"
)

// Status is what the status command shows; its JSON keys are stable.
type Status struct {
	Version string    `json:"version"`
	PID     int       `json:"pid"`
	Started time.Time `json:"started"`
	// Health is ok or degraded; Problems says why.
	Health   string   `json:"health"`
	Problems []string `json:"problems,omitempty"`

	Policy   PolicyStatus    `json:"policy"`
	Profiles []ProfileStatus `json:"profiles"`
	Audit    AuditStatus     `json:"audit"`
	Traffic  TrafficStatus   `json:"traffic"`
	Control  string          `json:"control"`
}

// PolicyStatus is the effective policy.
type PolicyStatus struct {
	Digest string `json:"digest"`
	// Source is embedded, the policy folder, or none.
	Source  string    `json:"source"`
	Since   time.Time `json:"since"`
	Notices []string  `json:"notices,omitempty"`
	// Rejected is the newest refused load, while it is the newest load.
	Rejected *RejectedStatus `json:"rejected,omitempty"`
	// RestartNeeded says what takes effect only after a restart.
	RestartNeeded []string `json:"restart_needed,omitempty"`
}

// RejectedStatus is a load that was refused.
type RejectedStatus struct {
	Time    time.Time `json:"time"`
	Trigger string    `json:"trigger"`
	Errors  []string  `json:"errors"`
}

// ProfileStatus is one profile and where it listens.
type ProfileStatus struct {
	Name      string   `json:"name"`
	Mode      string   `json:"mode"`
	Network   string   `json:"network"`
	Addresses []string `json:"addresses"`
	// DNS are the addresses of the DNS listener, over UDP and TCP.
	DNS []string `json:"dns,omitempty"`
	// Unix is the path of the Unix socket.
	Unix  string `json:"unix,omitempty"`
	Allow int    `json:"allow_rules"`
	Deny  int    `json:"deny_rules"`
	// ObserveUntil is set for mode observe with an end.
	ObserveUntil *time.Time `json:"observe_until,omitempty"`
}

// AuditStatus is the state of the audit log.
type AuditStatus struct {
	File      string `json:"file"`
	Healthy   bool   `json:"healthy"`
	LastError string `json:"last_error,omitempty"`
	LastSeq   uint64 `json:"last_seq"`
	LastHash  string `json:"last_hash"`
	Dropped   uint64 `json:"dropped"`
	// Decisions counts records by decision since the start.
	Decisions map[string]uint64 `json:"decisions"`
}

// TrafficStatus counts what passes.
type TrafficStatus struct {
	Connections int   `json:"connections"`
	Flows       int   `json:"flows"`
	Opened      int64 `json:"opened"`
	Refused     int64 `json:"refused"`
}

// Status returns the state of the moment.
func (d *Daemon) Status() Status {
	stats, traffic, cur := d.audit.Stats(), d.proxy.Stats(), d.store.current()
	d.mu.Lock()
	bound, restart := slices.Clone(d.bound), slices.Clone(d.restart)
	d.mu.Unlock()
	s := Status{
		Version: d.opts.Version, PID: pid(), Started: d.started.UTC(), Health: HealthOK, Control: d.opts.Paths.Control,
		Policy: PolicyStatus{
			Digest: cur.Snapshot.Digest(), Source: cur.Source, Since: cur.since.UTC(), RestartNeeded: restart,
		},
		Audit: AuditStatus{
			File: d.opts.Settings.AuditFile, Healthy: stats.Healthy, LastSeq: stats.LastSeq,
			LastHash: stats.LastHash, Dropped: stats.Dropped, Decisions: stats.Decisions,
		},
		Traffic: TrafficStatus{
			Connections: traffic.Connections, Flows: traffic.Flows, Opened: traffic.Opened, Refused: traffic.Refused,
		},
		Profiles: []ProfileStatus{},
	}
	if !stats.Healthy {
		s.Audit.LastError = stats.LastError
		s.Problems = append(s.Problems, "the audit log can not be written: "+stats.LastError)
	}
	if r := cur.rejected; r != nil {
		s.Policy.Rejected = &RejectedStatus{Time: r.Time.UTC(), Trigger: string(r.Trigger), Errors: errorLines(r.Err)}
		s.Problems = append(s.Problems, "the newest policy was rejected; "+inForce(cur))
	}
	for _, r := range restart {
		s.Problems = append(s.Problems, "a restart is needed: "+r)
	}
	if len(bound) == 0 {
		s.Problems = append(s.Problems, "the policy has no profile, so nothing is served")
	}
	if len(s.Problems) > 0 {
		s.Health = HealthDegraded
	}
	for _, n := range cur.Snapshot.Notices() {
		n.Source = ""
		s.Policy.Notices = append(s.Policy.Notices, n.Error())
	}
	for _, b := range bound {
		s.Profiles = append(s.Profiles, profileStatus(b))
	}
	return s
}

func errorLines(err error) []string {
	var problems policy.Problems
	if !errors.As(err, &problems) {
		return []string{err.Error()}
	}
	var out []string
	for _, p := range problems {
		p.Source = ""
		out = append(out, p.Error())
	}
	return out
}

func inForce(cur *loaded) string {
	if cur.Snapshot == nil {
		return "there is no last good one, so everything is refused"
	}
	return "the last good one is in force"
}

func profileStatus(b Bound) ProfileStatus {
	p := ProfileStatus{
		Name: b.Profile.Name, Mode: string(b.Profile.Mode), Network: string(b.Profile.Network),
		Allow: b.Profile.Allow, Deny: b.Profile.Deny,
	}
	if b.Profile.Mode == policy.ModeObserve && !b.Profile.ObserveUntil.IsZero() {
		until := b.Profile.ObserveUntil
		p.ObserveUntil = &until
	}
	for _, a := range b.Addresses {
		p.Addresses = append(p.Addresses, a.String())
	}
	for _, a := range b.DNS {
		p.DNS = append(p.DNS, a.String())
	}
	p.Unix = b.Unix
	return p
}

// Explanation is what the explain command shows.
type Explanation struct {
	Event audit.Event `json:"event"`
	// Meaning, Cause and Mend are the documentation of the reason.
	Meaning string `json:"meaning"`
	Cause   string `json:"cause"`
	Mend    string `json:"mend"`
	// Why is the author's explanation of the rule, if the policy that decided
	// is still in force and has one.
	Why string `json:"why,omitempty"`
	// Current tells whether the policy that decided is still in force.
	Current bool `json:"policy_current"`
}
