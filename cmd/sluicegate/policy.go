package main

import (
	"fmt"

	"sluicegate/internal/daemon"

	"github.com/spf13/cobra"
)

func (a *app) policyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "policy",
		Short:   "Work with the policy",
		Example: "  sluicegate policy reload",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.policyReloadCommand())
	return cmd
}

func (a *app) policyReloadCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "reload",
		Short: "Load the policy now and return when it is in force",
		Long: `Tell the running daemon to load the policy now. The command returns when the
policy is in force; a policy with faults is rejected, its faults are printed and
the last good one stays.

Exit code 0: in force, 1: rejected, 3: no daemon answers.`,
		Example: "  sluicegate policy reload",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := a.client()
			if err != nil {
				return err
			}
			var r daemon.Reloaded
			if err := client.Post(cmd.Context(), daemon.RouteReload, nil, &r); err != nil {
				return err
			}
			text := "unchanged"
			if r.Changed {
				text = "in force"
			}
			_, err = fmt.Fprintf(a.out, "%s  %s\n", shortDigest(r.Digest), text)
			return err
		},
	}
}
