package main

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"sluicegate/internal/daemon"

	"github.com/spf13/cobra"
)

func (a *app) productsCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "products",
		Short: "List the agent products whose policy is shipped",
		Long: `List the agent products whose policy is embedded in the program, with their
profiles, ports and number of rules. The policy in force is shown by status.`,
		Example: "  sluicegate products --json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			shipped, err := daemon.Shipped()
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(a.out, shipped)
			}
			var b strings.Builder
			t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
			_, _ = fmt.Fprintln(t, "PROFILE\tSURFACE\tPORT\tALLOW\tDENY")
			for _, p := range shipped {
				_, _ = fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%d\n", p.Profile, p.Surface, p.Port, p.Allow, p.Deny)
			}
			_ = t.Flush()
			_, err = a.out.Write([]byte(b.String()))
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
