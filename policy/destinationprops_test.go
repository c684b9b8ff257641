package policy_test

import (
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"sluicegate/policy"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/idna"
	"pgregory.net/rapid"
)

// genName draws names that the grammar accepts.
func genName() *rapid.Generator[string] {
	label := rapid.OneOf(
		rapid.StringMatching(`[a-z0-9_]([a-z0-9_-]{0,12}[a-z0-9_])?`),
		rapid.StringMatching(`[a-z0-9_-]{1,63}`),
		rapid.SampledFrom([]string{"xn--bcher-kva", "xn--p1ai", "0x7f", "127", "a"}),
	).Filter(func(s string) bool {
		return !strings.HasPrefix(s, "xn--") || s == "xn--bcher-kva" || s == "xn--p1ai"
	})
	top := rapid.StringMatching(`[a-z][a-z-]{0,20}[a-z]`).Filter(func(s string) bool { return !strings.HasPrefix(s, "xn--") })
	return rapid.Custom(func(t *rapid.T) string {
		labels := append(rapid.SliceOfN(label, 0, 6).Draw(t, "labels"), top.Draw(t, "top"))
		return strings.Join(labels, ".")
	}).Filter(func(s string) bool { return len(s) <= 253 })
}

// genAddr draws addresses, the special-purpose ones more often than their share.
func genAddr() *rapid.Generator[netip.Addr] {
	v4 := rapid.Custom(func(t *rapid.T) netip.Addr {
		return netip.AddrFrom4([4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "v4")))
	})
	v6 := rapid.Custom(func(t *rapid.T) netip.Addr {
		return netip.AddrFrom16([16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "v6")))
	})
	known := rapid.SampledFrom([]string{
		"127.0.0.1", "10.0.0.1", "169.254.169.254", "8.8.8.8", "0.0.0.0", "255.255.255.255", "100.64.0.1", "::", "::1",
		"fe80::1", "fd00:ec2::254", "2606:4700::1111", "2001:db8::1", "64:ff9b::7f00:1", "2002:a9fe:a9fe::1", "fd12::1",
		"2001:470::5efe:a00:1", "::ffff:10.0.0.1", "ff02::1", "4000::1", "192.168.1.1", "93.184.216.34",
	})
	return rapid.OneOf(v4, v6, rapid.Map(known, netip.MustParseAddr))
}

// genHost draws a host as a client writes it.
func genHost() *rapid.Generator[string] {
	return rapid.OneOf(genName(), rapid.Map(genAddr(), func(a netip.Addr) string {
		if a.Is4() {
			return a.String()
		}
		return "[" + a.String() + "]"
	}))
}

func genPort() *rapid.Generator[uint16] {
	return rapid.OneOf(rapid.SampledFrom([]uint16{80, 443, 22, 1, 65535}), rapid.Uint16Min(1))
}

// What is printed reads back as the same destination, by every parser.
func TestParsePrintParse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := fmt.Sprintf("%s:%d", genHost().Draw(t, "host"), genPort().Draw(t, "port"))
		d, err := policy.ParseAuthority(in)
		require.NoError(t, err, in)
		for name, parse := range map[string]func() (policy.Destination, error){
			"authority": func() (policy.Destination, error) { return policy.ParseAuthority(d.String()) },
			"target":    func() (policy.Destination, error) { return policy.ParseTarget("http://" + d.String() + "/") },
			"hostport":  func() (policy.Destination, error) { return policy.ParseHostPort(d.String(), 0) },
			"host":      func() (policy.Destination, error) { return policy.ParseHostPort(d.Host(), d.Port()) },
		} {
			again, err := parse()
			require.NoError(t, err, "%s of %q", name, d.String())
			require.Equal(t, d, again, name)
		}
	})
}

// Letter case and one trailing dot are no difference between names.
func TestCaseAndDotChangeNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := genName().Draw(t, "name")
		want, err := policy.ParseAuthority(name + ":443")
		require.NoError(t, err)
		mixed := []byte(name)
		for i, up := range rapid.SliceOfN(rapid.Bool(), len(mixed), len(mixed)).Draw(t, "upper") {
			if up {
				mixed[i] = strings.ToUpper(name[i : i+1])[0]
			}
		}
		for _, spelling := range []string{string(mixed), name + ".", string(mixed) + "."} {
			got, err := policy.ParseAuthority(spelling + ":443")
			require.NoError(t, err, spelling)
			require.Equal(t, want, got, spelling)
		}
		if len(name) < 253 {
			_, err = policy.ParseAuthority(name + "..:443")
			require.Error(t, err)
		}
	})
}

