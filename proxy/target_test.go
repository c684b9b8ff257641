package proxy

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"
)

func TestRawTarget(t *testing.T) {
	for in, want := range map[string]string{
		"allowed.test:443":             "allowed.test:443",
		"allowed.test:443/x":           "allowed.test:443/",
		"http://a.test/secret?q#f":     "http://a.test/",
		"http://a.test?secret":         "http://a.test",
		"http://a.test#secret":         "http://a.test",
		"HTTP://A.test:81/x":           "HTTP://A.test:81/",
		"http://u:pw@a.test/":          "http://REDACTED@a.test/",
		"u:pw@a.test:443":              "REDACTED@a.test:443",
		"http://a@b@c/":                "http://REDACTED@c/",
		"http://u:p/w@a.test/x":        "http://REDACTED@",
		"http://u:p?w@a.test/x":        "http://REDACTED@",
		"http://u:p#w@a.test/x":        "http://REDACTED@",
		"http://x@u:p/w@a.test/":       "http://REDACTED@",
		"http://a.test/@scope/pkg":     "http://a.test/",
		"http://a.test:81/@scope/pkg":  "http://a.test:81/",
		"http://[::1]:81/@scope/pkg":   "http://[::1]:81/",
		"http://[::1]/a@b":             "http://[::1]/",
		"/secret":                      "/",
		"/secret/x://y":                "/",
		"//a.test/x":                   "/",
		"u:pw@a/secret://y":            "REDACTED@a/",
		"mailto:u@a":                   "REDACTED@a",
		"http:a.test":                  "http:a.test",
		"http:\\\\a.test\\x":           "http:",
		"http://a.test\\secret":        "http://a.test",
		"*":                            "*",
		"":                             "",
		"a\x00b\x1b[2J\xff":            `a\x00b\x1b[2J\xff`,
		"a.test:443\nCookie: s=SECRET": "a.test:443",
		"a.test:443\rX":                "a.test:443",
	} {
		got, cut := rawTarget(in)
		assert.Equal(t, want, got, "%q", in)
		assert.False(t, cut)
	}
	got, cut := rawTarget("http://" + strings.Repeat("a", 600))
	assert.Len(t, got, maxTarget)
	assert.True(t, cut)
}

// Whatever stands around them, credentials, path, query and fragment never reach
// a record.
func TestRawTargetLeaksNothing(t *testing.T) {
	const secret = "SECRET"
	noise := rapid.StringOfN(rapid.RuneFrom([]rune("ab:/?#@\\%.[]1\n\x00 é")), 0, 6, -1)
	host := rapid.SampledFrom([]string{"a.test", "a.test:80", "[::1]", "[::1]:80", "1.2.3.4", "", "a b", "é"})
	prefix := rapid.SampledFrom([]string{"", "http://", "HTTPS://", "ftp://", "a+b-c.d://", "1x://", "://"})
	rapid.Check(t, func(t *rapid.T) {
		var target string
		switch rapid.IntRange(0, 3).Draw(t, "where") {
		case 0:
			target = prefix.Draw(t, "prefix") + "user:" + secret + noise.Draw(t, "rest of the password") + "@" + host.Draw(t, "host")
		case 1:
			target = prefix.Draw(t, "prefix") + host.Draw(t, "host") + "/" + noise.Draw(t, "path") + secret
		case 2:
			target = prefix.Draw(t, "prefix") + host.Draw(t, "host") + "?" + noise.Draw(t, "query") + secret
		default:
			target = prefix.Draw(t, "prefix") + host.Draw(t, "host") + "#" + noise.Draw(t, "fragment") + secret
		}
		target += noise.Draw(t, "end")
		got, _ := rawTarget(target)
		if strings.Contains(got, secret) {
			t.Fatalf("%q is recorded as %q", target, got)
		}
		for _, c := range []byte(got) {
			if c < ' ' || c > '~' {
				t.Fatalf("%q has the byte %#x", got, c)
			}
		}
	})
}

// The scheme of a record is one, or nothing.
func TestSchemeOf(t *testing.T) {
	for in, want := range map[string]string{
		"http://a": "http", "HTTPS://a": "HTTPS", "a+b-c.1://x": "a+b-c.1", "a.test:443": "", "://a": "", "1a://b": "",
		"user:pw@x://y": "", "a b://c": "", "seventeencharslong://x": "", "/x://y": "", "h\x00://x": "",
	} {
		assert.Equal(t, want, schemeOf(in), "%q", in)
	}
}
