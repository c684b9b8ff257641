package policy_test

import (
	"encoding/hex"
	"maps"
	"strings"
	"testing"

	"sluicegate/policy"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The configuration cases are written in a neutral shape, "allow: [host]". These
// are the ones of this package in the shape of a policy file; the others are
// about files, clocks and reloads and belong to internal/daemon.
var adversarialConfigs = map[string]string{
	"policy-lint-003": oneProfile(`allow: [{host: "*.cloudfront.net"}]`),
	"policy-lint-004": oneProfile(`allow: [{host: storage.googleapis.com}]`),
	"policy-lint-005": oneProfile(`allow: [{host: "*.com"}]`),
	"policy-lint-006": oneProfile(`allow: [{host: "*"}]`),
	"policy-lint-007": oneProfile(`allow: [{host: "*github.com"}]`),
	"policy-lint-008": oneProfile(`allow: [{host: "git*.com"}]`),
	"policy-lint-009": oneProfile(`allow: [{host: "api.*.test"}]`),
	"policy-lint-012": oneProfile(`allow: [{host: "allowed.test", ports: [99999]}]`),
	"policy-lint-014": oneProfile(`allow: [{cidr: "::ffff:168.0.0.0/103"}]`),
	"policy-lint-015": oneProfile(`allow: [{cidr: 0.0.0.0/0}]`),
	"policy-lint-018": oneProfile(`allow: [{host: allowed.test.}]`),
	"policy-lint-020": oneProfile(`allow: [{host: münchen.test}]`),
	"policy-lint-021": oneProfile(`allow: [{host: xn--allowed-.test}]`),
	"policy-lint-022": oneProfile(`allow: [{host: ''}]`),
	"policy-lint-023": oneProfile(`allow: [null]`),
	"policy-lint-024": oneProfile(`allow: [{host: 8.8}]`),
	"policy-lint-026": oneProfile(`allow: 'allowed.test'`),
	"config-001":      oneProfile(`allow: []`),
	"config-002":      "version: 1\nproduct: test\nprofiles: {p: {listen: {port: 18001}}}\n",
	"config-003":      "",
	"config-005":      strings.ReplaceAll(oneProfile("allow:\n  - {host: allowed.test}"), "\n", "\r\n"),
	"config-006":      oneProfile("allow: [{host: allowed.test}]\nallow: [{host: b.test}]"),
	"config-007":      oneProfile("allow: [{host: allowed.test}]\nalow: [{host: x.test}]"),
	"config-008":      oneProfile(`allow: [{host: allowed.test}]`) + "---\n" + oneProfile(`network: open`),
	"config-009":      oneProfile(`allow: [{host: allowed.test}`),
	"config-010":      "a: &a ['x']\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\nallow: *d",
	"config-011":      strings.Repeat("[", 100_000),
	"config-015":      oneProfile("allow: [{host: '\xff'}]"),
	"config-018":      oneProfile(`allow: [{host: allowed.test, expires: 'soon'}]`),
}

func TestAdversarialConfigs(t *testing.T) {
	left := maps.Clone(adversarialConfigs)
	for _, c := range adversarial(t, "policy-lint", "config") {
		text, ours := adversarialConfigs[c.ID]
		if !ours {
			require.Equal(t, "scenario", c.Kind, "%s is not translated", c.ID)
			continue
		}
		delete(left, c.ID)
		t.Run(c.ID, func(t *testing.T) {
			s, err := policy.Compile(files(text))
			if c.Expect == "error" {
				var problems policy.Problems
				require.ErrorAs(t, err, &problems, c.Reason)
				assert.Nil(t, s)
				// A rejection that is only due to the shape does not count.
				for _, p := range problems {
					assert.NotContains(t, []string{"version", "product"}, p.Path)
				}
				return
			}
			require.NoError(t, err, c.Reason)
			lists := strings.Contains(text, "host:")
			if !lists {
				assert.Equal(t, "deny not_listed", verdict(s.Decide(tunnel(t, "allowed.test:443"))), c.Reason)
			}
			if c.Code == "ok_notice" && c.ID != "policy-lint-004" { // whole-policy lint is a command of its own
				assert.NotEmpty(t, s.Notices(), c.Reason)
			}
		})
	}
	assert.Empty(t, left, "no such case")
}

// The cases as they stand are no policy files and must not pass for one, nor
// for a panic.
func TestAdversarialConfigsAsTheyStand(t *testing.T) {
	for _, c := range adversarial(t, "policy-lint", "config") {
		text := c.Input
		if c.Kind == "hex" {
			b, err := hex.DecodeString(strings.TrimPrefix(text, "hex:"))
			require.NoError(t, err)
			text = string(b)
		}
		_, err := policy.Compile(files(text))
		require.Error(t, err, c.ID)
	}
}
