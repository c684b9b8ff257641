package pair

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestVariables(t *testing.T) {
	const four, six = "http://127.0.0.1:18082", "http://[::1]:18082"
	usual := func(proxy, all string) []Variable {
		return []Variable{
			{"HTTP_PROXY", proxy},
			{"http_proxy", proxy},
			{"HTTPS_PROXY", proxy},
			{"https_proxy", proxy},
			{"ALL_PROXY", all},
			{"all_proxy", all},
			{"NO_PROXY", "localhost,127.0.0.1,::1"},
			{"no_proxy", "localhost,127.0.0.1,::1"},
		}
	}
	addr := netip.MustParseAddrPort("127.0.0.1:18082")
	assert.Equal(t, usual(four, four), Variables(addr, Variants{}))
	assert.Equal(t, usual(six, six), Variables(netip.MustParseAddrPort("[::1]:18082"), Variants{}))
	assert.Equal(t, usual(four, "socks5h://127.0.0.1:18082"), Variables(addr, Variants{SOCKS: true}))
	java := Variable{
		"JAVA_TOOL_OPTIONS",
		"-Dhttp.proxyHost=127.0.0.1 -Dhttp.proxyPort=18082 -Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=18082 -Dhttp.nonProxyHosts=localhost|127.0.0.1|[::1]",
	}
	assert.Equal(t, append(usual(four, four), java), Variables(addr, Variants{Java: true}))
}

func TestRender(t *testing.T) {
	vars := func(value string) []Variable { return []Variable{{"A", value}, {"b", "1"}} }
	tests := map[string]struct{ shell, value, want string }{
		"sh":                    {"sh", "a|b [c]", "export A='a|b [c]'\nexport b='1'\n"},
		"sh, quote":             {"sh", "it's $HOME `x` \"", `export A='it'\''s $HOME ` + "`x` \"'\nexport b='1'\n"},
		"sh, newline":           {"sh", "a\nb", "export A='a\nb'\nexport b='1'\n"},
		"fish":                  {"fish", "a|b", "set -gx A 'a|b'\nset -gx b '1'\n"},
		"fish, quotes":          {"fish", `it's \n $x`, "set -gx A 'it\\'s \\\\n $x'\nset -gx b '1'\n"},
		"powershell":            {"powershell", `it's $x "`, "$env:A = 'it''s $x \"'\n$env:b = '1'\n"},
		"powershell, typeset":   {"powershell", "\u2018\u2019\u201a\u201b", "$env:A = '\u2018\u2018\u2019\u2019\u201a\u201a\u201b\u201b'\n$env:b = '1'\n"},
		"cmd":                   {"cmd", "a|b & c", "set \"A=a|b & c\"\r\nset \"b=1\"\r\n"},
		"json":                  {"json", "a\"\n", "{\n  \"A\": \"a\\\"\\n\",\n  \"b\": \"1\"\n}\n"},
		"cmd, percent":          {"cmd", "%PATH%", ""},
		"cmd, exclamation mark": {"cmd", "a!b", ""},
		"cmd, caret":            {"cmd", "a^b", ""},
		"cmd, quote":            {"cmd", `a"b`, ""},
		"cmd, newline":          {"cmd", "a\nb", ""},
		"sh, NUL":               {"sh", "a\x00", ""},
		"unknown":               {"tcsh", "a", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Render(tt.shell, vars(tt.value))
			if tt.want == "" {
				require.Error(t, err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, tt.want, got)
		})
	}
}
