package main

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"sluicegate/internal/daemon"
	"sluicegate/policy"

	"github.com/spf13/cobra"
)

// verdict is the result of check; its JSON keys are stable.
type verdict struct {
	Decision string `json:"decision"`
	Reason   string `json:"reason"`
	// Would is the reason that observe mode relaxes.
	Would   string `json:"would,omitempty"`
	Profile string `json:"profile"`
	Host    string `json:"host,omitempty"`
	Port    uint16 `json:"port,omitempty"`
	RuleID  string `json:"rule_id,omitempty"`
	Rule    string `json:"rule_place,omitempty"`
	Why     string `json:"why,omitempty"`
	Range   string `json:"range,omitempty"`
	// DNS is the name that would be resolved, "" if none.
	DNS    string `json:"dns,omitempty"`
	Digest string `json:"policy_digest"`
	Source string `json:"policy_source"`
	detail string
	mend   string
}

func (a *app) checkCommand() *cobra.Command {
	var (
		profile string
		http    bool
		addrs   []string
		asJSON  bool
	)
	cmd := &cobra.Command{
		Use:   "check HOST[:PORT]",
		Short: "Say what the policy decides about a destination",
		Long: `Say what the policy on disk decides about a destination, and by which rule. It
needs no running daemon, resolves nothing and connects to nothing. A missing
port is 443, or 80 with --http. The addresses a name resolves to are judged when
it is dialled; --resolved tells what would be decided for given ones.

Exit code 0: allowed, 1: refused.`,
		Example: `  sluicegate check github.com --profile claude-code/commands
  sluicegate check 10.0.0.5:22 --profile claude-code/commands
  sluicegate check cache.corp.example --profile claude-code/commands --resolved 10.20.0.7`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if profile == "" {
				return usageError("--profile is missing: name product/profile, such as claude-code/commands")
			}
			v, err := a.check(args[0], profile, http, addrs)
			if err != nil {
				return err
			}
			if asJSON {
				err = printJSON(a.out, v)
			} else {
				err = v.print(a)
			}
			if err != nil {
				return err
			}
			if v.Decision != "allow" {
				return &exitError{code: exitFailed}
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&profile, "profile", "p", "", "profile that asks, product/profile")
	_ = cmd.RegisterFlagCompletionFunc("profile", a.completeProfiles)
	cmd.Flags().BoolVar(&http, "http", false, "ask for plain HTTP instead of a tunnel")
	cmd.Flags().StringSliceVar(&addrs, "resolved", nil, "addresses the name is taken to resolve to")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (a *app) check(target, profile string, http bool, resolved []string) (*verdict, error) {
	paths, settings, err := a.load()
	if err != nil {
		return nil, err
	}
	p, err := daemon.LoadPolicy(paths, settings)
	if err != nil {
		return nil, err
	}
	if _, ok := p.Snapshot.Profile(profile); !ok {
		return nil, noProfile(profile, "the policy", profileNames(p.Snapshot))
	}
	req := policy.Request{Profile: profile, Entitled: true, Proto: policy.ProtoConnect, Now: time.Now()}
	// Own addresses and listeners are refused by the gate, so they are here.
	if req.Local, err = daemon.LocalSet(p.Snapshot); err != nil {
		return nil, err
	}
	port := uint16(443)
	if http {
		req.Proto, port = policy.ProtoHTTP, 80
	}
	for _, s := range resolved {
		ip, err := netip.ParseAddr(s)
		if err != nil {
			return nil, usageError(fmt.Sprintf("--resolved %q is not an address", s))
		}
		req.Addrs = append(req.Addrs, ip)
	}
	v := &verdict{Profile: profile, Digest: p.Snapshot.Digest(), Source: p.Source}
	req.Destination, err = policy.ParseHostPort(target, port)
	var bad *policy.ParseError
	if errors.As(err, &bad) {
		v.Decision, v.Reason, v.detail, v.mend = "error", string(bad.Reason), bad.Detail, bad.Reason.Info().Mend
		return v, nil
	}
	v.fill(p.Snapshot, req)
	return v, nil
}

// fill asks the policy, first about the name alone, as the gate does.
func (v *verdict) fill(s *policy.Snapshot, req policy.Request) {
	addrs := req.Addrs
	req.Addrs = nil
	d := s.Decide(req)
	if d.Allowed() {
		v.DNS = req.Destination.Name()
		if len(addrs) > 0 {
			req.Addrs = addrs
			d = s.Decide(req)
		}
	}
	v.Host, v.Port = req.Destination.Host(), req.Destination.Port()
	v.Decision, v.Reason, v.Would, v.Range, v.detail = "deny", string(d.Reason), string(d.Would), d.Range, d.Detail
	reason := d.Reason
	if d.Allowed() {
		v.Decision = "allow"
		if d.Observed() {
			v.Decision, reason = "would_deny", d.Would
		}
	}
	v.mend = reason.Info().Mend
	if v.detail == "" {
		v.detail = reason.Info().Meaning
	}
	if d.Rule != nil {
		v.RuleID, v.Why = d.Rule.ID, d.Rule.Why
		v.Rule = fmt.Sprintf("%s:%d", d.Rule.File, d.Rule.Line)
	}
}

func (v *verdict) print(a *app) error {
	var b strings.Builder
	target := v.Host
	if v.Port != 0 {
		target = fmt.Sprintf("%s port %d", v.Host, v.Port)
	}
	if target == "" {
		target = "the destination"
	}
	word := map[string]string{"allow": "ALLOWED", "deny": "REFUSED", "error": "MALFORMED", "would_deny": "OBSERVED"}[v.Decision]
	_, _ = fmt.Fprintf(&b, "%s  %s for %s\n", word, target, v.Profile)
	reason := v.Reason
	if v.Would != "" {
		reason = v.Would + ", let through by mode observe"
	}
	_, _ = fmt.Fprintf(&b, "reason   %s: %s\n", reason, v.detail)
	if v.Rule != "" {
		_, _ = fmt.Fprintf(&b, "rule     %s (%s)\n", v.RuleID, v.Rule)
	}
	if v.Why != "" {
		_, _ = fmt.Fprintf(&b, "why      %s\n", v.Why)
	}
	if v.Range != "" {
		_, _ = fmt.Fprintf(&b, "range    %s\n", v.Range)
	}
	refused := v.Decision == "deny" || v.Decision == "error"
	switch {
	case v.DNS != "":
		_, _ = fmt.Fprintf(&b, "dns      %s would be resolved; every address is judged before it is dialled\n", v.DNS)
	case refused:
		_, _ = fmt.Fprintln(&b, "dns      nothing is asked")
	}
	if v.Decision != "allow" {
		_, _ = fmt.Fprintf(&b, "mend     %s\n", v.mend)
	}
	_, _ = fmt.Fprintf(&b, "policy   %s (%s)\n", shortDigest(v.Digest), v.Source)
	_, err := a.out.Write([]byte(b.String()))
	return err
}
