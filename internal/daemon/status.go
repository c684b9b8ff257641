package daemon

import (
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
	// Source is embedded or the policy folder.
	Source  string    `json:"source"`
	Since   time.Time `json:"since"`
	Notices []string  `json:"notices,omitempty"`
}

// ProfileStatus is one profile and where it listens.
type ProfileStatus struct {
	Name      string   `json:"name"`
	Mode      string   `json:"mode"`
	Network   string   `json:"network"`
	Addresses []string `json:"addresses"`
	Allow     int      `json:"allow_rules"`
	Deny      int      `json:"deny_rules"`
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
	stats, traffic := d.audit.Stats(), d.proxy.Stats()
	s := Status{
		Version: d.opts.Version, PID: pid(), Started: d.started.UTC(), Health: HealthOK, Control: d.opts.Paths.Control,
		Policy: PolicyStatus{Digest: d.policy.Snapshot.Digest(), Source: d.policy.Source, Since: d.started.UTC()},
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
	if len(d.bound) == 0 {
		s.Problems = append(s.Problems, "the policy has no profile, so nothing is served")
	}
	if len(s.Problems) > 0 {
		s.Health = HealthDegraded
	}
	for _, n := range d.policy.Snapshot.Notices() {
		n.Source = ""
		s.Policy.Notices = append(s.Policy.Notices, n.Error())
	}
	for _, b := range d.bound {
		s.Profiles = append(s.Profiles, profileStatus(b))
	}
	return s
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
