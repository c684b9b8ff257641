package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"sluicegate/internal/control"
	"sluicegate/internal/daemon"
	"sluicegate/policy"

	"github.com/spf13/cobra"
)

// app is what all commands share.
type app struct {
	out, err io.Writer
	config   string
	stateDir string
}

// run executes one command line and returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	a := &app{out: stdout, err: stderr}
	root := a.root()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err != nil && err.Error() != "" {
		printError(stderr, err)
	}
	return exitCode(err)
}

// printError prints an error as "sluicegate: …" and, where there is one, a hint.
func printError(w io.Writer, err error) {
	var problems policy.Problems
	if errors.As(err, &problems) {
		_, _ = fmt.Fprintf(w, "sluicegate: %d problem(s) in the configuration:\n%s\n", len(problems), problems.Error())
		return
	}
	var api *control.APIError
	if errors.As(err, &api) {
		_, _ = fmt.Fprintf(w, "sluicegate: %s\n", api.Message)
		if api.Hint != "" {
			_, _ = fmt.Fprintf(w, "  %s\n", api.Hint)
		}
		return
	}
	_, _ = fmt.Fprintf(w, "sluicegate: %s\n", strings.TrimSpace(err.Error()))
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "sluicegate",
		Short: "The gate through which AI agents on a workstation reach the network",
		Long: `Sluicegate is the proxy that sandboxed AI agents must use. It lets through what
the policy lists, refuses everything else with a reason, and writes every
refusal to an audit log.

Exit codes: 0 ok, 1 a check said no or the command failed, 2 wrong usage,
3 no daemon answers, 4 the daemon is degraded.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cmd.Help()
		},
	}
	root.PersistentFlags().StringVar(&a.config, "config", "", "settings file (default: sluicegate.yaml in the user's configuration folder)")
	root.PersistentFlags().StringVar(&a.stateDir, "state-dir", "", "folder of the audit log and the control socket (default: the user's state folder)")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError(err.Error() + ": see \"" + cmd.CommandPath() + " --help\"")
	})
	root.AddCommand(a.runCommand(), a.checkCommand(), a.explainCommand(), a.statusCommand(), a.tailCommand(), a.auditCommand(), a.policyCommand(), a.productsCommand(), a.pairCommand(), a.envCommand(), a.versionCommand())
	a.completionCommand(root)
	helpForKnown(root)
	wrapArgs(root)
	return root
}

// helpForKnown makes help about a command that does not exist an error: cobra's
// own shows the help of the root command and succeeds.
func helpForKnown(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	for _, c := range root.Commands() {
		if c.Name() == "help" {
			c.Args = func(_ *cobra.Command, args []string) error {
				if _, rest, err := root.Find(args); err != nil || len(rest) > 0 {
					return fmt.Errorf("there is no command %q", strings.Join(args, " "))
				}
				return nil
			}
		}
	}
}

// wrapArgs makes wrong arguments a usage error on cmd and every command below it.
func wrapArgs(cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		wrapArgs(c)
	}
	check := cmd.Args
	if check == nil {
		check = cobra.NoArgs
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return usageError(err.Error() + ": see \"" + cmd.CommandPath() + " --help\"")
		}
		return nil
	}
}

// load finds the paths and reads the settings.
func (a *app) load() (daemon.Paths, daemon.Settings, error) {
	paths, err := daemon.UserPaths(a.config, a.stateDir)
	if err != nil {
		return paths, daemon.Settings{}, err
	}
	settings, err := daemon.LoadSettings(paths, a.config != "")
	return paths, settings, err
}

// client reaches the daemon of the same settings.
func (a *app) client() (*control.Client, error) {
	paths, err := daemon.UserPaths(a.config, a.stateDir)
	if err != nil {
		return nil, err
	}
	return control.NewClient(paths.Control), nil
}
