package audit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Kind is what is wrong with a log at one place.
type Kind string

// Kinds of problems.
const (
	// KindAltered is a record whose bytes are not the ones that were hashed.
	KindAltered Kind = "altered"
	// KindChain is an unaltered record that doesn't follow the one before it:
	// records were removed, inserted, moved or written anew.
	KindChain Kind = "chain"
	// KindNotRecord is a line that is not a record, and that the log itself did
	// not leave behind as an unfinished one.
	KindNotRecord Kind = "not_record"
	// KindSchema is a sound record of a schema that this program can't read.
	KindSchema Kind = "schema"
	// KindMissingFile is a hole between two files: a whole file is not there.
	KindMissingFile Kind = "missing_file"
	// KindCutTail is the end of a file, or of the log, that is not there.
	KindCutTail Kind = "cut_tail"
)

// Problem is one fault of a log.
type Problem struct {
	// File is the base name of the file; Line the number of the line in it, from
	// 1. Where lines are missing, it is the one that shows it, or the one behind
	// the last one of a file whose end is missing.
	File string `json:"file"`
	Line int    `json:"line"`
	// Seq is what the line says of itself, 0 if it is not a record. Where the end
	// of a file is missing, it is the first record that is.
	Seq  uint64 `json:"seq,omitempty"`
	Kind Kind   `json:"kind"`
	// Text says for people what is wrong.
	Text string `json:"text"`
}

// Report is what [Verify] found.
type Report struct {
	// Files and Records count what was read. Lines that are no records are not
	// counted as such.
	Files   int    `json:"files"`
	Records uint64 `json:"records"`
	// First and Last are the numbers of the first and the last record, 0 if there
	// is none. If First is more than 1, older files are not here.
	First uint64 `json:"first_seq"`
	Last  uint64 `json:"last_seq"`
	// LastHash is the hash of the last record, as it is written.
	LastHash string `json:"last_hash"`
	// Problem is the first problem, nil if there is none; Problems is how many
	// there are.
	Problem  *Problem `json:"problem,omitempty"`
	Problems int      `json:"problems"`
	// TornBytes is the length of an unfinished line at the end of the live file:
	// it is being written, or the last run was killed. That is no problem.
	TornBytes int64 `json:"torn_bytes,omitempty"`
	// Unfinished counts lines that the log left behind unfinished and accounted
	// for in an audit.gap. Their bytes are covered by no hash.
	Unfinished int `json:"unfinished_lines,omitempty"`
	// Gaps counts the audit.gap records, in which the log itself says what it
	// lost; Dropped is how many records it says it could not write.
	Gaps    int `json:"gaps,omitempty"`
	Dropped int `json:"dropped,omitempty"`
}

// OK reports whether no problem was found.
func (r Report) OK() bool { return r.Problems == 0 }

// Verify checks the chain of the log at path over all its files, the oldest
// first: that every line is a record whose bytes are the ones that were hashed
// and that follows the one before it, as [CheckLine] does. It goes on behind a
// problem. Memory stays bounded, and the log may be written meanwhile: what was
// written before Verify was called is checked.
//
// It doesn't see that the end of the log was cut off, nor that somebody who may
// write the files wrote all of them anew; for that see [VerifyWitness]. Nor does
// it see changes within an unfinished line that the log left behind and accounted
// for, as no hash covers one.
//
// The error says why the log could not be read, and wraps fs.ErrNotExist if there
// is none. The report then holds what was found before that.
func Verify(ctx context.Context, path string) (Report, error) {
	return VerifyWitness(ctx, path, Link{})
}

// VerifyWitness is [Verify] with what somebody else knows about the log: a record
// that was in it before VerifyWitness was called. If that isn't there, or has
// another hash, the end was cut off or the log was written anew; that no file is
// there at all is then a problem and no error. The zero Link is no witness.
func VerifyWitness(ctx context.Context, path string, witness Link) (r Report, err error) {
	v := verifier{
		trail:   trail{path: path},
		witness: witness,
		lines:   newLineReader(),
		sealer:  newSealer(),
	}
	defer func() {
		r.Last, r.LastHash = v.last.Seq, v.last.HashString()
		if cerr := v.close(); err == nil {
			err = cerr
		}
	}()

	if err = v.findEnd(); errors.Is(err, fs.ErrNotExist) && witness.Seq > 0 {
		v.problem(Problem{
			File: filepath.Base(path), Line: 1, Seq: witness.Seq, Kind: KindMissingFile,
			Text: fmt.Sprintf("no file of this log is here, although record %d was written", witness.Seq),
		})

		return v.report, nil
	} else if err != nil {
		return v.report, err
	}
	for {
		more, err := v.advance()
		if err == nil && more {
			err = v.file(ctx)
		}
		if err != nil {
			return v.report, err
		}
		if !more || os.SameFile(v.cur.info, v.newest) {
			break
		}
	}
	v.end()

	return v.report, nil
}

