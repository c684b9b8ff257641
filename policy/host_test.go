package policy_test

import (
	"strings"
	"testing"

	"sluicegate/policy"
)

// The host grammar, as requests meet it.
func TestHostGrammar(t *testing.T) {
	label63 := strings.Repeat("a", 63)
	name253 := label63 + "." + label63 + "." + label63 + "." + strings.Repeat("b", 61)
	cases := map[string]parseCase{
		"lower case":              {"ALLOWED.Test", "allowed.test"},
		"one trailing dot":        {"allowed.test.", "allowed.test"},
		"both":                    {"AllowED.TEST.", "allowed.test"},
		"single label":            {"intranet", "intranet"},
		"underscore":              {"_acme.wild.test", "_acme.wild.test"},
		"hyphens at the edges":    {"-a-.test", "-a-.test"},
		"hyphens in place 3, 4":   {"r3---sn-4g5e.test", "r3---sn-4g5e.test"},
		"digits first":            {"0x7f.0.0.1.wild.test", "0x7f.0.0.1.wild.test"},
		"digits and letters last": {"a.1x", "a.1x"},
		"0x and a letter beyond":  {"a.0xg", "a.0xg"},
		"label of 63":             {label63 + ".test", label63 + ".test"},
		"name of 253":             {name253, name253},
		"name of 253 and a dot":   {name253 + ".", name253},

		"label of 64":         {label63 + "a.test", badHost},
		"name of 254":         {name253 + "b", badHost},
		"very long":           {strings.Repeat("a.", 40000) + "test", badHost},
		"dot":                 {".", badHost},
		"two dots":            {"..", badHost},
		"two trailing dots":   {"allowed.test..", badHost},
		"leading dot":         {".allowed.test", badHost},
		"empty label":         {"a..wild.test", badHost},
		"space":               {"a b.test", badHost},
		"tab":                 {"a\tb.test", badHost},
		"newline":             {"a\nb.test", badHost},
		"NUL":                 {"evil.test\x00.allowed.test", badHost},
		"DEL":                 {"evil.test\x7f.wild.test", badHost},
		"slash":               {"evil.test/.wild.test", badHost},
		"hash":                {"evil.test#.wild.test", badHost},
		"question mark":       {"evil.test?.wild.test", badHost},
		"backslash":           {`evil.test\.wild.test`, badHost},
		"semicolon":           {"evil.test;.wild.test", badHost},
		"comma":               {"evil.test,allowed.test", badHost},
		"star":                {"*.wild.test", badHost},
		"percent":             {"allowed%2etest", badHost},
		"quote":               {`"allowed.test"`, badHost},
		"plus, equals":        {"a+b=c.test", badHost},
		"fullwidth dot":       {"allowed．test", badHost},
		"halfwidth dot":       {"allowed｡test", badHost},
		"ideographic dot":     {"127。0。0。1", badHost},
		"fullwidth digits":    {"１２７.０.０.１", badHost},
		"Cyrillic":            {"аllowed.test", badHost},
		"soft hyphen":         {"al\u00adlowed.test", badHost},
		"circled letter":      {"Ⓐllowed.test", badHost},
		"Kelvin sign":         {"\u212aelvin.wild.test", badHost},
		"long s":              {"te\u017ft.test", badHost},
		"zero width joiner":   {"allowed\u200d.test", badHost},
		"not UTF-8":           {"a\xc3.test", badHost},
		"overlong UTF-8":      {"a\xc0\xae.test", badHost},
		"right-to-left mark":  {"a\u202e.test", badHost},
		"IPv6 without colons": {"2001db8", "2001db8"},
	}
	runHosts(t, cases)
}

// The last label decides what a resolver makes of a name: the C library and
// macOS read every one of these as an address.
func TestAmbiguousAddresses(t *testing.T) {
	cases := map[string]parseCase{
		"dotted decimal": {"127.0.0.1", "127.0.0.1"},
		"zeros":          {"0.0.0.0", "0.0.0.0"},
		"highest":        {"255.255.255.255", "255.255.255.255"},
	}
	for _, in := range []string{
		"2130706433", "0x7f000001", "0X7F000001", "017700000001", "127.1", "127.0.1", "0177.0.0.1", "0x7f.0.0.1",
		"0x7f.1", "0", "0x0", "0x", "0X", "00", "127.00.0.1", "127.0.0.01", "127.0.0.1.", "127.1.", "2852039166",
		"169.254.43518", "0xa9.254.0251.254", "10.257", "4294967296", "256.1.1.1", "1.1.1.1.1", "1.1.1",
		"127.0.0.0x1", "allowed.test.1", "allowed.test.0x1f", "a.0x", "_.1", "a.1.", "127.0.0.08", "1e3.1",
		"99999999999999999999999999999999999999", "0xffffffffffffffffffffffffff",
	} {
		cases[in] = parseCase{in, ambiguous}
	}
	runHosts(t, cases)
}

// Names in their ASCII form: what decodes to no other name, or to an ASCII one,
// would be a second spelling.
func TestALabels(t *testing.T) {
	runHosts(t, map[string]parseCase{
		"valid":                  {"xn--bcher-kva.wild.test", "xn--bcher-kva.wild.test"},
		"upper case":             {"XN--BCHER-KVA.wild.test", "xn--bcher-kva.wild.test"},
		"another name":           {"xn--llowed-5nf.test", "xn--llowed-5nf.test"},
		"sharp s":                {"xn--strae-oqa.test", "xn--strae-oqa.test"},
		"final sigma":            {"xn--nxasmm1c.test", "xn--nxasmm1c.test"},
		"as top label":           {"xn--p1ai", "xn--p1ai"},
		"right to left":          {"xn--4dbrk0ce.test", "xn--4dbrk0ce.test"},
		"emoji":                  {"xn--ls8h.test", "xn--ls8h.test"},
		"empty":                  {"xn--.wild.test", badHost},
		"plain ASCII inside":     {"xn--example-.test", badHost},
		"ASCII and a hyphen":     {"xn--allowed-.test", badHost},
		"not decodable":          {"xn--zzzzzzzzzzzzzzz.wild.test", badHost},
		"overflow":               {"xn--99999999999999.test", badHost},
		"decodes to upper case":  {"xn--bcher-2pa.test", badHost},
		"decodes to fullwidth":   {"xn--7g7c.test", badHost},
		"decodes to soft hyphen": {"xn--allowed-mka.test", badHost},
		"decodes to a joiner":    {"xn--allowed-h06c.test", badHost},
		"decodes to a dot":       {"xn--allowedtest-3m25d.test", badHost},
		"decodes to Kelvin sign": {"xn--elvin-r74b.test", badHost},
		"decodes to long s":      {"xn--tet-h3a.test", badHost},
		"mark first":             {"xn--a-wbb.test", badHost},
		"mixed directions":       {"xn--a-zhc.test", badHost},
	})
}

func runHosts(t *testing.T, cases map[string]parseCase) {
	t.Helper()
	isReason := map[string]bool{badHost: true, ambiguous: true}
	authority, target := map[string]parseCase{}, map[string]parseCase{}
	for name, c := range cases {
		want := c.want
		if !isReason[want] {
			want += ":443"
		}
		authority[name+" in authority"] = parseCase{c.in + ":443", want}
		if !strings.ContainsAny(c.in, " \t\n\x00\x7f/#?\\") {
			target[name+" in URL"] = parseCase{"http://" + c.in + ":443/x", want}
		}
	}
	runParse(t, policy.ParseAuthority, authority)
	runParse(t, policy.ParseTarget, target)
}
