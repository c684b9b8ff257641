package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"sluicegate/internal/control"
	"sluicegate/internal/daemon"
	"sluicegate/internal/pair"

	"github.com/spf13/cobra"
)

func (a *app) envCommand() *cobra.Command {
	var (
		profile  string
		shell    string
		variants pair.Variants
	)
	cmd := &cobra.Command{
		Use:   "env",
		Short: "Print the variables that make other tools use the gate",
		Long: `Print the environment variables that make tools use the listener of a profile, in
the language of a shell: HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY, in both
cases. NO_PROXY lists loopback alone, because a client never asks the gate for
what is listed there.

ALL_PROXY is an http URL too: many tools fail at the sight of a SOCKS one.
--socks makes it socks5h, for tools that speak nothing else. --java adds
JAVA_TOOL_OPTIONS, because a JVM does not read the other variables.

The address is that of the running gate, or without one the fixed port of the
policy. Variables are advice: a tool can ignore them, a sandbox makes it listen.

Exit code 3: the port is not fixed and no daemon answers.`,
		Example: `  sluicegate env --profile claude-code/commands
  sluicegate env --profile claude-code/commands --shell fish | source
  sluicegate env --profile claude-code/commands --java --shell json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if profile == "" {
				return usageError("--profile is missing: name product/profile, such as claude-code/commands")
			}
			if !slices.Contains(pair.Shells, shell) {
				return usageError(fmt.Sprintf("--shell %q: use %s", shell, strings.Join(pair.Shells, ", ")))
			}
			addr, err := a.listener(cmd.Context(), profile)
			if err != nil {
				return err
			}
			text, err := pair.Render(shell, pair.Variables(addr, variants))
			if err != nil {
				return err
			}
			_, err = a.out.Write([]byte(text))
			return err
		},
	}
	cmd.Flags().StringVarP(&profile, "profile", "p", "", "profile whose listener is used, product/profile")
	_ = cmd.RegisterFlagCompletionFunc("profile", a.completeProfiles)
	cmd.Flags().StringVar(&shell, "shell", "sh", "language: sh (bash and zsh too), fish, powershell, cmd or json")
	_ = cmd.RegisterFlagCompletionFunc("shell", cobra.FixedCompletions(pair.Shells, cobra.ShellCompDirectiveNoFileComp))
	cmd.Flags().BoolVar(&variants.SOCKS, "socks", false, "make ALL_PROXY a socks5h URL")
	cmd.Flags().BoolVar(&variants.Java, "java", false, "add JAVA_TOOL_OPTIONS")
	return cmd
}

// listener is where a profile listens: what the running daemon says, for only it
// knows the port that 0 became, else the fixed port of the policy. Any failure of
// a daemon that is there is an error, because the policy may say something else
// than what is in force.
func (a *app) listener(ctx context.Context, profile string) (netip.AddrPort, error) {
	client, err := a.client()
	if err != nil {
		return netip.AddrPort{}, err
	}
	var s daemon.Status
	err = client.Get(ctx, daemon.RouteStatus, nil, &s)
	switch {
	case err == nil:
		return listenerOf(s, profile)
	case !errors.Is(err, control.ErrUnreachable):
		return netip.AddrPort{}, err
	}
	paths, settings, err := a.load()
	if err != nil {
		return netip.AddrPort{}, err
	}
	p, err := daemon.LoadPolicy(paths, settings)
	if err != nil {
		return netip.AddrPort{}, err
	}
	found, ok := p.Snapshot.Profile(profile)
	switch {
	case !ok:
		return netip.AddrPort{}, noProfile(profile, "the policy", profileNames(p.Snapshot))
	case found.Port == 0:
		return netip.AddrPort{}, &exitError{exitUnreachable, fmt.Sprintf(
			"%s listens on any free port and no daemon answers to say which: start it with \"sluicegate run\", or give the profile a fixed listen.port", profile)}
	}
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), found.Port), nil
}

// listenerOf prefers the IPv4 address, which every client can use.
func listenerOf(s daemon.Status, profile string) (netip.AddrPort, error) {
	var names []string
	for _, p := range s.Profiles {
		names = append(names, p.Name)
		if p.Name != profile {
			continue
		}
		var best netip.AddrPort
		for _, text := range p.Addresses {
			addr, err := netip.ParseAddrPort(text)
			if err == nil && (!best.IsValid() || addr.Addr().Is4() && !best.Addr().Is4()) {
				best = addr
			}
		}
		if !best.IsValid() {
			return best, fmt.Errorf("the gate does not listen for %s: \"sluicegate status\" says why", profile)
		}
		return best, nil
	}
	return netip.AddrPort{}, noProfile(profile, "the running gate", names)
}

func noProfile(profile, who string, names []string) error {
	if len(names) == 0 {
		names = []string{"none, so everything is refused"}
	}
	return usageError(fmt.Sprintf("there is no profile %q: %s has %s", profile, who, strings.Join(names, ", ")))
}
