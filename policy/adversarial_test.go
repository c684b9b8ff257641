package policy_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"testing"

	"sluicegate/policy"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// adversarialCase is a line of testdata/adversarial.jsonl: an input, what must
// come of it (deny, error or allow) and for which reason.
type adversarialCase struct {
	ID, Class, Surface  string
	Kind                string `json:"input_kind"`
	Input               string
	Context             string
	Expect, Code        string
	Reason, Source, Alt string
}

// adversarial reads the cases of the classes. A class without cases is a fault:
// a renamed one would silently test nothing.
func adversarial(t *testing.T, classes ...string) []adversarialCase {
	t.Helper()
	data, err := os.ReadFile("testdata/adversarial.jsonl")
	require.NoError(t, err)
	found := map[string]int{}
	for _, class := range classes {
		found[class] = 0
	}
	var out []adversarialCase
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var c adversarialCase
		require.NoError(t, json.Unmarshal(lines.Bytes(), &c))
		if _, ok := found[c.Class]; ok {
			found[c.Class]++
			out = append(out, c)
		}
	}
	require.NoError(t, lines.Err())
	for class, n := range found {
		require.NotZero(t, n, class)
	}
	return out
}

// The two policies that the cases speak of. In "any" every public host is
// allowed, so that only grammar, guard and always-local names act.
var adversarialPolicies = map[string]string{
	"std": oneProfile(`allow:
  - {host: allowed.test}
  - {host: "*.wild.test", ports: [443]}
deny:
  - {host: blocked.wild.test}`),
	"any": oneProfile("network: open"),
}

// publicAddress is what the resolver of the cases answers.
const publicAddress = "93.184.216.34"

// otherRoom are cases whose fault is not in the target: another room finds it.
var otherRoom = map[string]string{
	"connect-authority-029": "a body on CONNECT: the head reader",
	"http-target-005":       "a second Host line: the head reader",
	"http-target-006":       "no Host line: the head reader",
	"http-target-025":       "the method TRACE: the head reader",
	"http-target-026":       "the protocol version: the head reader",
	"http-target-028":       "no protocol version: the head reader",
}

// designWins are the cases whose code differs from the design, with the code of
// the design and the reason. The verdict is the same in all of them.
var designWins = map[string]struct{ code, why string }{
	"hostname-form-008":         {"malformed_authority", "connect-authority-006 is the same input and has this code: nothing is wrong with a part, the host is missing"},
	"hostname-form-024":         {"malformed_authority", "a reader that took the line break for a part of the target would find two colons in it first"},
	"ip-literal-obfuscated-021": {"malformed_host", "requests are ASCII (architecture.md); fullwidth digits are no digits here, as in hostname-unicode"},
	"ip-literal-obfuscated-022": {"malformed_host", "requests are ASCII (architecture.md); an ideographic stop is no dot here, as in hostname-unicode-003"},
	"ipv6-embedded-ipv4-003":    {"dest_metadata", "the mapped address is that of a metadata service; http-target-033 has the same address and this code"},
	"ipv6-embedded-ipv4-006":    {"dest_metadata", "an embedded metadata address is named as one (security.md 2.1)"},
	"ipv6-embedded-ipv4-013":    {"dest_metadata", "an embedded metadata address is named as one (security.md 2.1)"},
	"special-range-v6-025":      {"dest_metadata", "fd00:ec2::254 is the AWS metadata service (security.md 2.1)"},
	"special-range-v6-026":      {"dest_metadata", "fd20:ce::254 is the Google Cloud metadata service (security.md 2.1)"},
}

// requestLine takes the target out of the bytes: what stands between the method
// and the version, line breaks included, as a lenient reader would find it.
var requestLine = regexp.MustCompile(`(?s)^([A-Za-z]+) (.*?) HTTP/1\.[01]\r\n`)

func TestAdversarialTargets(t *testing.T) {
	policies := map[string]*policy.Snapshot{}
	for name, text := range adversarialPolicies {
		policies[name] = compile(t, text)
	}
	unused := maps.Clone(designWins)
	elsewhere := maps.Clone(otherRoom)
	judged := 0
	for _, c := range adversarial(
		t, "ip-literal-obfuscated", "ipv6-zone-brackets", "hostname-form", "hostname-unicode", "connect-authority",
		"http-target", "special-range-v4", "special-range-v6", "ipv6-embedded-ipv4", "cloud-metadata", "local-names",
	) {
		if _, ok := otherRoom[c.ID]; ok {
			delete(elsewhere, c.ID)
			continue
		}
		if c.Kind != "text" {
			continue // bytes of SOCKS, or a generator: other rooms
		}
		judged++
		t.Run(c.ID, func(t *testing.T) {
			m := requestLine.FindStringSubmatch(c.Input)
			require.NotNil(t, m, "%q", c.Input)
			require.Contains(t, policies, c.Context)
			expect, code := judgeTarget(t, policies[c.Context], m[1], m[2])
			assert.Equal(t, c.Expect, expect, "%s %s", code, c.Reason)
			want := c.Code
			if d, ok := designWins[c.ID]; ok {
				require.NotEqual(t, d.code, c.Code, "the case agrees by now")
				want = d.code
				delete(unused, c.ID)
			}
			assert.Equal(t, want, code, c.Reason)
		})
	}
	assert.Empty(t, unused, "no such case")
	assert.Empty(t, elsewhere, "no such case")
	assert.Greater(t, judged, 150)
}

// judgeTarget does what a surface does: parse, decide, resolve, decide again.
func judgeTarget(t *testing.T, s *policy.Snapshot, method, target string) (expect, code string) {
	t.Helper()
	parse, proto := policy.ParseTarget, policy.ProtoHTTP
	if method == "CONNECT" {
		parse, proto = policy.ParseAuthority, policy.ProtoConnect
	}
	d, err := parse(target)
	if err != nil {
		return "error", string(reasonOf(t, err))
	}
	addr := publicAddress
	if d.Addr().IsValid() {
		addr = d.Addr().String()
	}
	for _, r := range []policy.Request{request(d, proto), request(d, proto, addr)} {
		if got := s.Decide(r); !got.Allowed() {
			return "deny", string(got.Reason)
		}
	}
	return "allow", "ok"
}
