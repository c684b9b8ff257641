package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"sluicegate/audit"
	"sluicegate/internal/control"
	"sluicegate/internal/daemon"

	"github.com/spf13/cobra"
)

// Exit codes of audit verify, beside exitOK.
const (
	exitAltered    = 10
	exitCut        = 11
	exitUnreadable = 12
)

// witnessTimeout is how long audit verify waits for the daemon's answer.
const witnessTimeout = 2 * time.Second

func (a *app) auditCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Work on the audit log",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cmd.Help()
		},
	}
	cmd.AddCommand(a.auditVerifyCommand(), a.auditSchemaCommand())
	return cmd
}

func (a *app) auditSchemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of the audit log's lines",
		Long: `Print the JSON Schema (draft 2020-12) of one line of the audit log, for the
collector that parses it. Keys that it does not know are allowed: a later version
may add some without a new name of the schema.`,
		Example: `  sluicegate audit schema >sluicegate-audit.schema.json`,
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := a.out.Write(audit.JSONSchema())
			return err
		},
	}
}

func (a *app) auditVerifyCommand() *cobra.Command {
	var (
		file   string
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Check that the audit log is complete and unaltered",
		Long: `Check the hash chain of the audit log over all its files, the oldest first, and
report the first problem: its file and line, and what it is.

  altered       the bytes of a record are not the ones that were hashed
  chain         records were removed, inserted, moved or written anew
  not_record    a line is not a record, and not one the log left unfinished
  missing_file  a whole file is not there
  cut_tail      the end of a file, or of the log, is not there
  schema        a record has a schema that this program can't read

If the daemon of the same settings runs and writes this log, what it wrote before
the check began must be there. Without it nobody can tell that the end was cut
off, nor that all files were written anew. A log whose older files were moved
elsewhere is checked from its first record on.

Exit code 0: ok, 10: altered, chain or not_record, 11: missing_file or cut_tail,
12: the log can't be read, or schema. Of several problems the first one counts.`,
		Example: `  sluicegate audit verify
  sluicegate audit verify --file ./evidence/audit.jsonl --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			file, err := a.auditFile(file)
			if err != nil {
				return err
			}
			v, err := a.verify(cmd.Context(), file)
			if err != nil {
				return err
			}
			if asJSON {
				err = printJSON(a.out, v)
			} else {
				err = v.print(a)
			}
			if err == nil && v.code != exitOK {
				err = &exitError{code: v.code}
			}
			return err
		},
	}
	cmd.Flags().StringVar(&file, "file", "", "live file of the log (default: audit.file of the settings)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// logVerdict is the result of audit verify; its JSON keys are stable.
type logVerdict struct {
	// Verdict is ok, the kind of the first problem, or unreadable.
	Verdict string `json:"verdict"`
	// File is the live file of the log.
	File string `json:"file"`
	audit.Report
	// Error is why the log can't be read.
	Error string `json:"error,omitempty"`
	// Notes are what should be known besides.
	Notes []string `json:"notes,omitempty"`
	code  int
}

// verify checks the log of a live file. The error is only that of ctx.
func (a *app) verify(ctx context.Context, file string) (*logVerdict, error) {
	// The daemon is asked first: what it had written by then must be there.
	witness, note := a.witness(ctx, file)
	r, err := audit.VerifyWitness(ctx, file, witness)
	if cerr := ctx.Err(); err != nil && cerr != nil {
		return nil, cerr
	}
	v := &logVerdict{Verdict: "ok", File: file, Report: r}
	switch {
	case err != nil:
		v.Verdict, v.Error, v.code = "unreadable", err.Error(), exitUnreadable
	case r.Problem != nil:
		v.Verdict, v.code = string(r.Problem.Kind), exitCodes[r.Problem.Kind]
	}
	v.note(note)
	return v, nil
}

// exitCodes are the exit codes of the kinds of problems.
var exitCodes = map[audit.Kind]int{
	audit.KindAltered: exitAltered, audit.KindChain: exitAltered, audit.KindNotRecord: exitAltered,
	audit.KindMissingFile: exitCut, audit.KindCutTail: exitCut,
	audit.KindSchema: exitUnreadable,
}

// witness asks the daemon for the last record that it wrote to the log. Where it
// can't tell, the result is the zero Link. note says for people which it is.
func (a *app) witness(ctx context.Context, file string) (last audit.Link, note string) {
	const unseen = "; a tail that was cut off can't be seen without it"
	client, err := a.client()
	if err != nil {
		return last, "where the daemon listens is not known (" + err.Error() + ")" + unseen
	}
	ctx, cancel := context.WithTimeout(ctx, witnessTimeout)
	defer cancel()
	var s daemon.Status
	switch err := client.Get(ctx, daemon.RouteStatus, nil, &s); {
	case errors.Is(err, control.ErrUnreachable):
		return last, "no daemon answers" + unseen
	case err != nil:
		return last, "the daemon can't be asked (" + err.Error() + ")" + unseen
	case !sameFile(s.Audit.File, file):
		return last, "the running daemon writes another log, " + s.Audit.File + ": a tail that was cut off can't be seen"
	case s.Audit.LastSeq == 0:
		return last, "the running daemon has written no record yet"
	}
	last, err = audit.ParseLink(s.Audit.LastSeq, s.Audit.LastHash)
	if err != nil {
		return audit.Link{}, "the daemon's last hash can't be read" + unseen
	}
	return last, fmt.Sprintf("compared with the running daemon, which had written up to record %d", last.Seq)
}

// sameFile tells whether two paths name one file, or would if there were one.
func sameFile(a, b string) bool {
	if x, err := os.Stat(a); err == nil {
		y, err := os.Stat(b)
		return err == nil && os.SameFile(x, y)
	}
	x, errX := filepath.Abs(a)
	y, errY := filepath.Abs(b)
	return errX == nil && errY == nil && x == y
}

// note collects what should be known besides the verdict.
func (v *logVerdict) note(about string) {
	add := func(format string, args ...any) { v.Notes = append(v.Notes, fmt.Sprintf(format, args...)) }
	if v.First > 1 {
		add("starts at record %d; older files are not here", v.First)
	}
	if v.TornBytes > 0 {
		add("the last line is unfinished (%d bytes): it is being written, or the last run was killed", v.TornBytes)
	}
	if v.Unfinished > 0 {
		add("the log accounts for %d line(s) it left unfinished; no hash covers what is in them", v.Unfinished)
	}
	if v.Gaps > 0 {
		add("the log itself tells of losses in %d audit.gap record(s); %d record(s) could not be written", v.Gaps, v.Dropped)
	}
	if v.code != exitUnreadable || v.Problem != nil {
		add("%s", about)
	}
}

// print prints the verdict on one line and the notes below it.
func (v *logVerdict) print(a *app) error {
	var b strings.Builder
	p := v.Problem
	switch {
	case v.Error != "":
		_, _ = fmt.Fprintf(&b, "unreadable: %s\n", v.Error)
	case p != nil:
		_, _ = fmt.Fprintf(&b, "%s: %s:%d: %s", v.Verdict, filepath.Join(filepath.Dir(v.File), p.File), p.Line, p.Text)
		if p.Seq > 0 && p.Kind != audit.KindCutTail {
			_, _ = fmt.Fprintf(&b, " (record %d)", p.Seq)
		}
		_, _ = fmt.Fprintf(&b, "; %s in %s\n", plural(uint64(v.Problems), "problem"), plural(v.Records, "record"))
	case v.Records == 0:
		_, _ = fmt.Fprintf(&b, "ok: no records in %s\n", plural(uint64(v.Files), "file"))
	default:
		_, _ = fmt.Fprintf(&b, "ok: %s in %s, %d to %d, last hash %s\n",
			plural(v.Records, "record"), plural(uint64(v.Files), "file"), v.First, v.Last, v.LastHash)
	}
	for _, note := range v.Notes {
		_, _ = fmt.Fprintf(&b, "    %s\n", note)
	}
	_, err := a.out.Write([]byte(b.String()))
	return err
}

// plural returns a number with its noun.
func plural(n uint64, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}
