package audit

import (
	"slices"
	"strconv"
)

// MaxRecord is the most bytes a line has, with its newline. It is below what
// common collectors take in one event (8 KiB for syslog receivers, 10,000 bytes
// for Splunk by default).
const MaxRecord = 8 << 10

// maxBody is the most bytes the encoder may use, so that the sealed line fits.
const maxBody = MaxRecord - sealMax

// Caps of strings in bytes of the value, before escaping.
const (
	capWord   = 64   // enums, ids, addresses
	capDest   = 255  // the longest host name and its trailing dot
	capName   = 256  // names, paths
	capTarget = 512  // request.target_raw
	capMsg    = 1024 // msg
	capRes    = 8    // addresses in resolved
)

// limits bound one attempt at encoding an event.
type limits struct {
	str  int // bytes of one string as written
	list int // elements of a list or map
}

// attempts are tried in turn until the record fits. The first one holds for
// everything that isn't hostile; escaping can make a string six times as long,
// and only a record full of such strings needs the others. The last one fits
// whatever the event holds (see TestEncodeWorstCase).
var attempts = [...]limits{
	{str: MaxRecord, list: 32},
	{str: 512, list: 16},
	{str: 44, list: 8},
}

// encoder writes events as JSON. It is written out by hand and not left to
// encoding/json, because this is the path of every refusal: one pass, no
// allocation, escaping and caps in the same step. A test holds it against
// encoding/json field by field.
type encoder struct {
	buf []byte
	lim limits
	// group is the key of the object being written; "" at the top.
	group string
	// cut collects the names of what was shortened.
	cut []string
}

// encode replaces the contents of buf by the object for e, up to but without
// seq, prev, hash and the closing brace.
func (enc *encoder) encode(e *Event) {
	for _, lim := range attempts {
		enc.buf, enc.cut, enc.lim = enc.buf[:0], enc.cut[:0], lim
		enc.event(e)
		if len(enc.buf) <= maxBody {
			return
		}
	}
}

// event writes all fields of e in the order of the struct.
func (enc *encoder) event(e *Event) {
	enc.buf = append(enc.buf, '{')
	enc.time("time", e.Time)
	enc.must("level", e.Level, capWord)
	enc.must("msg", e.Msg, capMsg)
	enc.must("schema", Schema, capWord)
	enc.must("event", string(e.Event), capWord)
	enc.must("id", e.ID, capWord)

	enc.str("decision", e.Decision, capWord)
	enc.str("reason", e.Reason, capWord)
	enc.str("would", e.Would, capWord)
	enc.str("product", e.Product, capWord)
	enc.str("profile", e.Profile, capName)
	enc.str("surface", e.Surface, capWord)
	enc.str("user", e.User, capName)
	enc.str("group", e.Group, capName)
	enc.str("session", e.Session, capName)
	enc.str("proto", e.Proto, capWord)
	enc.str("dest", e.Dest, capDest)
	enc.num("port", int64(e.Port))
	enc.str("mode", e.Mode, capWord)
	enc.str("flow", e.Flow, capWord)
	enc.flag("synthetic", e.Synthetic)

	enc.traffic(e)
	enc.records(e)

	if p := e.Policy; p != nil {
		enc.open("policy")
		enc.num("version", int64(p.Version))
		enc.str("digest", p.Digest, capName)
		enc.str("source", p.Source, capName)
		enc.close()
	}
	enc.must("boot", e.Boot, capWord)
	enc.open("host")
	enc.str("name", e.Host.Name, capDest)
	enc.str("os", e.Host.OS, capWord)
	enc.close()
	enc.open("daemon")
	enc.str("version", e.Daemon.Version, capWord)
	enc.num("pid", int64(e.Daemon.PID))
	enc.close()

	enc.truncated(e.Truncated)
}

