package audit

import (
	"time"

	"github.com/google/uuid"
)

// Schema is the value of the "schema" key of every line. Additive changes keep
// it; a renamed key or a changed meaning needs a new one.
const Schema = "sluicegate.audit/1"

// Name is the kind of an event, the value of the "event" key.
type Name string

// Events of this schema version.
const (
	// EgressDenied is a refusal: by policy, guard, limit or malformed input.
	EgressDenied Name = "egress.denied"
	// EgressObserved is traffic that observe mode let through although the
	// policy would deny it; Would holds the reason.
	EgressObserved Name = "egress.observed"
	// EgressOpened is a tunnel that was let through.
	EgressOpened Name = "egress.opened"
	// EgressClosed is the end of a tunnel or of a forwarded request, also one
	// that failed upstream.
	EgressClosed Name = "egress.closed"
	// DNSDenied is a refused DNS query; DNSObserved one that only observe mode
	// let through.
	DNSDenied   Name = "dns.denied"
	DNSObserved Name = "dns.observed"
	// PolicyReloaded is a new policy in force, PolicyRejected one that was
	// refused while the last good one stays.
	PolicyReloaded Name = "policy.reloaded"
	PolicyRejected Name = "policy.rejected"
	// ServiceStarted and ServiceStopped bracket one run of the daemon.
	ServiceStarted Name = "service.started"
	ServiceStopped Name = "service.stopped"
	// AuditRotated is the first line of a file that follows another one.
	AuditRotated Name = "audit.rotated"
	// AuditGap says that lines are missing, torn or unreadable, how many, and
	// why. It stands before the first line that was written after the loss.
	AuditGap Name = "audit.gap"
)

// Level values, the same words as log/slog.
const (
	LevelInfo  = "INFO"
	LevelWarn  = "WARN"
	LevelError = "ERROR"
)

// Decision values.
const (
	DecisionAllow     = "allow"
	DecisionDeny      = "deny"
	DecisionWouldDeny = "would_deny"
	DecisionError     = "error"
)

// Event is one line of the audit log. The zero value of a field means unknown
// and is left out of the line. Keys and their order are part of the schema: a
// new key goes in front of boot, so that the chain fields stay last.
//
// The caller fills everything except Schema, Boot, Host, Daemon, Seq and Prev,
// which [Log.Record] sets whatever the caller put there. An empty ID, a zero
// Time, an empty Level (INFO) and an empty Msg (the event's name) are filled
// too, but a refusal needs its ID before it is recorded (see [NewID]).
//
// Strings may hold anything, also what an attacker sent: they are escaped and
// cut when the line is written, never interpreted.
type Event struct {
	// Time is written in UTC with exactly three decimals.
	Time   time.Time `json:"time"`
	Level  string    `json:"level"`
	Msg    string    `json:"msg"`
	Schema string    `json:"schema"`
	Event  Name      `json:"event"`
	ID     string    `json:"id"`

	// Flat filter keys.

	Decision string `json:"decision,omitempty"`
	Reason   string `json:"reason,omitempty"`
	Would    string `json:"would,omitempty"`
	Product  string `json:"product,omitempty"`
	Profile  string `json:"profile,omitempty"`
	Surface  string `json:"surface,omitempty"`
	User     string `json:"user,omitempty"`
	Group    string `json:"group,omitempty"`
	Session  string `json:"session,omitempty"`
	Proto    string `json:"proto,omitempty"`
	Dest     string `json:"dest,omitempty"`
	Port     uint16 `json:"port,omitempty"`
	Mode     string `json:"mode,omitempty"`

	// Flow joins the records of one tunnel or request.
	Flow string `json:"flow,omitempty"`
	// Synthetic marks traffic that the gate made itself to test itself.
	Synthetic bool `json:"synthetic,omitempty"`

	Request *Request `json:"request,omitempty"`
	Server  *Server  `json:"server,omitempty"`
	// Resolved holds at most eight addresses once written; ResolvedTotal is
	// how many there were, and is raised to len(Resolved) if it is less.
	Resolved      []Address `json:"resolved,omitempty"`
	ResolvedTotal int       `json:"resolved_total,omitempty"`
	MatchedRange  string    `json:"matched_range,omitempty"`
	Rule          *Rule     `json:"rule,omitempty"`
	Stage         string    `json:"stage,omitempty"`
	// SNI, ALPN and ECH are of the ClientHello in a tunnel: the server name as
	// sent, escaped; the first protocols offered; whether there was an Encrypted
	// ClientHello extension.
	SNI        string   `json:"sni,omitempty"`
	ALPN       []string `json:"alpn,omitempty"`
	ECH        bool     `json:"ech,omitempty"`
	Layer      string   `json:"layer,omitempty"`
	Client     *Client  `json:"client,omitempty"`
	HTTPStatus int      `json:"http_status,omitempty"`
	Suggestion string   `json:"suggestion,omitempty"`

	DNS *DNS `json:"dns,omitempty"`

	// Of egress.closed. Pointers, so that zero bytes are written as zero. A
	// duration that is not a finite number is left out.
	BytesIn    *int64   `json:"bytes_in,omitempty"`
	BytesOut   *int64   `json:"bytes_out,omitempty"`
	DurationMS *float64 `json:"duration_ms,omitempty"`
	End        *End     `json:"end,omitempty"`

	Change  *Change   `json:"change,omitempty"`
	Service *Service  `json:"service,omitempty"`
	Rotated *Rotation `json:"rotated,omitempty"`
	Gap     *Gap      `json:"gap,omitempty"`

	// Policy is the effective policy at the moment of the event; nil before
	// the first one is loaded.
	Policy *Policy `json:"policy,omitempty"`
	// Boot is the id of the daemon's run.
	Boot   string `json:"boot"`
	Host   Host   `json:"host"`
	Daemon Daemon `json:"daemon"`

	// Truncated names the keys whose values were cut to fit the record, with a
	// dot for a nested one (request.target_raw). Callers that cut a value
	// themselves name it here; the encoder adds what it cuts.
	Truncated []string `json:"truncated,omitempty"`

	// Seq counts lines over files and restarts, from 1, without holes.
	Seq uint64 `json:"seq"`
	// Prev is the hash of the line before, in hex; 64 zeros for the first.
	Prev string `json:"prev"`
	// The hash is not a field: it is appended to the bytes it covers.
}

