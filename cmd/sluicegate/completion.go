package main

import (
	"slices"
	"strings"

	"sluicegate/internal/daemon"
	"sluicegate/policy"

	"github.com/spf13/cobra"
)

// completionExamples are how a person installs the script of a shell.
var completionExamples = map[string]string{
	"bash":       "  sluicegate completion bash >~/.local/share/bash-completion/completions/sluicegate",
	"zsh":        "  sluicegate completion zsh >\"${fpath[1]}/_sluicegate\"",
	"fish":       "  sluicegate completion fish >~/.config/fish/completions/sluicegate.fish",
	"powershell": "  sluicegate completion powershell | Out-String | Invoke-Expression",
}

// completionCommand prepares the command that prints completion scripts, which
// the library brings along.
func (a *app) completionCommand(root *cobra.Command) {
	root.InitDefaultCompletionCmd("completion")
	for _, c := range root.Commands() {
		if c.Name() != "completion" {
			continue
		}
		c.Short = "Print a script that completes commands in bash, zsh, fish or PowerShell"
		c.Args = cobra.NoArgs
		c.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		for _, shell := range c.Commands() {
			shell.Short = "Print the script for " + shell.Name()
			shell.Example = completionExamples[shell.Name()]
		}
	}
}

// completeProfiles offers the profiles of the policy that a daemon would load
// now; of the shipped one where that has faults.
func (a *app) completeProfiles(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return a.profileNames(), cobra.ShellCompDirectiveNoFileComp
}

// completeProducts offers the products of those profiles.
func (a *app) completeProducts(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	names := a.profileNames()
	for i, name := range names {
		names[i], _, _ = strings.Cut(name, "/")
	}
	return slices.Compact(names), cobra.ShellCompDirectiveNoFileComp
}

func (a *app) profileNames() []string {
	if paths, settings, err := a.load(); err == nil {
		if p, err := daemon.LoadPolicy(paths, settings); err == nil {
			return profileNames(p.Snapshot)
		}
	}
	var names []string
	shipped, _ := daemon.Shipped()
	for _, p := range shipped {
		names = append(names, p.Profile)
	}
	return names
}

func profileNames(s *policy.Snapshot) []string {
	var names []string
	for _, p := range s.Profiles() {
		names = append(names, p.Name)
	}
	return names
}
