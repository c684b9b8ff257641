package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"sluicegate/internal/daemon"

	"github.com/lmittmann/tint"
	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// sameStop is how long after the first signal another one is taken for the same
// wish: timeout(1) and some supervisors signal the process and then its whole
// group, microseconds apart, and do not mean "at once" by that.
const sameStop = 300 * time.Millisecond

func (a *app) runCommand() *cobra.Command {
	var level string
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the gate in the foreground",
		Long: `Run the gate for the user who starts it. It listens on loopback only and serves
only connections of the same user. Without a policy folder the embedded policy
is used. The policy folder is watched: changes take effect within a second, and a
policy with faults is rejected while the last good one stays. SIGHUP loads it at
once, and opens the audit log anew where another program moved it away. Ctrl-C or SIGTERM stops the gate: live tunnels get 5 seconds, a second
signal ends it at once.`,
		Example: `  sluicegate run
  sluicegate run --config ./sluicegate.yaml --state-dir ./state`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var l slog.Level
			if err := l.UnmarshalText([]byte(level)); err != nil {
				return usageError(fmt.Sprintf("--log-level %q: use debug, info, warn or error", level))
			}
			return a.serve(cmd.Context(), l)
		},
	}
	cmd.Flags().StringVar(&level, "log-level", "info", "least level of the operator's log on standard error: debug, info, warn or error; the audit log is not affected")
	return cmd
}

func (a *app) serve(ctx context.Context, level slog.Level) error {
	paths, settings, err := a.load()
	if err != nil {
		return err
	}
	// Signals are caught before anything is open, so that none is lost.
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	again, stopAgain := reloadSignal()
	defer stopAgain()
	// Go ends a program that writes to a standard output or error nobody reads
	// any more. The gate must not go down with whoever watched it.
	signal.Ignore(syscall.SIGPIPE)
	logger := newLogger(a.err, level)
	// net/http prints what an origin sent unasked through the shared logger.
	log.SetFlags(0)
	log.SetOutput(slog.NewLogLogger(logger.Handler(), slog.LevelDebug).Writer())
	d, err := daemon.Start(ctx, daemon.Options{
		Paths: paths, Settings: settings, Version: version, Logger: logger,
	})
	if err != nil {
		return err
	}
	printStarted(a.out, d.Status())
	for running := true; running; {
		select {
		case <-again:
			d.ReopenLog()
			// The daemon records and logs what came of it.
			_, _ = d.Reload(ctx, daemon.TriggerSignal)
		case <-signals:
			running = false
		case <-ctx.Done():
			running = false
		}
	}
	first := time.Now()
	stopped := make(chan error, 1)
	go func() { stopped <- d.Shutdown(context.WithoutCancel(ctx), "signal") }()
	for {
		select {
		case err := <-stopped:
			return err
		case <-signals:
			if time.Since(first) >= sameStop {
				return &exitError{exitFailed, "stopped at once by a second signal; live tunnels were cut"}
			}
		}
	}
}

// newLogger writes for people on a terminal and JSON everywhere else.
func newLogger(w io.Writer, level slog.Level) *slog.Logger {
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return slog.New(tint.NewTextHandler(w, &tint.Options{
			Level: level, TimeFormat: time.TimeOnly, NoColor: os.Getenv("NO_COLOR") != "",
		}))
	}
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level}))
}

// printStarted shows what runs and one line to try.
func printStarted(w io.Writer, s daemon.Status) {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "PROFILE\tMODE\tNETWORK\tADDRESSES")
	for _, p := range s.Profiles {
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", p.Name, p.Mode, p.Network, addresses(p))
	}
	_ = t.Flush()
	_, _ = fmt.Fprintf(&b, "\npolicy  %s (%s)\naudit   %s\n", shortDigest(s.Policy.Digest), s.Policy.Source, s.Audit.File)
	if len(s.Profiles) == 0 {
		_, _ = fmt.Fprintln(&b, "\nThe policy has no profile, so nothing is served.")
	}
	for _, problem := range s.Problems {
		_, _ = fmt.Fprintf(&b, "\nDEGRADED  %s (sluicegate status says more)\n", problem)
	}
	if len(s.Profiles) > 0 {
		p := s.Profiles[len(s.Profiles)-1]
		for _, other := range s.Profiles {
			if strings.HasSuffix(other.Name, "/commands") {
				p = other
			}
		}
		_, _ = fmt.Fprintf(&b, "\ntry     curl -v -x http://%s https://example.com/   (refused, with the reason and an event id)\n", p.Addresses[0])
	}
	_, _ = io.WriteString(w, b.String())
}

// shortDigest is enough of a digest to compare by eye.
func shortDigest(d string) string {
	const shown = len("sha256:") + 12
	if len(d) > shown {
		return d[:shown]
	}
	return d
}
