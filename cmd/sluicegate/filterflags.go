package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"sluicegate/audit"
	"sluicegate/policy"

	"github.com/spf13/cobra"
)

// filterFlags are the flags that say which records are wanted.
type filterFlags struct {
	profile, product, reason, host, decision, event, since string
}

func (f *filterFlags) register(cmd *cobra.Command, a *app) {
	for _, flag := range []struct {
		to          *string
		name, usage string
		values      []string
	}{
		{&f.decision, "decision", "only this decision: " + strings.Join(audit.Decisions(), ", "), audit.Decisions()},
		{&f.reason, "reason", "only this reason, also where observe mode let it pass; see docs/reasons.md", reasons()},
		{&f.host, "host", "only this destination: a host, *.suffix for all below it, **.suffix for both", nil},
		{&f.profile, "profile", "only this profile, product/profile", nil},
		{&f.product, "product", "only this product", nil},
		{&f.event, "event", "only this event, such as egress.denied", eventNames()},
		{&f.since, "since", "only from this time on: 10m (ago), 2026-11-30 (local midnight) or 2026-11-30T10:00:00Z", nil},
	} {
		cmd.Flags().StringVar(flag.to, flag.name, "", flag.usage)
		if flag.values != nil {
			_ = cmd.RegisterFlagCompletionFunc(flag.name, cobra.FixedCompletions(flag.values, cobra.ShellCompDirectiveNoFileComp))
		}
	}
	_ = cmd.RegisterFlagCompletionFunc("profile", a.completeProfiles)
	_ = cmd.RegisterFlagCompletionFunc("product", a.completeProducts)
}

// parse reads the flags; since tells whether that one is given.
func (f *filterFlags) parse(since bool, now time.Time) (audit.Filter, error) {
	filter := audit.Filter{
		Event: audit.Name(f.event), Decision: f.decision, Reason: f.reason, Profile: f.profile, Product: f.product,
	}
	for _, flag := range []struct {
		name, value string
		valid       []string
	}{
		{"decision", f.decision, audit.Decisions()}, {"event", f.event, eventNames()}, {"reason", f.reason, reasons()},
	} {
		if flag.value != "" && !slices.Contains(flag.valid, flag.value) {
			return filter, usageError(fmt.Sprintf("--%s %q is not one of: %s", flag.name, flag.value, strings.Join(flag.valid, ", ")))
		}
	}
	if f.host != "" {
		host, ok := audit.ParseHost(f.host)
		if !ok {
			return filter, usageError(fmt.Sprintf("--host %q: give a host without a port, *.example.com for everything below example.com, or **.example.com to include it", f.host))
		}
		filter.Host = host
	}
	if since {
		at, ok := parseSince(f.since, now)
		if !ok {
			return filter, usageError(fmt.Sprintf("--since %q: write 10m or 24h (ago), a date as 2026-11-30, or a time as 2026-11-30T10:00:00Z", f.since))
		}
		filter.Since = at
	}
	return filter, nil
}

// parseSince reads a time: how long ago, an RFC 3339 time, or a date.
func parseSince(s string, now time.Time) (at time.Time, ok bool) {
	if d, err := time.ParseDuration(s); err == nil {
		return now.Add(-d), d >= 0
	}
	if at, err := time.Parse(time.RFC3339, s); err == nil {
		return at, true
	}
	at, err := time.ParseInLocation(time.DateOnly, s, time.Local)
	return at, err == nil
}

func eventNames() []string {
	names := audit.Names()
	s := make([]string, 0, len(names))
	for _, name := range names {
		s = append(s, string(name))
	}
	return s
}

func reasons() []string {
	infos := policy.Reasons()
	s := make([]string, 0, len(infos))
	for _, info := range infos {
		s = append(s, string(info.Reason))
	}
	return s
}
