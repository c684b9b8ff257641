package policy_test

import (
	"testing"

	"sluicegate/policy"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Decide runs for each connection and query and several times for some: it
// allocates nothing.
func TestDecideAllocatesNothing(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector allocates")
	}
	s := compile(t, githubGroup, oneProfile(`use: [github]
mode: observe
allow:
  - {host: exact.test}
  - {host: "*.wild.test"}
  - {host: cache.test, resolves_to: [10.0.0.0/8]}
  - {cidr: 10.0.0.0/8, ports: [22]}
deny:
  - {host: "**.bad.test", except: [ok.bad.test]}
  - {cidr: 9.9.9.0/24}`), "version: 1\nglobal: {deny: [{host: worse.test}]}\n")
	for name, question := range map[string]string{
		"exact":             "connect exact.test:443",
		"wildcard":          "connect a.b.c.wild.test:443",
		"group":             "connect api.github.com:443",
		"with addresses":    "connect exact.test:443 93.184.216.34 2606:4700::1 ::ffff:1.1.1.1",
		"granted address":   "connect cache.test:443 10.0.0.1",
		"refused address":   "connect exact.test:443 93.184.216.34 127.0.0.1",
		"deny":              "connect a.bad.test:443",
		"excepted":          "connect ok.bad.test:443",
		"global deny":       "connect worse.test:443",
		"deny by address":   "connect exact.test:443 9.9.9.9",
		"port":              "connect exact.test:22",
		"not listed":        "connect a.b.unlisted.test:443",
		"http":              "get http://exact.test/",
		"literal":           "connect 1.1.1.1:443 1.1.1.1",
		"private literal":   "connect 10.0.0.1:22",
		"metadata":          "connect 169.254.169.254:80",
		"local name":        "connect db.internal:443",
		"dns":               "dns exact.test 93.184.216.34",
		"unknown with dots": "connect a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.test:443",
	} {
		r := ask(t, question)
		r.Local = modelMachine
		assert.Zero(t, testing.AllocsPerRun(100, func() { s.Decide(r) }), name)
	}
	var none *policy.Snapshot
	assert.Zero(t, testing.AllocsPerRun(100, func() { none.Decide(policy.Request{}) }))
}

// A name in lower case and an address are read without a copy.
func TestParsersAllocateLittle(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector allocates")
	}
	for in, most := range map[string]float64{"a.example.com:443": 0, "93.184.216.34:443": 0, "[2606:4700::1]:443": 0, "A.example.com.:443": 1, "127.1:443": 2} {
		got := testing.AllocsPerRun(100, func() { _, _ = policy.ParseAuthority(in) })
		require.LessOrEqual(t, got, most, in)
	}
}
