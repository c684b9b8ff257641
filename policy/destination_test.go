package policy_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"sluicegate/policy"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// parseCase is one input of a parser: want is the canonical form, or the
// reason it is refused for.
type parseCase struct{ in, want string }

func runParse(t *testing.T, parse func(string) (policy.Destination, error), cases map[string]parseCase) {
	t.Helper()
	for name, tt := range cases {
		t.Run(name, func(t *testing.T) {
			d, err := parse(tt.in)
			if err != nil {
				assert.Equal(t, tt.want, string(reasonOf(t, err)), "%v", err)
				assert.Equal(t, policy.Destination{}, d)
				return
			}
			require.True(t, d.IsValid())
			assert.Equal(t, tt.want, d.String())
		})
	}
}

// reasonOf is the reason of a parser's error, which is always a *ParseError
// with a constant text of one line.
func reasonOf(t require.TestingT, err error) policy.Reason {
	var perr *policy.ParseError
	require.True(t, errors.As(err, &perr), "%T", err)
	require.NotEmpty(t, perr.Detail)
	require.NotContains(t, perr.Detail, "\n")
	require.Equal(t, policy.ClassMalformed, perr.Reason.Info().Class, "%s", perr.Reason)
	require.Equal(t, string(perr.Reason)+": "+perr.Detail, perr.Error())
	return perr.Reason
}

const (
	badHost      = string(policy.ReasonMalformedHost)
	badAuthority = string(policy.ReasonMalformedAuthority)
	badTarget    = string(policy.ReasonMalformedTarget)
	badPort      = string(policy.ReasonBadPort)
	badScheme    = string(policy.ReasonBadScheme)
	ambiguous    = string(policy.ReasonAmbiguousIP)
	noProxy      = string(policy.ReasonNotProxyRequest)
)

func TestParseAuthority(t *testing.T) {
	runParse(t, policy.ParseAuthority, map[string]parseCase{
		"name":                   {"allowed.test:443", "allowed.test:443"},
		"IPv4":                   {"93.184.216.34:443", "93.184.216.34:443"},
		"IPv6":                   {"[2606:4700::1111]:443", "[2606:4700::1111]:443"},
		"IPv6 long form":         {"[2606:4700:0:0:0:0:0:1111]:443", "[2606:4700::1111]:443"},
		"IPv6 upper case":        {"[2606:4700::ABCD]:443", "[2606:4700::abcd]:443"},
		"IPv4-mapped":            {"[::ffff:127.0.0.1]:443", "127.0.0.1:443"},
		"IPv4-mapped in hex":     {"[::ffff:7f00:1]:443", "127.0.0.1:443"},
		"IPv4-compatible stays":  {"[::127.0.0.1]:443", "[::7f00:1]:443"},
		"lowest port":            {"allowed.test:1", "allowed.test:1"},
		"highest port":           {"allowed.test:65535", "allowed.test:65535"},
		"empty":                  {"", badAuthority},
		"colon":                  {":", badAuthority},
		"no host":                {":443", badAuthority},
		"no port":                {"allowed.test", badAuthority},
		"no port in brackets":    {"[::1]", badAuthority},
		"empty port":             {"allowed.test:", badPort},
		"two ports":              {"allowed.test:443:22", badAuthority},
		"IPv6 without brackets":  {"::1:443", badAuthority},
		"only a path":            {"/x", badHost},
		"path after the port":    {"allowed.test:443/x", badAuthority},
		"query after the port":   {"allowed.test:443?x", badAuthority},
		"fragment after it":      {"allowed.test:443#x", badAuthority},
		"backslash after it":     {`allowed.test:443\x`, badAuthority},
		"path after brackets":    {"[::1]:443/x", badAuthority},
		"a URL":                  {"http://evil.test:443/", badAuthority},
		"user before":            {"allowed.test@evil.test:443", badAuthority},
		"user and password":      {"a:b@evil.test:443", badAuthority},
		"user behind":            {"evil.test:443@allowed.test", badAuthority},
		"user in brackets":       {"[::1]@allowed.test:443", badAuthority},
		"port 0":                 {"allowed.test:0", badPort},
		"port 65536":             {"allowed.test:65536", badPort},
		"port wraps 32 bits":     {"allowed.test:4294967739", badPort},
		"port wraps 64 bits":     {"allowed.test:18446744073709552059", badPort},
		"leading zero":           {"allowed.test:0443", badPort},
		"leading zeros":          {"allowed.test:00443", badPort},
		"plus":                   {"allowed.test:+443", badPort},
		"minus":                  {"allowed.test:-1", badPort},
		"hexadecimal port":       {"allowed.test:0x1bb", badPort},
		"service name":           {"allowed.test:https", badPort},
		"letter behind":          {"allowed.test:443x", badPort},
		"space behind":           {"allowed.test:443 ", badPort},
		"NUL behind":             {"allowed.test:443\x00", badPort},
		"fullwidth digits":       {"allowed.test:４４３", badPort},
		"Arabic digits":          {"allowed.test:٤٤٣", badPort},
		"zone":                   {"[fe80::1%eth0]:443", badHost},
		"escaped zone":           {"[fe80::1%25eth0]:443", badHost},
		"empty zone":             {"[fe80::1%]:443", badHost},
		"mapped with zone":       {"[::ffff:127.0.0.1%25eth0]:443", badHost},
		"name in brackets":       {"[allowed.test]:443", badHost},
		"double brackets":        {"[[allowed.test]]:443", badHost},
		"IPv4 in brackets":       {"[127.0.0.1]:443", badHost},
		"IPvFuture":              {"[v1.allowed.test]:443", badHost},
		"IPvFuture with a colon": {"[v1.a:b]:443", badHost},
		"empty brackets":         {"[]:443", badHost},
		"not closed":             {"[::1:443", badHost},
		"not opened":             {"::1]:443", badHost},
		"name behind brackets":   {"[::1].allowed.test:443", badHost},
		"name before brackets":   {"allowed.test[::1]:443", badHost},
		"space in brackets":      {"[::1 ]:443", badHost},
		"two addresses":          {"[::1][::2]:443", badHost},
		"leading zero in IPv6":   {"[::00001]:443", badHost},
		"octal in mapped":        {"[::ffff:127.0.0.01]:443", badHost},
	})
}