// NewID returns a new event id: a UUIDv7, so ids made later sort later. It is
// safe for concurrent use.
func NewID() string {
	// NewV7 fails only if the system's random source does, and crypto/rand ends
	// the process before that.
	return uuid.Must(uuid.NewV7()).String()
}

// Request is what the client asked for, without header values, body, query
// string or credentials.
type Request struct {
	Method string `json:"method,omitempty"`
	Scheme string `json:"scheme,omitempty"`
	// TargetRaw is the target as received, control and non-ASCII bytes escaped
	// as \xNN (see [EscapeRaw]), credentials and query removed, at most 512
	// bytes.
	TargetRaw string `json:"target_raw,omitempty"`
}

// Server is the address that was dialled.
type Server struct {
	Address string `json:"address,omitempty"`
	Port    uint16 `json:"port,omitempty"`
}

// Address is one address of an answer and the name of its special-purpose
// range, or "public".
type Address struct {
	IP    string `json:"ip"`
	Class string `json:"class"`
}

// Rule is the policy rule that decided.
type Rule struct {
	ID   string `json:"id,omitempty"`
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"`
}

// Client is the other end of the accepted connection and what is known of it.
type Client struct {
	Address string `json:"address,omitempty"`
	Port    uint16 `json:"port,omitempty"`
	// UID is the owner of the client's socket; nil where it is not known.
	UID *uint32 `json:"uid,omitempty"`
	// Attribution is verified, declared or none.
	Attribution string `json:"attribution,omitempty"`
}

// End says who ended a tunnel (client, server, gate) and why: a close reason,
// or the reason of an upstream failure.
type End struct {
	Who string `json:"who"`
	Why string `json:"why"`
}

// Policy is the effective policy at the moment of the event.
type Policy struct {
	Version int    `json:"version,omitempty"`
	Digest  string `json:"digest,omitempty"`
	// Source is embedded or the policy folder.
	Source string `json:"source,omitempty"`
}

// Host is the device the daemon runs on.
type Host struct {
	Name string `json:"name,omitempty"`
	OS   string `json:"os,omitempty"`
}

// Daemon is the running program.
type Daemon struct {
	Version string `json:"version,omitempty"`
	PID     int    `json:"pid,omitempty"`
}

