package policy_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"sluicegate/policy"

	"github.com/stretchr/testify/require"
)

// testProfile is the profile of the policies that oneProfile makes.
const testProfile = "test/p"

// now is the time of every request that does not say another.
var now = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

// oneProfile is a policy file with one profile; body is the profile's keys,
// each at the start of a line.
func oneProfile(body string) string {
	body = strings.TrimRight(body, "\n")
	return "version: 1\nproduct: test\nprofiles:\n  p:\n    listen: {port: 18001}\n    " +
		strings.ReplaceAll(body, "\n", "\n    ") + "\n"
}

// compile makes a snapshot of files that must be good.
func compile(t require.TestingT, texts ...string) *policy.Snapshot {
	s, err := policy.Compile(files(texts...))
	require.NoError(t, err)
	return s
}

// files names texts f0.yaml, f1.yaml and so on.
func files(texts ...string) []policy.File {
	out := make([]policy.File, len(texts))
	for i, text := range texts {
		out[i] = policy.File{Name: "f" + string(rune('0'+i)) + ".yaml", Data: []byte(text)}
	}
	return out
}

// tunnel asks the test profile for a CONNECT to the authority.
func tunnel(t require.TestingT, authority string, addrs ...string) policy.Request {
	d, err := policy.ParseAuthority(authority)
	require.NoError(t, err, authority)
	return request(d, policy.ProtoConnect, addrs...)
}

// get asks the test profile for a plain HTTP request to the URL.
func get(t require.TestingT, url string, addrs ...string) policy.Request {
	d, err := policy.ParseTarget(url)
	require.NoError(t, err, url)
	return request(d, policy.ProtoHTTP, addrs...)
}

func request(d policy.Destination, proto policy.Proto, addrs ...string) policy.Request {
	r := policy.Request{Profile: testProfile, Entitled: true, Destination: d, Proto: proto, Now: now}
	for _, a := range addrs {
		r.Addrs = append(r.Addrs, netip.MustParseAddr(a))
	}
	return r
}

// verdict is a decision in one word pair, such as "allow rule" or "deny
// dest_private"; an observed one is "observe" and what it would be denied for.
func verdict(d policy.Decision) string {
	switch {
	case d.Observed():
		return "observe " + string(d.Would)
	case d.Allowed():
		return "allow " + string(d.Reason)
	default:
		return "deny " + string(d.Reason)
	}
}

// ruleID is the id of the deciding rule, "" if there is none.
func ruleID(d policy.Decision) string {
	if d.Rule == nil {
		return ""
	}
	return d.Rule.ID
}

// ask is for tables: "connect host:port" or "get URL", then addresses.
func ask(t testing.TB, text string) policy.Request {
	t.Helper()
	fields := strings.Fields(text)
	require.GreaterOrEqual(t, len(fields), 2, text)
	switch fields[0] {
	case "connect":
		return tunnel(t, fields[1], fields[2:]...)
	case "get":
		return get(t, fields[1], fields[2:]...)
	case "dns":
		r := tunnel(t, fields[1]+":53", fields[2:]...)
		r.Proto = policy.ProtoDNS
		return r
	default:
		require.Fail(t, "unknown way to ask", text)
		return policy.Request{}
	}
}