func TestParseTarget(t *testing.T) {
	runParse(t, policy.ParseTarget, map[string]parseCase{
		"root":                    {"http://allowed.test/", "allowed.test:80"},
		"no path":                 {"http://allowed.test", "allowed.test:80"},
		"query without a path":    {"http://allowed.test?x=/@", "allowed.test:80"},
		"port":                    {"http://allowed.test:8080/a", "allowed.test:8080"},
		"port 443":                {"http://allowed.test:443/", "allowed.test:443"},
		"upper-case scheme":       {"HTTP://Allowed.Test./x", "allowed.test:80"},
		"IPv6":                    {"http://[2606:4700::1111]/", "[2606:4700::1111]:80"},
		"mapped":                  {"http://[::ffff:169.254.169.254]:80/latest", "169.254.169.254:80"},
		"at sign in the path":     {"http://allowed.test/@evil.test", "allowed.test:80"},
		"URL in the path":         {"http://allowed.test/http://evil.test:1/", "allowed.test:80"},
		"UTF-8 in the path":       {"http://allowed.test/büro", "allowed.test:80"},
		"escapes in the path":     {"http://allowed.test/%2F%2fx", "allowed.test:80"},
		"bare percent in query":   {"http://allowed.test/?100%", "allowed.test:80"},
		"empty":                   {"", badTarget},
		"origin form":             {"/", noProxy},
		"network path":            {"//evil.test/x", noProxy},
		"asterisk form":           {"*", noProxy},
		"authority form":          {"allowed.test:80", badTarget},
		"bare name":               {"allowed.test", badTarget},
		"no host":                 {"http:///x", badTarget},
		"only a port":             {"http://:80/", badTarget},
		"opaque":                  {"http:allowed.test", badTarget},
		"one slash":               {"http:/allowed.test/", badTarget},
		"three slashes":           {"http:///allowed.test/", badTarget},
		"backslashes":             {`http:\\allowed.test\`, badTarget},
		"backslash, at sign":      {`http://allowed.test\@evil.test/`, badTarget},
		"backslash in the path":   {`http://allowed.test/a\b`, badTarget},
		"backslash in the query":  {`http://allowed.test/?a\b`, badTarget},
		"user":                    {"http://user@allowed.test/", badTarget},
		"user and password":       {"http://user:pw@allowed.test/", badTarget},
		"port-shaped user":        {"http://allowed.test:80@evil.test:80/", badTarget},
		"empty user":              {"http://@allowed.test/", badTarget},
		"fragment":                {"http://allowed.test/#x", badTarget},
		"fragment after the host": {"http://allowed.test#@evil.test/", badTarget},
		"space in the path":       {"http://allowed.test/a b", badTarget},
		"space before":            {" http://allowed.test/", badTarget},
		"tab":                     {"http://allowed.test/\t", badTarget},
		"CRLF":                    {"http://allowed.test/\r\nX: y", badTarget},
		"NUL":                     {"http://allowed.test/\x00", badTarget},
		"DEL":                     {"http://allowed.test/\x7f", badTarget},
		"broken escape":           {"http://allowed.test/%zz", badTarget},
		"escape cut off":          {"http://allowed.test/a%2", badTarget},
		"escape in the host":      {"http://allowed%2etest/", badHost},
		"escaped NUL in the host": {"http://evil.test%00.allowed.test/", badHost},
		"UTF-8 in the host":       {"http://büro.test/", badHost},
		"raw high byte in host":   {"http://a\xff.test/", badHost},
		"zone":                    {"http://[::1%25eth0]/", badHost},
		"empty port":              {"http://allowed.test:/", badPort},
		"port 0":                  {"http://allowed.test:0/", badPort},
		"https":                   {"https://allowed.test/", badScheme},
		"ftp":                     {"ftp://allowed.test/", badScheme},
		"ws":                      {"ws://allowed.test/", badScheme},
		"scheme with a digit":     {"h2c://allowed.test/", badScheme},
		"scheme of a digit":       {"1http://allowed.test/", badTarget},
		"empty scheme":            {"://allowed.test/", badTarget},
		"longer scheme":           {"httpx://allowed.test/", badScheme},
	})
}

func TestParseHostPort(t *testing.T) {
	parse := func(s string) (policy.Destination, error) { return policy.ParseHostPort(s, 443) }
	runParse(t, parse, map[string]parseCase{
		"name":                   {"Allowed.Test.", "allowed.test:443"},
		"name and port":          {"allowed.test:8443", "allowed.test:8443"},
		"IPv4":                   {"93.184.216.34", "93.184.216.34:443"},
		"IPv6 bare":              {"2606:4700::1111", "[2606:4700::1111]:443"},
		"IPv6 in brackets":       {"[2606:4700::1111]", "[2606:4700::1111]:443"},
		"IPv6 and port":          {"[2606:4700::1111]:22", "[2606:4700::1111]:22"},
		"mapped":                 {"::ffff:10.0.0.1", "10.0.0.1:443"},
		"mapped with a zone":     {"::ffff:10.0.0.1%eth0", badHost},
		"zone":                   {"fe80::1%eth0", badHost},
		"short IPv4":             {"127.1", ambiguous},
		"a URL":                  {"https://allowed.test/", badAuthority},
		"empty":                  {"", badAuthority},
		"IPv6 without a bracket": {"2606:4700::1111]", badHost},
	})
	t.Run("no default", func(t *testing.T) {
		_, err := policy.ParseHostPort("allowed.test", 0)
		require.Error(t, err)
		assert.Equal(t, badAuthority, string(reasonOf(t, err)))
	})
}

func TestZeroDestination(t *testing.T) {
	var d policy.Destination
	assert.False(t, d.IsValid())
	assert.Empty(t, d.String())
	assert.Empty(t, d.Host())
	assert.Empty(t, d.Name())
	assert.False(t, d.Addr().IsValid())
	assert.Zero(t, d.Port())
}

func TestDestinationParts(t *testing.T) {
	d, err := policy.ParseAuthority("A.Example.:8443")
	require.NoError(t, err)
	assert.Equal(t, "a.example", d.Name())
	assert.Equal(t, "a.example", d.Host())
	assert.False(t, d.Addr().IsValid())
	assert.Equal(t, uint16(8443), d.Port())

	d, err = policy.ParseAuthority("[2606:4700::1]:443")
	require.NoError(t, err)
	assert.Empty(t, d.Name())
	assert.Equal(t, "2606:4700::1", d.Host())
	assert.Equal(t, "2606:4700::1", d.Addr().String())
}

// A refusal must not carry the input into logs or replies.
func TestParseErrorsQuoteNothing(t *testing.T) {
	const mark = "zqxj"
	for _, in := range []string{
		mark, mark + "@a.test:1", mark + ":0", "[" + mark + "]:1", mark + " x:1", mark + "..a:1", "http://" + mark + "@x/",
		mark + "://x/", "http://a/#" + mark, "xn--" + mark + ".test:1", strings.Repeat(mark, 20) + ".test:1",
	} {
		for _, parse := range []func(string) (policy.Destination, error){policy.ParseAuthority, policy.ParseTarget} {
			if _, err := parse(in); err != nil {
				assert.NotContains(t, err.Error(), mark)
			}
		}
	}
}

// Host and port that came apart are read like those that came as one.
func TestParseName(t *testing.T) {
	for in, want := range map[string]string{
		"Allowed.test.": "allowed.test:443", "127.0.0.1": "127.0.0.1:443", "xn--bcher-kva.example": "xn--bcher-kva.example:443",
	} {
		d, err := policy.ParseName(in, 443)
		require.NoError(t, err, in)
		assert.Equal(t, want, d.String())
	}
	for in, want := range map[string]policy.Reason{
		"": policy.ReasonMalformedHost, "[::1]": policy.ReasonMalformedHost, "::1": policy.ReasonMalformedHost,
		"a.test:443": policy.ReasonMalformedHost, "u@a.test": policy.ReasonMalformedHost, "a.test\x00.b.test": policy.ReasonMalformedHost,
		"127.1": policy.ReasonAmbiguousIP,
	} {
		d, err := policy.ParseName(in, 443)
		require.Error(t, err, "%q", in)
		assert.Equal(t, want, reasonOf(t, err), "%q", in)
		assert.False(t, d.IsValid())
	}
	_, err := policy.ParseName("a.test", 0)
	assert.Equal(t, policy.ReasonBadPort, reasonOf(t, err))
}

func TestAddrDestination(t *testing.T) {
	d, err := policy.AddrDestination(netip.MustParseAddrPort("[::ffff:192.0.2.1]:443"))
	require.NoError(t, err)
	assert.Equal(t, "192.0.2.1:443", d.String())
	for _, a := range []netip.AddrPort{{}, netip.MustParseAddrPort("[fe80::1%eth0]:443"), netip.MustParseAddrPort("192.0.2.1:0")} {
		d, err := policy.AddrDestination(a)
		require.Error(t, err, a)
		assert.False(t, d.IsValid())
	}
}
