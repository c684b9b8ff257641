package policy_test

import (
	"testing"
	"time"

	"sluicegate/policy"

	"github.com/stretchr/testify/assert"
)

// The server name must be the one of the tunnel.
func TestHello(t *testing.T) {
	s := compile(t, oneProfile(`allow:
  - {host: a.test}
  - {host: "*.wild.test"}
  - {host: ssh.test, tls: any}
  - {host: strict.test, ech: refuse}
  - {host: other.test, ports: [8443]}
  - {ip: 93.184.216.34}
deny:
  - {host: bad.wild.test}`))
	for name, tt := range map[string]struct {
		target string
		hello  policy.Hello
		want   string
	}{
		"same":              {"a.test:443", policy.Hello{Name: "a.test"}, "allow rule"},
		"ECH and same":      {"a.test:443", policy.Hello{Name: "a.test", ECH: true}, "allow rule"},
		"other":             {"a.test:443", policy.Hello{Name: "evil.test"}, "deny sni_mismatch"},
		"other allowed one": {"a.test:443", policy.Hello{Name: "x.wild.test"}, "deny sni_mismatch"},
		"below":             {"a.test:443", policy.Hello{Name: "x.a.test"}, "deny sni_mismatch"},
		"none":              {"a.test:443", policy.Hello{}, "deny sni_missing"},
		"no TLS":            {"a.test:443", policy.Hello{Fault: policy.ReasonProtocolMismatch}, "deny protocol_mismatch"},
		"broken":            {"a.test:443", policy.Hello{Fault: policy.ReasonTLSMalformed, Name: "a.test"}, "deny tls_malformed"},
		"any":               {"ssh.test:443", policy.Hello{Fault: policy.ReasonProtocolMismatch}, "allow rule"},
		"any, other name":   {"ssh.test:443", policy.Hello{Name: "evil.test"}, "allow rule"},
		"ECH refused":       {"strict.test:443", policy.Hello{Name: "strict.test", ECH: true}, "deny ech_present"},
		"no ECH":            {"strict.test:443", policy.Hello{Name: "strict.test"}, "allow rule"},
		"address, none":     {"93.184.216.34:443", policy.Hello{}, "allow rule"},
		"address, allowed":  {"93.184.216.34:443", policy.Hello{Name: "x.wild.test"}, "allow rule"},
		"address, denied":   {"93.184.216.34:443", policy.Hello{Name: "bad.wild.test"}, "deny sni_mismatch"},
		"address, unlisted": {"93.184.216.34:443", policy.Hello{Name: "evil.test"}, "deny sni_mismatch"},
		"address, ECH":      {"93.184.216.34:443", policy.Hello{Name: "strict.test", ECH: true}, "deny ech_present"},
		"address, port":     {"93.184.216.34:443", policy.Hello{Name: "other.test"}, "deny sni_mismatch"},
		"address, local":    {"93.184.216.34:443", policy.Hello{Name: "localhost"}, "deny sni_mismatch"},
		"not listed at all": {"evil.test:443", policy.Hello{Name: "evil.test"}, "deny not_listed"},
		"other port":        {"other.test:8443", policy.Hello{Name: "a.test"}, "deny sni_mismatch"},
	} {
		t.Run(name, func(t *testing.T) {
			r := tunnel(t, tt.target)
			assert.Equal(t, tt.want == "deny not_listed", !ptr(s.Decide(r)).Allowed(), "the destination alone")
			r.Hello = &tt.hello
			assert.Equal(t, tt.want, verdict(s.Decide(r)))
		})
	}
}

func ptr(d policy.Decision) *policy.Decision { return &d }

// Observe mode relaxes the name, not what is broken, and not what a rule forbids.
func TestHelloObserved(t *testing.T) {
	s := compile(t, oneProfile("mode: observe\nallow: [{host: a.test}, {host: strict.test, ech: refuse}]"))
	for name, tt := range map[string]struct {
		target string
		hello  policy.Hello
		want   string
	}{
		"same":       {"a.test:443", policy.Hello{Name: "a.test"}, "allow rule"},
		"other":      {"a.test:443", policy.Hello{Name: "evil.test"}, "observe sni_mismatch"},
		"none":       {"a.test:443", policy.Hello{}, "observe sni_missing"},
		"invalid":    {"a.test:443", policy.Hello{Fault: policy.ReasonSNIInvalid}, "observe sni_invalid"},
		"no TLS":     {"a.test:443", policy.Hello{Fault: policy.ReasonProtocolMismatch}, "observe protocol_mismatch"},
		"broken":     {"a.test:443", policy.Hello{Fault: policy.ReasonTLSMalformed}, "deny tls_malformed"},
		"ECH":        {"strict.test:443", policy.Hello{Name: "strict.test", ECH: true}, "deny ech_present"},
		"not listed": {"b.test:443", policy.Hello{Name: "b.test"}, "observe not_listed"},
		"both":       {"b.test:443", policy.Hello{Name: "c.test"}, "observe sni_mismatch"},
	} {
		r := tunnel(t, tt.target)
		r.Hello, r.Now = &tt.hello, time.Unix(1, 0)
		assert.Equal(t, tt.want, verdict(s.Decide(r)), name)
	}
}

func TestParseServerName(t *testing.T) {
	for in, want := range map[string]string{"A.Test": "a.test", "a.test.": "a.test"} {
		name, ok := policy.ParseServerName([]byte(in))
		assert.True(t, ok)
		assert.Equal(t, want, name)
	}
	for _, in := range []string{"", ".", "1.2.3.4", "127.1", "::1", "a.test\x00.b", "a b", "a..b", "*.test", "\xff"} {
		_, ok := policy.ParseServerName([]byte(in))
		assert.False(t, ok, "%q", in)
	}
}
