package pair

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Variable is a variable of the environment.
type Variable struct{ Name, Value string }

// Variants choose what [Variables] returns besides the usual.
type Variants struct {
	// SOCKS makes ALL_PROXY a socks5h URL: names are resolved by the gate. Off by
	// default, because clients without SOCKS fail at the sight of one.
	SOCKS bool
	// Java adds JAVA_TOOL_OPTIONS: a JVM does not read the other variables.
	Java bool
}

// Variables returns what makes other tools use the listener at addr, in both
// spellings. The address is a number, not localhost: for some clients that is
// first ::1, for others only 127.0.0.1.
func Variables(addr netip.AddrPort, v Variants) []Variable {
	proxy := proxyURL(addr.Addr().String(), addr.Port())
	all := proxy
	if v.SOCKS {
		all = "socks5h" + strings.TrimPrefix(proxy, "http")
	}
	var out []Variable
	both := func(name, value string) {
		out = append(out, Variable{name, value}, Variable{strings.ToLower(name), value})
	}
	both("HTTP_PROXY", proxy)
	both("HTTPS_PROXY", proxy)
	both("ALL_PROXY", all)
	both("NO_PROXY", Loopback)
	if v.Java {
		host, port := addr.Addr().String(), addr.Port()
		out = append(out, Variable{"JAVA_TOOL_OPTIONS", fmt.Sprintf(
			"-Dhttp.proxyHost=%[1]s -Dhttp.proxyPort=%[2]d -Dhttps.proxyHost=%[1]s -Dhttps.proxyPort=%[2]d -Dhttp.nonProxyHosts=localhost|127.0.0.1|[::1]",
			host, port)})
	}
	return out
}

// Shells are what [Render] can write for.
var Shells = []string{"sh", "fish", "powershell", "cmd", "json"}

// Render writes variables in the language of a shell, one a line, so that the
// shell sets exactly these values. It fails for a shell that is not one of
// [Shells], and for a value that the shell can't be told.
func Render(shell string, vars []Variable) (string, error) {
	if !slices.Contains(Shells, shell) {
		return "", fmt.Errorf("%q is not one of the shells: %s", shell, strings.Join(Shells, ", "))
	}
	if shell == "json" {
		return renderJSON(vars)
	}
	var b strings.Builder
	for _, v := range vars {
		if strings.ContainsRune(v.Value, 0) {
			return "", fmt.Errorf("%s has a NUL byte, which no environment can hold", v.Name)
		}
		switch shell {
		case "sh":
			b.WriteString("export " + v.Name + "='" + strings.ReplaceAll(v.Value, "'", `'\''`) + "'\n")
		case "fish":
			b.WriteString("set -gx " + v.Name + " '" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(v.Value) + "'\n")
		case "powershell":
			b.WriteString("$env:" + v.Name + " = '" + powershellQuotes.Replace(v.Value) + "'\n")
		case "cmd":
			// Inside quotes only these are special, and a line has no way to say
			// them that is right at the prompt and in a file.
			if strings.ContainsAny(v.Value, "\"%!^\r\n") {
				return "", fmt.Errorf("%s has a character that cmd can not be told: use another shell", v.Name)
			}
			b.WriteString("set \"" + v.Name + "=" + v.Value + "\"\r\n")
		}
	}
	return b.String(), nil
}

// powershellQuotes doubles the quotes: PowerShell takes the typographic ones for
// the same.
var powershellQuotes = strings.NewReplacer("'", "''", "\u2018", "\u2018\u2018", "\u2019", "\u2019\u2019", "\u201a", "\u201a\u201a", "\u201b", "\u201b\u201b")

func renderJSON(vars []Variable) (string, error) {
	object := make(map[string]string, len(vars))
	for _, v := range vars {
		object[v.Name] = v.Value
	}
	out, err := json.MarshalIndent(object, "", "  ")
	return string(out) + "\n", err
}
