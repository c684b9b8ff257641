package audit

import (
	"bytes"
	"crypto/sha256"
	"fmt"
)

// schemaFamily is how the names of all versions of the schema begin.
const schemaFamily = "sluicegate.audit/"

// place is where the chain has come to.
type place struct {
	// known is false before the first record.
	known bool
	// prev is the last record. loose says that it was altered, so that its hash
	// may be what was changed.
	prev  Link
	loose bool
	// top is the intact record with the highest number.
	top Link
}

// record checks a line that has the form of a record.
func (v *verifier) record(line []byte, p *lineParts) {
	var e Event // only of the log's own records
	switch event := valueOf(line, `,"event":"`); string(event) {
	case string(AuditGap), string(AuditRotated):
		e, _ = Parse(line) // without its payload it explains nothing
	}

	intact, readable := v.judge(line, p)
	hole := v.hole(p.link.Seq)
	var broken *Problem
	if intact {
		broken = v.follows(p, &e)
	}

	// Between an unfinished line and the gap record that accounts for it, there
	// can be the note of a rotation.
	if v.suspected > 0 && (broken != nil || !intact || e.Event != AuditRotated) {
		unfinished := accounted(&e, intact && broken == nil)
		if broken != nil && hole == uint64(v.suspected) {
			broken = nil // they stand in the place of the missing ones
		}
		v.settle(unfinished)
	}
	if broken != nil {
		v.problem(*broken)
	}
	switch {
	case !intact:
		v.problem(v.at(KindAltered, p.link.Seq, "the bytes of this record are not the ones that were hashed"))
	case !readable:
		v.problem(v.at(KindSchema, p.link.Seq, "this program can't read the schema of this record"))
	}

	v.count(p, intact, &e)
	v.place.move(p.link, intact)
}

// judge reports whether the bytes of a record are those that were hashed, and
// whether its schema is the one of this program. The schema is part of what is
// hashed, so a record of another one has to be right by that.
func (v *verifier) judge(line []byte, p *lineParts) (intact, readable bool) {
	schema := valueOf(line, `,"schema":"`)
	if v.sealer.sum(p.prev, p.hashed) == p.link.Hash {
		return true, string(schema) == Schema
	}
	if !bytes.HasPrefix(schema, []byte(schemaFamily)) {
		return false, true
	}
	other := sealer{hash: sha256.New(), tag: append(bytes.Clone(schema), 0)}

	return other.sum(p.prev, p.hashed) == p.link.Hash, false
}

// valueOf returns what stands in line behind key, up to the next quote. A key with
// its quotes can't stand within a value, where quotes are escaped.
func valueOf(line []byte, key string) []byte {
	_, rest, _ := bytes.Cut(line, []byte(key))
	value, _, _ := bytes.Cut(rest, []byte(`"`))

	return value
}

// hole returns how many records are missing in front of seq.
func (v *verifier) hole(seq uint64) uint64 {
	if !v.place.known || seq <= v.place.prev.Seq {
		return 0
	}

	return seq - v.place.prev.Seq - 1
}

// accounted returns how many bytes of unfinished lines e accounts for. A gap
// record that tells of unreadable lines too doesn't say which are which.
func accounted(e *Event, sound bool) int64 {
	if !sound || e.Event != AuditGap || e.Gap == nil || e.Gap.Unreadable > 0 {
		return 0
	}

	return e.Gap.TornBytes
}

// count puts a record into the report and compares it with the witness.
func (v *verifier) count(p *lineParts, intact bool, e *Event) {
	r := &v.report
	if r.Records == 0 {
		r.First = p.link.Seq
	}
	r.Records++
	v.last = p.link
	v.records++
	if !intact {
		return
	}

	if e.Event == AuditGap && e.Gap != nil {
		r.Gaps++
		for _, n := range e.Gap.Dropped {
			r.Dropped += n
		}
	}
	if p.link.Seq == v.witness.Seq && p.link.Hash != v.witness.Hash {
		v.problem(v.at(KindChain, p.link.Seq,
			"this is not the record that was written with this number: the log was written anew"))
	}
}

