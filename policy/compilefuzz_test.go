package policy_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"sluicegate/policy"

	"github.com/stretchr/testify/require"
)

// reused finds anchors, aliases, tags and merge keys that stand as plain values.
var reused = regexp.MustCompile(`(?m)^ *(?:- )?(?:[a-z_]+: [&*!]\S|<<:)`)

// FuzzCompile wants an answer for every file, in time and without a panic; a
// file that is accepted holds nothing of what YAML has beyond JSON, and denies
// what no policy may allow.
func FuzzCompile(f *testing.F) {
	f.Add(githubGroup)
	f.Add(oneProfile("network: open\nmode: observe\nobserve_until: 2027-01-01"))
	f.Add(oneProfile("allow:\n  - {host: \"*.a.test\", ports: [443, 8443], id: x}\n  - host: b.test\n    resolves_to: [10.0.0.0/8, fd00::/8]\n    why: >-\n      text\n"))
	f.Add(oneProfile("deny:\n  - {host: \"**.c.test\", except: [d.c.test]}\n  - {cidr: 10.0.0.0/8}\n  - ip: ::1"))
	f.Add("version: 1\nglobal:\n  deny: [{ip: 127.0.0.1}]\n  observe_allowed: false\n")
	f.Add(`{"version": 1, "product": "test", "profiles": {"p": {"listen": {"port": 0}, "allow": [{"host": "a.test"}]}}}`)
	f.Add("a: &a [x]\nb: *a\n<<: *a\n!!map c: {? d : e}\n--- |\n text\n...\n%YAML 1.2\n")
	f.Add(oneProfile("allow:\n  - host: 'a\n\n   .test'\n    ports:\n    - 0x1F\n    - 0o7\n    - 1_0\t# tab\n"))
	f.Fuzz(func(t *testing.T, text string) {
		start := time.Now()
		s, err := policy.Compile(files(text, githubGroup))
		require.Less(t, time.Since(start), 5*time.Second, "%d bytes", len(text))
		if err != nil {
			require.Nil(t, s)
			var problems policy.Problems
			require.ErrorAs(t, err, &problems)
			require.NotEmpty(t, problems)
			require.Less(t, len(problems), 110)
			for _, p := range problems {
				require.NotEmpty(t, p.Msg)
				for _, r := range p.Error() {
					require.False(t, r < ' ' && r != '\n' || r >= 0x7f && r < 0xa0, "%q", p.Error())
				}
			}
			return
		}
		if !strings.ContainsAny(text, "\"'|>") {
			require.NotRegexp(t, reused, text)
		}
		for _, p := range s.Profiles() {
			require.NotEmpty(t, p.Name)
			require.False(t, allowed(s.Decide(policy.Request{Profile: p.Name, Entitled: true})))
			for _, never := range []string{"169.254.169.254:80", "0.0.0.0:80", "metadata.google.internal:80", "[fe80::1]:443", "wpad:80"} {
				r := tunnel(t, never)
				r.Profile = p.Name
				require.False(t, allowed(s.Decide(r)), never)
			}
		}
	})
}

func allowed(d policy.Decision) bool { return d.Allowed() }
