package main

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"sluicegate/internal/daemon"

	"github.com/spf13/cobra"
)

func (a *app) explainCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "explain EVENT-ID",
		Short: "Explain a refusal or another event of the audit log",
		Long: `Explain an event: what was asked, what was decided, by which rule, and what can
be done. The event id stands in every refusal. The running daemon is asked, and
only the user it runs as gets an answer.`,
		Example: "  sluicegate explain 01890a5d-ac96-774b-bcce-b302099a8057",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := a.client()
			if err != nil {
				return err
			}
			var x daemon.Explanation
			if err := client.Get(cmd.Context(), daemon.RouteExplain, url.Values{"id": {args[0]}}, &x); err != nil {
				return err
			}
			if asJSON {
				return printJSON(a.out, x)
			}
			return printExplanation(a, x)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func printExplanation(a *app, x daemon.Explanation) error {
	e := x.Event
	var b strings.Builder
	line := func(name, format string, args ...any) {
		// A record may hold what a client or an intruder chose.
		_, _ = fmt.Fprintf(&b, "%-9s%s\n", name, escapeText(fmt.Sprintf(format, args...)))
	}
	line("event", "%s  %s", e.Event, e.Msg)
	line("when", "%s (record %d)", e.Time.Local().Format(time.DateTime), e.Seq)
	if e.Profile != "" {
		line("who", "%s%s%s", e.Profile, nonEmpty(", user ", e.User), nonEmpty(", mode ", e.Mode))
	}
	if e.Request != nil {
		line("asked", "%s %s", e.Request.Method, e.Request.TargetRaw)
	}
	if e.Reason != "" {
		reason := e.Reason
		if e.Would != "" {
			reason = e.Would + " (let through by mode observe)"
		}
		line("reason", "%s: %s", reason, x.Meaning)
		line("cause", "%s", x.Cause)
	}
	if e.Rule != nil && e.Rule.File != "" {
		line("rule", "%s (%s:%d)", e.Rule.ID, e.Rule.File, e.Rule.Line)
	} else if e.Reason != "" {
		line("rule", "none: %s", noRule(e.Layer))
	}
	if x.Why != "" {
		line("why", "%s", x.Why)
	}
	for _, r := range e.Resolved {
		line("address", "%s (%s)", r.IP, r.Class)
	}
	if e.MatchedRange != "" {
		line("range", "%s", e.MatchedRange)
	}
	if e.Policy != nil {
		state := "no longer in force"
		if x.Current {
			state = "in force"
		}
		line("policy", "%s (%s), %s", shortDigest(e.Policy.Digest), e.Policy.Source, state)
	}
	if e.Decision == "deny" || e.Decision == "error" || e.Decision == "would_deny" {
		line("mend", "%s", x.Mend)
	}
	_, err := a.out.Write([]byte(b.String()))
	return err
}

func noRule(layer string) string {
	if layer == "builtin" || layer == "" {
		return "the gate itself decided"
	}
	return "the profile's default decided"
}

func nonEmpty(prefix, s string) string {
	if s == "" {
		return ""
	}
	return prefix + s
}