// ParseLink returns the Link with the number seq and a hash as it is written, such
// as those of [Stats].
func ParseLink(seq uint64, hash string) (Link, error) {
	l := Link{Seq: seq}
	if _, ok := cutHex([]byte(hash), "", "", &l.Hash); !ok || len(hash) != hexLen {
		return Link{}, fmt.Errorf("%q is not a hash in hex", hash)
	}

	return l, nil
}

// verifier is the state of one Verify.
type verifier struct {
	trail
	// newest is the last file to read: a busy log would never end.
	newest fs.FileInfo

	witness Link
	report  Report
	lines   *lineReader
	sealer  *sealer
	place   place
	// last is the last line that has the form of a record, as it says.
	last Link

	// line is the number of the current line in cur, records counts those in cur
	// before it.
	line    int
	records int
	// before is the file before cur, "" if there is none, and beforeLines how many
	// lines it has.
	before      string
	beforeLines int

	// torn is the line at the very end of what was read so far if no newline ends
	// it and it is no record.
	torn suspect
	// suspected counts lines that are no records and of which it isn't known yet
	// whether the log left them behind itself, which the audit.gap behind them
	// says; suspectBytes is their length, blank whether one is empty, firstSuspect
	// the problem if it didn't.
	suspected    int
	suspectBytes int64
	blank        bool
	firstSuspect Problem
}

// suspect is a line that is no record.
type suspect struct {
	length  int64
	problem Problem
}

// findEnd finds the newest file of the log as it is now.
func (v *verifier) findEnd() error {
	dir, base := filepath.Split(v.path)
	newest, err := openTrailFile(dir, base, 0)
	if errors.Is(err, fs.ErrNotExist) {
		// Between a rotation and the first line of the new file.
		rotated, lerr := v.listOnce()
		if lerr != nil {
			return lerr
		}
		if len(rotated) == 0 {
			return fmt.Errorf("there is no audit log at %s: %w", v.path, fs.ErrNotExist)
		}
		last := rotated[len(rotated)-1]
		newest, err = openTrailFile(dir, last.name, last.first)
	}
	if err != nil {
		return fmt.Errorf("reading audit log: %w", err)
	}

	v.newest = newest.info

	return newest.Close()
}

// advance opens the next file. It reports false behind the last one.
func (v *verifier) advance() (more bool, err error) {
	next, err := v.next()
	if next == nil || err != nil {
		return false, err
	}

	if v.cur != nil {
		v.before, v.beforeLines = v.cur.name, v.line
	}
	err = v.close()
	v.cur = next
	v.line, v.records = 0, 0
	v.report.Files++

	return true, err
}

// file checks the lines of cur.
func (v *verifier) file(ctx context.Context) error {
	info, err := v.cur.Stat()
	if err != nil {
		return fmt.Errorf("reading audit log: %w", err)
	}

	v.lines.reset(contextReader{ctx, io.NewSectionReader(v.cur, 0, info.Size())})
	for {
		line, err := v.lines.next()
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		v.line++
		v.check(line)
	}
}

// check checks one line.
func (v *verifier) check(line rawLine) {
	if v.torn.length > 0 { // it was the end of an older file
		v.suspect(v.torn)
		v.torn = suspect{}
	}

	if p, ok := splitLine(line.text); ok {
		v.record(line.text, &p)

		return
	}
	s := suspect{line.length, v.at(KindNotRecord, 0, "this line is not a record")}
	if line.text == nil {
		s.problem.Text = fmt.Sprintf("this line of %d bytes is longer than any record", line.length)
	}
	if line.ended {
		v.suspect(s)
	} else {
		v.torn = s
	}
}

// suspect takes note of a line that is no record.
func (v *verifier) suspect(s suspect) {
	if v.suspected == 0 {
		v.firstSuspect = s.problem
	}
	v.suspected++
	v.suspectBytes += s.length
	v.blank = v.blank || s.length == 0
}

// settle decides about the suspects in front of a record, or of the end.
// unfinished is how many bytes of unfinished lines the log says it left behind.
func (v *verifier) settle(unfinished int64) {
	switch {
	case v.suspected == 0:
	case v.suspectBytes <= unfinished && !v.blank: // an unfinished line has something in it
		v.report.Unfinished += v.suspected
	default:
		v.problem(v.firstSuspect)
		v.report.Problems += v.suspected - 1
	}
	v.suspected, v.suspectBytes, v.blank = 0, 0, false
}

// end takes stock behind the last line.
func (v *verifier) end() {
	v.settle(0)
	v.report.TornBytes = v.torn.length
	if v.place.top.Seq < v.witness.Seq {
		problem := v.at(KindCutTail, v.place.top.Seq+1, fmt.Sprintf(
			"the end of the log was cut off: %s not here, although written before", are(v.place.top.Seq+1, v.witness.Seq)))
		if v.torn.length == 0 {
			problem.Line++
		}
		v.problem(problem)
	}
}

// at returns a problem of the current line.
func (v *verifier) at(kind Kind, seq uint64, text string) Problem {
	return Problem{File: v.cur.name, Line: v.line, Seq: seq, Kind: kind, Text: text}
}

// problem takes note of a problem.
func (v *verifier) problem(p Problem) {
	if v.report.Problem == nil {
		v.report.Problem = &p
	}
	v.report.Problems++
}