// genAlmost draws what is near the grammar: pieces of good and bad input.
func genAlmost() *rapid.Generator[string] {
	piece := rapid.OneOf(
		rapid.SampledFrom([]string{
			"http://", "HTTP://", "https://", "//", "/", ":", "@", "[", "]", "::1", "%25", "%", "eth0", "?", "#", "\\", ".", "..",
			"443", ":443", ":0443", "0x7f", "127.0.0.1", "allowed.test", "xn--", "xn--bcher-kva", "-", "_", "\x00", " ", "\t",
			"\r\n", "ü", "．", "１", "*", "::ffff:10.0.0.1", ":65536", "user:pw@", "%2e", "\xff", "\u202e",
		}),
		genName(), rapid.String(), rapid.Map(rapid.Byte(), func(b byte) string { return string([]byte{b}) }),
	)
	return rapid.Map(rapid.SliceOfN(piece, 0, 6), func(s []string) string { return strings.Join(s, "") })
}

func TestNoInputEscapesTheGrammar(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := genAlmost().Draw(t, "input")
		checkAuthority(t, in)
		checkTarget(t, in)
		checkTarget(t, "http://"+in)
	})
}

// checkAuthority holds what ParseAuthority accepts against the grammar of RFC
// 3986 section 3.2, read by other means.
func checkAuthority(t require.TestingT, in string) {
	d, err := policy.ParseAuthority(in)
	if err != nil {
		reasonOf(t, err)
		return
	}
	host, port, ok := cutLast(in, ":")
	require.True(t, ok, in)
	require.Equal(t, fmt.Sprint(d.Port()), port, in)
	checkHost(t, d, host)
}

// checkTarget holds what ParseTarget accepts against net/url.
func checkTarget(t require.TestingT, in string) {
	d, err := policy.ParseTarget(in)
	if err != nil {
		reasonOf(t, err)
		return
	}
	u, err := url.Parse(in)
	require.NoError(t, err, "%q", in)
	require.Equal(t, "http", u.Scheme)
	require.Nil(t, u.User)
	require.Empty(t, u.Fragment)
	require.Empty(t, u.Opaque)
	port := u.Port()
	if port == "" {
		port = "80"
	}
	require.Equal(t, fmt.Sprint(d.Port()), port, in)
	host := u.Hostname()
	if strings.Contains(u.Host, "[") {
		host = "[" + host + "]"
	}
	checkHost(t, d, host)
}

// checkHost compares the destination with the host as it was written.
func checkHost(t require.TestingT, d policy.Destination, host string) {
	for i := range len(host) {
		c := host[i]
		require.True(t, c < 0x80 && (c == '-' || c == '_' || c == '.' || c == ':' || c == '[' || c == ']' ||
			c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'), "%q", host)
	}
	if a := d.Addr(); a.IsValid() {
		require.Empty(t, d.Name())
		require.Empty(t, a.Zone())
		require.False(t, a.Is4In6())
		written, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"))
		require.NoError(t, err, host)
		require.Equal(t, written.Unmap(), a)
		require.Equal(t, written.Is6(), strings.HasPrefix(host, "["), host)
		return
	}
	name := d.Name()
	require.Equal(t, strings.TrimSuffix(strings.ToLower(host), "."), name)
	require.LessOrEqual(t, len(name), 253)
	labels := strings.Split(name, ".")
	for _, l := range labels {
		require.NotEmpty(t, l, name)
		require.LessOrEqual(t, len(l), 63, name)
	}
	last := labels[len(labels)-1]
	require.NotEmpty(t, strings.Trim(last, "0123456789"), name)
	require.False(t, strings.HasPrefix(last, "0x") && strings.Trim(last[2:], "0123456789abcdef") == "", name)
	// Every program that knows international names must see the same name.
	u, err := idna.Display.ToUnicode(name)
	if err == nil {
		back, err := idna.Punycode.ToASCII(u)
		require.NoError(t, err, name)
		require.Equal(t, name, back)
	}
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}