// move goes behind a record.
func (c *place) move(link Link, intact bool) {
	if !intact && c.known {
		// Its number may be what was altered; its place is more certain.
		link.Seq = c.prev.Seq + 1
	}
	c.known, c.prev, c.loose = true, link, !intact
	if intact && link.Seq > c.top.Seq {
		c.top = link
	}
}

// follows returns the problem of an intact record that is not where it should
// be, nil if it is. e is the record if it is one of the log's own.
func (v *verifier) follows(p *lineParts, e *Event) *Problem {
	c, seq := &v.place, p.link.Seq
	name := v.cur.first
	problem := func(kind Kind, format string, args ...any) *Problem {
		at := v.at(kind, seq, fmt.Sprintf(format, args...))

		return &at
	}

	switch {
	// Behind an unfinished first line, the number in the name may be too high.
	case v.records == 0 && name > 0 && (name < seq || name > seq && v.line == 1):
		if name < seq && e.Event != AuditRotated && (!c.known || name == c.prev.Seq+1) {
			return problem(KindChain, "by its name this file begins with record %d: %s removed from its start",
				name, were(name, seq-1))
		}

		return problem(KindChain, "by its name this file begins with record %d: it is another file, renamed", name)

	case !c.known && seq > 1:
		if e.Event != AuditRotated {
			return problem(KindChain, "records in front of this one were removed: a file that follows another begins with %s",
				AuditRotated)
		}
		if e.Rotated != nil && e.Rotated.File == "" {
			return problem(KindMissingFile, "%s not here: another program moved, deleted or cut their file while the log was open",
				are(e.Rotated.FirstSeq, e.Rotated.LastSeq))
		}

		return nil // older files are somewhere else
	case c.top.Seq+1 == seq && c.top.Hash == p.prev:
		// Also behind records that were altered or inserted. When the log is
		// started, it too goes on behind the last intact one.
		return nil
	case c.known && c.prev.Seq+1 == seq && (c.prev.Hash == p.prev || c.loose):
		return nil

	case v.hole(seq) > 0:
		return v.missing(problem, c.prev.Seq+1, seq-1, e.Rotated)
	case seq == c.prev.Seq+1:
		return problem(KindChain, "this record was written after another record %d than the one before it", seq-1)
	default:
		return problem(KindChain, "record %d stands behind record %d: it was moved or inserted", seq, c.prev.Seq)
	}
}

// missing returns the problem of missing records in front of the current line,
// which is r if it is the note of a rotation.
func (v *verifier) missing(problem func(Kind, string, ...any) *Problem, from, to uint64, r *Rotation) *Problem {
	first := v.records == 0 && v.before != ""
	switch {
	case r != nil && r.File == "" && first:
		return problem(KindMissingFile, "%s not here: another program moved, deleted or cut their file while the log was open",
			are(from, to))
	case r != nil && r.File == "":
		return problem(KindCutTail, "%s not here: another program cut them off while the log was open", are(from, to))
	case r != nil && first && r.File == v.before:
		p := problem(KindCutTail, "the end of this file was cut off: %s not here", are(from, to))
		p.File, p.Line, p.Seq = v.before, v.beforeLines+1, from

		return p
	case r != nil && first:
		// Escaped, as whoever writes a record can seal it.
		name, _ := EscapeRaw([]byte(r.File), capName)

		return problem(KindMissingFile, "%s not here: the file before this one, %s, held them up to record %d",
			are(from, to), name, r.LastSeq)
	case first && v.line == 1 && v.cur.first > 0:
		return problem(KindMissingFile, "%s not here: the file that held them is missing", are(from, to))
	default:
		return problem(KindChain, "%s missing in front of this record", are(from, to))
	}
}

// records names records by their numbers.
func records(from, to uint64) string {
	if from >= to {
		return fmt.Sprintf("record %d", from)
	}

	return fmt.Sprintf("records %d to %d", from, to)
}

// are and were are records with their verb.
func are(from, to uint64) string { return records(from, to) + verb(from, to, " is", " are") }

func were(from, to uint64) string { return records(from, to) + verb(from, to, " was", " were") }

func verb(from, to uint64, one, more string) string {
	if from >= to {
		return one
	}

	return more
}
