package main

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"sluicegate/internal/daemon"

	"github.com/spf13/cobra"
)

func (a *app) statusCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the running gate: health, policy, listeners, counters",
		Long: `Show the state of the running daemon.

Exit code 0: healthy, 3: no daemon answers, 4: degraded.`,
		Example: `  sluicegate status
  sluicegate status --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := a.client()
			if err != nil {
				return err
			}
			var s daemon.Status
			if err := client.Get(cmd.Context(), daemon.RouteStatus, nil, &s); err != nil {
				return err
			}
			if asJSON {
				err = printJSON(a.out, s)
			} else {
				err = printStatus(a, s)
			}
			if err != nil {
				return err
			}
			if s.Health != daemon.HealthOK {
				return &exitError{code: exitDegraded}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func printStatus(a *app, s daemon.Status) error {
	var b strings.Builder
	_, _ = fmt.Fprintf(&b, "health   %s\n", s.Health)
	for _, p := range s.Problems {
		_, _ = fmt.Fprintf(&b, "         %s\n", p)
	}
	_, _ = fmt.Fprintf(&b, "daemon   %s, pid %d, up %s\n", s.Version, s.PID, time.Since(s.Started).Round(time.Second))
	_, _ = fmt.Fprintf(&b, "policy   %s (%s), since %s\n", shortDigest(s.Policy.Digest), s.Policy.Source, s.Policy.Since.Local().Format(time.DateTime))
	for _, n := range s.Policy.Notices {
		_, _ = fmt.Fprintf(&b, "         notice: %s\n", n)
	}
	if r := s.Policy.Rejected; r != nil {
		_, _ = fmt.Fprintf(&b, "rejected %s by %s\n", r.Time.Local().Format(time.DateTime), r.Trigger)
		for _, e := range r.Errors {
			_, _ = fmt.Fprintf(&b, "         %s\n", e)
		}
	}
	_, _ = fmt.Fprintf(&b, "audit    %s, record %d, %d dropped\n", s.Audit.File, s.Audit.LastSeq, s.Audit.Dropped)
	_, _ = fmt.Fprintf(&b, "traffic  %d connections, %d live flows, %d opened, %d refused\n\n",
		s.Traffic.Connections, s.Traffic.Flows, s.Traffic.Opened, s.Traffic.Refused)
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "PROFILE\tMODE\tNETWORK\tALLOW\tDENY\tADDRESSES")
	for _, p := range s.Profiles {
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%d\t%s\n", p.Name, p.Mode, p.Network, p.Allow, p.Deny, addresses(p))
	}
	_ = t.Flush()
	_, err := a.out.Write([]byte(b.String()))
	return err
}

// addresses lists where a profile listens.
func addresses(p daemon.ProfileStatus) string {
	out := strings.Join(p.Addresses, " ")
	if len(p.DNS) > 0 {
		out += " dns " + strings.Join(p.DNS, " ")
	}
	if p.Unix != "" {
		out += " unix " + p.Unix
	}
	return out
}
