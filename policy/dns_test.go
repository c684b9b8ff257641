package policy_test

import (
	"bytes"
	"strings"
	"testing"

	"sluicegate/policy"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func labels(s ...string) [][]byte {
	var out [][]byte
	for _, l := range s {
		out = append(out, []byte(l))
	}
	return out
}

func TestParseLabels(t *testing.T) {
	long := strings.Repeat("a", 63)
	for name, tt := range map[string]struct {
		labels [][]byte
		want   string
	}{
		"name":            {labels("a", "wild", "test"), "a.wild.test:53"},
		"upper case":      {labels("A", "WILD", "Test"), "a.wild.test:53"},
		"single":          {labels("intranet"), "intranet:53"},
		"A-label":         {labels("XN--bcher-kva", "test"), "xn--bcher-kva.test:53"},
		"root":            {nil, badHost},
		"dot in a label":  {labels("evil", "x.wild", "test"), badHost},
		"label of a dot":  {labels(".", "test"), badHost},
		"escaped dot":     {labels(`x\.wild`, "test"), badHost},
		"NUL":             {labels("evil\x00", "test"), badHost},
		"space":           {labels("a b", "test"), badHost},
		"high byte":       {labels("a\xff", "test"), badHost},
		"empty label":     {labels("a", "", "test"), badHost},
		"root as a label": {labels("a", "test", ""), badHost},
		"label of 64":     {labels(long+"a", "test"), badHost},
		"too long":        {labels(long, long, long, long, "test"), badHost},
		"address":         {labels("127", "0", "0", "1"), ambiguous},
		"number":          {labels("2130706433"), ambiguous},
		"hexadecimal":     {labels("0x7f", "1"), ambiguous},
	} {
		t.Run(name, func(t *testing.T) {
			before := bytes.Join(tt.labels, []byte("|"))
			d, err := policy.ParseLabels(tt.labels)
			assert.Equal(t, before, bytes.Join(tt.labels, []byte("|")))
			if err != nil {
				assert.Equal(t, tt.want, string(reasonOf(t, err)))
				assert.Equal(t, policy.Destination{}, d)
				return
			}
			assert.Equal(t, tt.want, d.String())
		})
	}
}

// A name is the same destination in DNS and in a tunnel.
func TestLabelsAndAuthorityAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.OneOf(genName(), genAlmost()).Draw(t, "name")
		a, aerr := policy.ParseAuthority(name + ":53")
		b, berr := policy.ParseLabels(labels(strings.Split(strings.TrimSuffix(name, "."), ".")...))
		if berr == nil {
			require.NoError(t, aerr, "%q", name)
			require.Equal(t, a, b)
		} else if aerr == nil {
			require.True(t, a.Addr().IsValid(), "%q: %v", name, berr)
		}
	})
}

func TestAllowsBelow(t *testing.T) {
	s := compile(t, githubGroup, oneProfile(`use: [github]
allow: [{host: a.b.example.com}, {host: "*.wild.test"}, {ip: 10.0.0.1}]
deny: [{host: x.denied.test}]`))
	for name, want := range map[string]bool{
		"a.b.example.com": false, "b.example.com": true, "example.com": true, "com": true, "c.example.com": false,
		"wild.test": true, "test": true, "a.wild.test": false, "github.com": true, "denied.test": false, "": false,
	} {
		assert.Equal(t, want, s.AllowsBelow(testProfile, name), name)
	}
	assert.False(t, s.AllowsBelow("test/q", "com"))
	var none *policy.Snapshot
	assert.False(t, none.AllowsBelow(testProfile, "com"))
}

// DNS knows no port: a name that may be reached on any port may be resolved,
// and only a rule that denies every port denies the name.
func TestDNSIgnoresPorts(t *testing.T) {
	s := compile(t, oneProfile(`allow: [{host: ssh.test, ports: [22]}, {host: both.test}, {host: nas, resolves_to: [192.168.0.0/16], ports: [22]}]
deny: [{host: both.test, ports: [8443]}, {host: "**.never.test"}]`))
	for question, want := range map[string]string{
		"dns ssh.test": "allow rule", "dns ssh.test 93.184.216.34": "allow rule", "dns both.test": "allow rule",
		"dns never.test": "deny deny_rule", "dns other.test": "deny not_listed", "dns nas": "allow rule",
		"dns nas 192.168.0.1": "allow rule", "dns nas 10.0.0.1": "deny dest_private", "dns ssh.test 10.0.0.1": "deny dest_private",
		"dns localhost": "deny local_name", "dns metadata.goog": "deny dest_metadata",
	} {
		assert.Equal(t, want, verdict(s.Decide(ask(t, question))), question)
	}
}
