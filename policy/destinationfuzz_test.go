package policy_test

import (
	"testing"

	"sluicegate/policy"

	"github.com/stretchr/testify/require"
)

// parserSeeds start both parsers.
func parserSeeds(f *testing.F, add func(string)) {
	f.Helper()
	for _, s := range []string{
		"allowed.test:443", "[::ffff:127.0.0.1]:443", "xn--bcher-kva.test.:80", "0x7f.1:443", "a@b:1", "http://a.test:80/x?y#z",
		"http://[::1%25eth0]/", "http://a.test/%zz", "http:///x", "*", "//a", "a.test:0443", "_a-.b:1",
	} {
		add(s)
	}
}

func FuzzParseAuthority(f *testing.F) {
	parserSeeds(f, func(s string) { f.Add(s) })
	f.Fuzz(func(t *testing.T, in string) {
		checkAuthority(t, in)
		d, err := policy.ParseAuthority(in)
		if err != nil {
			require.Equal(t, policy.Destination{}, d)
			return
		}
		again, err := policy.ParseAuthority(d.String())
		require.NoError(t, err)
		require.Equal(t, d, again)
		typed, err := policy.ParseHostPort(in, 0)
		require.NoError(t, err)
		require.Equal(t, d, typed)
	})
}

func FuzzParseTarget(f *testing.F) {
	parserSeeds(f, func(s string) { f.Add(s) })
	f.Fuzz(func(t *testing.T, in string) {
		checkTarget(t, in)
		if d, err := policy.ParseTarget(in); err == nil {
			again, err := policy.ParseTarget("http://" + d.String())
			require.NoError(t, err)
			require.Equal(t, d, again)
		}
	})
}