// Service is the payload of service.started and service.stopped.
type Service struct {
	// Listeners holds at most 32 once written; ListenersTotal is set, as
	// resolved_total is, only if there were more.
	Listeners      []Listener `json:"listeners,omitempty"`
	ListenersTotal int        `json:"listeners_total,omitempty"`
	// PreviousStop is clean, unclean or unknown; only of service.started.
	PreviousStop string `json:"previous_stop,omitempty"`
	// Cause of a stop: signal, error.
	Cause string `json:"cause,omitempty"`
	// CutFlows is how many tunnels and requests were ended by the stop.
	CutFlows int `json:"cut_flows,omitempty"`
}

// Listener is one bound address of a profile.
type Listener struct {
	Profile string `json:"profile"`
	Address string `json:"address"`
}

// Rotation is the payload of audit.rotated: it links a file to the one before.
type Rotation struct {
	// File is the base name the previous file now has. It is absent where the
	// log did not move it itself: the file was deleted, replaced or emptied by
	// somebody else while it was open, and nobody knows where its lines are.
	File string `json:"file,omitempty"`
	// FirstSeq and LastSeq are the lines the previous file holds (or held),
	// LastHash is the hash of the last one.
	FirstSeq uint64 `json:"first_seq"`
	LastSeq  uint64 `json:"last_seq"`
	LastHash string `json:"last_hash"`
}

// Gap is the payload of audit.gap.
type Gap struct {
	// Dropped counts lines that could not be written, by event name. Their
	// callers were told so.
	Dropped map[string]int `json:"dropped,omitempty"`
	// Unsynced counts lines that were written, but for which the system could
	// not say that they reached the disk: they may be missing after a crash of
	// the machine.
	Unsynced int `json:"unsynced,omitempty"`
	// Unreadable counts whole lines in front of this one that are not valid
	// records, as somebody or something altered them.
	Unreadable int `json:"unreadable,omitempty"`
	// TornBytes is the length of unfinished lines left in the file.
	TornBytes int64 `json:"torn_bytes,omitempty"`
	// From is the time of the first loss or, found at start, of the last good
	// record; zero if there is none.
	From time.Time `json:"from,omitzero"`
	To   time.Time `json:"to,omitzero"`
	// Cause is one of the Cause constants.
	Cause string `json:"cause"`
}

// Cause values of a [Gap].
const (
	// CauseDiskFull is a full disk or an exhausted quota.
	CauseDiskFull = "disk_full"
	// CauseIOError is any other failure to write, sync or read back.
	CauseIOError = "io_error"
	// CauseKilled is a torn line found at start: the process or the machine
	// stopped in the middle of a write.
	CauseKilled = "killed"
)

// DNS is a query and how it was answered.
type DNS struct {
	Question *Question `json:"question,omitempty"`
	// RCode is the mnemonic of the answer's code, or NODATA.
	RCode string `json:"rcode,omitempty"`
	// EDE is the Extended DNS Error code that was sent, RFC 8914; 0 for none.
	EDE int `json:"ede,omitempty"`
}

// Question is the question of a DNS query.
type Question struct {
	Name  string `json:"name,omitempty"`
	Type  string `json:"type,omitempty"`
	Class string `json:"class,omitempty"`
}

// Change is the payload of policy.reloaded and policy.rejected.
type Change struct {
	// Trigger is start, fsnotify, poll, signal, cli or expiry.
	Trigger string `json:"trigger"`
	// OldDigest was in force before; Policy.Digest of the record is in force now.
	OldDigest string `json:"old_digest,omitempty"`
	// Files were loaded, Added and Removed count rules.
	Files      []string `json:"files,omitempty"`
	FilesTotal int      `json:"files_total,omitempty"`
	Added      int      `json:"rules_added,omitempty"`
	Removed    int      `json:"rules_removed,omitempty"`
	// Revoked counts tunnels and requests that lost their permission.
	Revoked int `json:"revoked,omitempty"`
	// Restart says what takes effect only after a restart.
	Restart string `json:"restart_needed,omitempty"`
	// Errors are the faults of a rejected load.
	Errors      []ChangeError `json:"errors,omitempty"`
	ErrorsTotal int           `json:"errors_total,omitempty"`
}

// ChangeError is one fault of a rejected load.
type ChangeError struct {
	File   string `json:"file,omitempty"`
	Line   int    `json:"line,omitempty"`
	Column int    `json:"column,omitempty"`
	Msg    string `json:"msg"`
}