// traffic writes what belongs to network events.
func (enc *encoder) traffic(e *Event) {
	if r := e.Request; r != nil {
		enc.open("request")
		enc.str("method", r.Method, capWord)
		enc.str("scheme", r.Scheme, capWord)
		enc.str("target_raw", r.TargetRaw, capTarget)
		enc.close()
	}
	if s := e.Server; s != nil {
		enc.open("server")
		enc.str("address", s.Address, capWord)
		enc.num("port", int64(s.Port))
		enc.close()
	}
	enc.resolved(e)
	enc.str("matched_range", e.MatchedRange, capWord)
	if r := e.Rule; r != nil {
		enc.open("rule")
		enc.str("id", r.ID, capName)
		enc.str("file", r.File, capName)
		enc.num("line", int64(r.Line))
		enc.close()
	}
	enc.str("stage", e.Stage, capWord)
	enc.str("sni", e.SNI, capName)
	if len(e.ALPN) > 0 {
		enc.alpn(e.ALPN)
	}
	enc.flag("ech", e.ECH)
	enc.str("layer", e.Layer, capWord)
	if c := e.Client; c != nil {
		enc.open("client")
		enc.str("address", c.Address, capName)
		enc.num("port", int64(c.Port))
		if c.UID != nil {
			enc.numZero("uid", int64(*c.UID))
		}
		enc.str("attribution", c.Attribution, capWord)
		enc.close()
	}
	enc.num("http_status", int64(e.HTTPStatus))
	enc.str("suggestion", e.Suggestion, capWord)

	if d := e.DNS; d != nil {
		enc.open("dns")
		if q := d.Question; q != nil {
			enc.open("question")
			enc.str("name", q.Name, capDest)
			enc.str("type", q.Type, capWord)
			enc.str("class", q.Class, capWord)
			enc.close()
			enc.group = "dns"
		}
		enc.str("rcode", d.RCode, capWord)
		enc.num("ede", int64(d.EDE))
		enc.close()
	}

	if e.BytesIn != nil {
		enc.numZero("bytes_in", *e.BytesIn)
	}
	if e.BytesOut != nil {
		enc.numZero("bytes_out", *e.BytesOut)
	}
	if e.DurationMS != nil {
		enc.float("duration_ms", *e.DurationMS)
	}
	if x := e.End; x != nil {
		enc.open("end")
		enc.must("who", x.Who, capWord)
		enc.must("why", x.Why, capWord)
		enc.close()
	}
}

// resolved writes the addresses of an answer and how many there were.
func (enc *encoder) resolved(e *Event) {
	if len(e.Resolved) > 0 {
		enc.list("resolved")
		for _, a := range e.Resolved[:min(len(e.Resolved), capRes, enc.lim.list)] {
			enc.element("resolved")
			enc.must("ip", a.IP, capWord)
			enc.must("class", a.Class, capWord)
			enc.close()
		}
		enc.buf = append(enc.buf, ']')
	}

	total := e.ResolvedTotal
	if len(e.Resolved) > min(capRes, enc.lim.list) {
		total = max(total, len(e.Resolved))
		enc.note("resolved")
	}
	enc.num("resolved_total", int64(total))
}

// records writes what belongs to the daemon's and the log's own events.
func (enc *encoder) records(e *Event) {
	if c := e.Change; c != nil {
		enc.change(c)
	}
	if s := e.Service; s != nil {
		enc.open("service")
		total := s.ListenersTotal
		if len(s.Listeners) > 0 {
			enc.list("listeners")
			for _, l := range s.Listeners[:min(len(s.Listeners), enc.lim.list)] {
				enc.element("service.listeners")
				enc.must("profile", l.Profile, capName)
				enc.must("address", l.Address, capName)
				enc.close()
			}
			enc.buf = append(enc.buf, ']')
			enc.group = "service"
		}
		if len(s.Listeners) > enc.lim.list {
			total = max(total, len(s.Listeners))
			enc.note("service.listeners")
		}
		enc.num("listeners_total", int64(total))
		enc.str("previous_stop", s.PreviousStop, capWord)
		enc.str("cause", s.Cause, capWord)
		enc.num("cut_flows", int64(s.CutFlows))
		enc.close()
	}
	if r := e.Rotated; r != nil {
		enc.open("rotated")
		enc.str("file", r.File, capName)
		enc.uint("first_seq", r.FirstSeq)
		enc.uint("last_seq", r.LastSeq)
		enc.must("last_hash", r.LastHash, capWord)
		enc.close()
	}
	if g := e.Gap; g != nil {
		enc.open("gap")
		enc.dropped(g.Dropped)
		enc.num("unsynced", int64(g.Unsynced))
		enc.num("unreadable", int64(g.Unreadable))
		enc.num("torn_bytes", g.TornBytes)
		if !g.From.IsZero() {
			enc.time("from", g.From)
		}
		if !g.To.IsZero() {
			enc.time("to", g.To)
		}
		enc.must("cause", g.Cause, capWord)
		enc.close()
	}
}

