package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"sluicegate/audit"

	"github.com/spf13/cobra"
)

// tailOptions are the flags of tail.
type tailOptions struct {
	file               string
	follow, json, fold bool
	n                  int
	filter             filterFlags
}

func (a *app) tailCommand() *cobra.Command {
	var o tailOptions
	cmd := &cobra.Command{
		Use:   "tail",
		Short: "Show the records of the audit log, and follow it",
		Long: `Show the newest records of the audit log, one line each: time, decision, reason,
profile, protocol, destination, rule or detail, event id. Rotated files are read
too where -n or --since reach back. With -f it goes on with what is written,
until Ctrl-C; rotation loses nothing. It needs no running daemon, only the right
to read the files.

Whatever a record holds is shown as printable characters: others are written as
\u001b. --json prints the lines of the log as they are. Lines that are no records
are named on standard error; "audit verify" says what is wrong with them.`,
		Example: `  sluicegate tail
  sluicegate tail -f --decision deny --fold
  sluicegate tail --since 2h --host '**.example.com'
  sluicegate tail -n 1000 --reason not_listed --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			since := cmd.Flags().Changed("since")
			follow, err := o.options(since, since && !cmd.Flags().Changed("lines"), time.Now())
			if err != nil {
				return err
			}
			file, err := a.auditFile(o.file)
			if err != nil {
				return err
			}
			return a.tail(cmd.Context(), file, &o, follow)
		},
	}
	f := cmd.Flags()
	f.BoolVarP(&o.follow, "follow", "f", false, "go on with what is written")
	f.IntVarP(&o.n, "lines", "n", 20, "number of records to begin with; with --since all, unless it is given")
	f.StringVar(&o.file, "file", "", "live file of the log (default: audit.file of the settings)")
	f.BoolVar(&o.json, "json", false, "print the lines of the log unchanged")
	f.BoolVar(&o.fold, "fold", false, "show identical refusals that follow each other once, with their number; not with --json")
	o.filter.register(cmd, a)
	return cmd
}

// auditFile is the live file of the log: file if it is given, else that of the
// settings.
func (a *app) auditFile(file string) (string, error) {
	if file != "" {
		return file, nil
	}
	_, settings, err := a.load()
	return settings.AuditFile, err
}

// options reads the flags. all tells to begin with all records since a time.
func (o *tailOptions) options(since, all bool, now time.Time) (audit.FollowOptions, error) {
	if o.n < 0 {
		return audit.FollowOptions{}, usageError(fmt.Sprintf("-n %d: give 0 or more", o.n))
	}
	filter, err := o.filter.parse(since, now)
	if err != nil {
		return audit.FollowOptions{}, err
	}
	f := audit.FollowOptions{Filter: filter, Last: o.n, Wait: o.follow}
	if all {
		f.Last = -1
	}
	return f, nil
}

func (a *app) tail(ctx context.Context, file string, o *tailOptions, follow audit.FollowOptions) error {
	ctx, stop := stopSignals(ctx)
	defer stop()

	p := newPrinter(a, file, o)
	follow.Damaged = p.damaged
	follow.Idle = func() error { return p.idle(time.Now()) }
	err := audit.Follow(ctx, file, follow, func(line []byte, e *audit.Event) error {
		return p.record(line, e, time.Now())
	})
	if errors.Is(err, context.Canceled) && o.follow {
		err = nil // how following ends
	}
	if err == nil {
		err = p.end()
	}
	if isClosedPipe(err) {
		return nil
	}
	return err
}

// stopSignals returns a context that ends with the first signal to stop; the next
// one ends the program at once, should nobody read what is printed. It keeps a
// reader that goes away from killing the program: the write fails instead.
func stopSignals(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	pipe := make(chan os.Signal, 1)
	signal.Notify(pipe, syscall.SIGPIPE)
	cancel := context.AfterFunc(ctx, stop)
	return ctx, func() {
		cancel()
		stop()
		signal.Stop(pipe)
	}
}

// printer prints what tail reads. Its methods return the error of writing to
// standard output.
type printer struct {
	out  *bufio.Writer
	err  io.Writer
	json bool
	fold bool
	// live is the base name of the live file, which needs no naming.
	live string

	columns   *columns
	folder    folder
	errColour bool

	// bad are lines that are no records: the last one, and how many of them are
	// not named yet.
	bad     audit.Damage
	unnamed int
}

func newPrinter(a *app, file string, o *tailOptions) *printer {
	p := &printer{
		out: bufio.NewWriter(a.out), err: a.err, json: o.json, fold: o.fold && !o.json, live: filepath.Base(file),
		columns: newColumns(wantsColour(a.out, os.Getenv), time.Now()), errColour: wantsColour(a.err, os.Getenv),
	}
	p.folder = folder{columns: p.columns, live: o.follow}
	return p
}

// wantsColour tells whether to colour what goes to w.
func wantsColour(w io.Writer, getenv func(string) string) bool {
	f, ok := w.(*os.File)
	return ok && getenv("NO_COLOR") == "" && getenv("TERM") != "dumb" && understandsColour(f)
}

// record prints one record.
func (p *printer) record(line []byte, e *audit.Event, now time.Time) error {
	p.nameDamaged()
	switch {
	case p.json:
		_, _ = p.out.Write(line)
		return p.out.WriteByte('\n')
	case p.fold:
		_, err := p.out.WriteString(p.folder.add(e, now))
		return err
	default:
		_, err := p.out.WriteString(p.columns.line(e, ""))
		return err
	}
}

// idle is called when there is nothing more to read for now.
func (p *printer) idle(now time.Time) error {
	p.nameDamaged()
	if p.fold {
		_, _ = p.out.WriteString(p.folder.idle(now)) // Flush has the error
	}
	return p.out.Flush()
}

// end prints what is still held back.
func (p *printer) end() error {
	p.nameDamaged()
	if p.fold {
		_, _ = p.out.WriteString(p.folder.flush())
	}
	return p.out.Flush()
}

// damaged names a line that is no record: the first one of several in a row at
// once, the others together, as a damaged file can have millions.
func (p *printer) damaged(d audit.Damage) {
	next := d.File == p.bad.File && d.Line == p.bad.Line+1
	if next && errors.Is(d.Err, audit.ErrSchema) == errors.Is(p.bad.Err, audit.ErrSchema) {
		p.bad = d
		p.unnamed++
		return
	}
	p.nameDamaged()
	p.bad, p.unnamed = d, 1
	p.nameDamaged()
}

// nameDamaged names the lines that are not named yet.
func (p *printer) nameDamaged() {
	if p.unnamed == 0 {
		return
	}
	where := ""
	if p.bad.File != p.live {
		where = " of " + p.bad.File
	}
	one, more := "is not a record", "are not records"
	if errors.Is(p.bad.Err, audit.ErrSchema) {
		one, more = "has an unknown schema", "have an unknown schema"
	}
	text := fmt.Sprintf("(line %d%s %s)", p.bad.Line, where, one)
	if p.unnamed > 1 {
		text = fmt.Sprintf("(lines %d to %d%s %s)", p.bad.Line-p.unnamed+1, p.bad.Line, where, more)
	}
	p.unnamed = 0
	_ = p.out.Flush() // in the order of the log, where both go to one terminal
	c := columns{colour: p.errColour}
	_, _ = io.WriteString(p.err, c.paint(ansiDim, escapeText(text))+"\n")
}