// change writes what a load of the policy changed, or why it was rejected.
func (enc *encoder) change(c *Change) {
	enc.open("change")
	enc.must("trigger", c.Trigger, capWord)
	enc.str("old_digest", c.OldDigest, capName)
	few := enc.lim.list / 8
	files := c.Files[:min(len(c.Files), few)]
	if len(files) > 0 {
		enc.list("files")
		for _, f := range files {
			enc.comma()
			enc.quote("files", f, capName)
		}
		enc.buf = append(enc.buf, ']')
	}
	enc.num("files_total", int64(enc.total("change.files", c.FilesTotal, len(c.Files), len(files))))
	enc.num("rules_added", int64(c.Added))
	enc.num("rules_removed", int64(c.Removed))
	enc.num("revoked", int64(c.Revoked))
	enc.str("restart_needed", c.Restart, capName)
	errs := c.Errors[:min(len(c.Errors), few)]
	if len(errs) > 0 {
		enc.list("errors")
		for _, e := range errs {
			enc.element("change.errors")
			enc.str("file", e.File, capName)
			enc.num("line", int64(e.Line))
			enc.num("column", int64(e.Column))
			enc.must("msg", e.Msg, capName)
			enc.close()
		}
		enc.buf = append(enc.buf, ']')
	}
	enc.group = "change"
	enc.num("errors_total", int64(enc.total("change.errors", c.ErrorsTotal, len(c.Errors), len(errs))))
	enc.close()
}

// alpn writes the protocols that a client offered.
func (enc *encoder) alpn(protocols []string) {
	enc.list("alpn")
	for i, p := range protocols {
		if i == enc.lim.list/8 {
			enc.note("alpn")
			break
		}
		enc.comma()
		enc.quote("alpn", p, capWord)
	}
	enc.buf = append(enc.buf, ']')
}

// total is the count to write beside a list that holds written of had
// elements: the caller's own, or had if the list was cut here.
func (enc *encoder) total(name string, own, had, written int) int {
	if written == had {
		return own
	}
	enc.note(name)
	return max(own, had)
}

// dropped writes the counts of a gap, by name in order. What is over the limit
// is summed up under "other", so that the total stays exact.
func (enc *encoder) dropped(counts map[string]int) {
	if len(counts) == 0 {
		return
	}

	names := make([]string, 0, len(counts))
	for name := range counts {
		names = append(names, name)
	}
	slices.Sort(names)

	enc.key("dropped")
	enc.buf = append(enc.buf, '{')
	other := 0
	for i, name := range names {
		if i >= enc.lim.list {
			other += counts[name]

			continue
		}
		enc.comma()
		enc.quote("dropped", name, capWord)
		enc.buf = append(enc.buf, ':')
		enc.buf = strconv.AppendInt(enc.buf, int64(counts[name]), 10)
	}
	enc.num("other", int64(other))
	enc.buf = append(enc.buf, '}')
}

// truncated writes the names of everything that was cut, by the caller and here.
func (enc *encoder) truncated(names []string) {
	for _, name := range names[:min(len(names), enc.lim.list)] {
		enc.note(name)
	}
	if len(enc.cut) == 0 {
		return
	}

	enc.key("truncated")
	enc.buf = append(enc.buf, '[')
	for _, name := range enc.cut {
		enc.comma()
		enc.buf, _ = appendQuoted(enc.buf, name, capWord, enc.lim.str)
	}
	enc.buf = append(enc.buf, ']')
}
