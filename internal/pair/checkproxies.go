package pair

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

const loopbackHost = "127.0.0.1"

func proxyURL(host string, port uint16) string {
	return "http://" + net.JoinHostPort(host, strconv.Itoa(int(port)))
}

// variable is what a process of the product finds in its environment.
type variable struct {
	name, text string
	at         place
	managed    bool
}

// lookup returns a variable, nil if it is unset or empty. Settings come before
// the shell.
func (c *checker) lookup(name string) *variable {
	if v := c.managedEnv.get(name); v != nil {
		return newVariable(name, v, true)
	}
	for _, scope := range c.scopes[1:] {
		if v := scope.get("env", name); v != nil {
			return newVariable(name, v, false)
		}
	}
	text := ""
	for _, entry := range c.Environ {
		if n, t, ok := strings.Cut(entry, "="); ok && (n == name || c.Places.OS == Windows && strings.EqualFold(n, name)) {
			text = t
		}
	}
	if text == "" {
		return nil
	}
	return &variable{name: name, text: text, at: place{source: c.environ}}
}

func newVariable(name string, v *value, managed bool) *variable {
	if v.kind != kindString || v.text == "" {
		return nil // another type is a finding of its own
	}
	return &variable{name: name, text: v.text, at: v.at, managed: managed}
}

// checkProxies judges the variables that lead the product's own process, and all
// that it starts outside the sandbox.
func (c *checker) checkProxies() {
	for _, name := range proxyVariables {
		if v := c.lookup(name); v != nil {
			c.checkProxy(v)
		}
	}
	for _, pair := range [][2]string{{"https_proxy", "HTTPS_PROXY"}, {"http_proxy", "HTTP_PROXY"}} {
		c.checkSet(pair[0], pair[1])
	}
	for _, name := range allProxyVariables {
		if v := c.lookup(name); v != nil {
			c.checkAllProxy(v)
		}
	}
	for _, name := range noProxyVariables {
		if v := c.lookup(name); v != nil {
			c.checkNoProxy(v)
		}
	}
	c.checkUnlocked()
}

// key is a variable as the finding names it.
func (v *variable) key() string {
	if v.at.file == "" {
		return v.name
	}
	return "env." + v.name
}

func (c *checker) mendProxy() string {
	return fmt.Sprintf("Set it to %s, the port of %s, or remove it.", proxyURL(loopbackHost, c.Ports.Process), ProcessProfile)
}

func (c *checker) checkProxy(v *variable) {
	port, ok := gatePort(v.text)
	switch {
	case ok && port == c.Ports.Process:
	case ok && port == c.Ports.Commands:
		c.found(Weakens, "proxy_elsewhere", v.at, v.key(), "is "+quote(redact(v.text))+", the port of "+CommandsProfile,
			"The product's own traffic would be judged by the list for commands.", c.mendProxy())
	default:
		why := "Traffic of the product goes there and not through the gate."
		if v.name == strings.ToLower(v.name) {
			why += " A lower-case variable wins over an upper-case one."
		}
		c.found(Weakens, "proxy_elsewhere", v.at, v.key(), "is "+quote(redact(v.text)), why, c.mendProxy())
	}
}

// checkSet wants one of the two spellings, from the managed settings.
func (c *checker) checkSet(lower, upper string) {
	used := c.lookup(lower)
	if used == nil {
		used = c.lookup(upper)
	}
	switch {
	case c.unpaired:
	case used == nil:
		c.found(Weakens, "proxy_unset", c.managedFrom, "env."+upper, "is set nowhere",
			"The product's own traffic, and that of what it starts outside the sandbox, goes around the gate.",
			c.mendMissing("Set it to "+proxyURL(loopbackHost, c.Ports.Process)))
	case c.managedEnv.get(lower) == nil && c.managedEnv.get(upper) == nil:
		c.found(Weakens, "proxy_not_managed", used.at, used.key(), "is not set in the managed settings",
			"A user or an agent can change it, and a session that is started elsewhere may not have it.", c.mendMissing("Set it there"))
	}
}

func (c *checker) checkAllProxy(v *variable) {
	port, ok := gatePort(v.text)
	ours := ok && (port == c.Ports.Process || port == c.Ports.Commands)
	socks := strings.HasPrefix(strings.ToLower(v.text), "socks")
	mend := "Remove it, or set it to " + proxyURL(loopbackHost, c.Ports.Process) + "."
	switch {
	case ours && socks:
		c.found(Note, "all_proxy_socks", v.at, v.key(), "is "+quote(redact(v.text)),
			"The product's process does not speak SOCKS, and some clients fail at the sight of it.", mend)
	case !ours:
		c.found(Weakens, "all_proxy_elsewhere", v.at, v.key(), "is "+quote(redact(v.text)),
			"Clients that read it go there and not through the gate.", mend)
	}
}

func (c *checker) checkNoProxy(v *variable) {
	var holes []string
	for entry := range strings.FieldsFuncSeq(v.text, func(r rune) bool { return r == ',' || r == ' ' || r == '\t' }) {
		if why := hole(entry); why != "" {
			holes = append(holes, quote(entry)+" ("+why+")")
		}
	}
	if len(holes) == 0 {
		return
	}
	const most = 8
	if len(holes) > most {
		holes = append(holes[:most], fmt.Sprintf("and %d more", len(holes)-most))
	}
	c.found(Weakens, "no_proxy_hole", v.at, v.key(), "lists "+strings.Join(holes, ", "),
		"Clients connect to these on their own: the gate neither refuses nor records it.", "Set it to "+Loopback+".")
}

// hole says what an entry of NO_PROXY lets through, "" for loopback.
func hole(entry string) string {
	if entry == "*" {
		return "everything"
	}
	host := entry
	if h, _, err := net.SplitHostPort(entry); err == nil {
		host = h
	}
	host = strings.TrimPrefix(strings.TrimSuffix(host, "]"), "[")
	if prefix, err := netip.ParsePrefix(host); err == nil {
		first := prefix.Masked().Addr()
		if first.IsLoopback() && (first.Is4() && prefix.Bits() >= 8 || first.Is6() && prefix.Bits() == 128) {
			return ""
		}
		return "a " + class(first) + " range"
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		if ip.Unmap().IsLoopback() {
			return ""
		}
		return "a " + class(ip) + " address"
	}
	name := strings.ToLower(strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(host, "*"), "."), "."))
	if name == "localhost" || strings.HasSuffix(name, ".localhost") {
		return ""
	}
	return "a name"
}

func class(ip netip.Addr) string {
	switch ip = ip.Unmap(); {
	case ip.IsLinkLocalUnicast():
		return "link-local"
	case ip.IsPrivate():
		return "private"
	case ip.IsUnspecified():
		return "very wide"
	default:
		return "public"
	}
}

// checkUnlocked notes the spellings that the managed settings leave to the shell
// although they have the other one.
func (c *checker) checkUnlocked() {
	if c.unpaired {
		return
	}
	for _, pair := range [][2]string{{"https_proxy", "HTTPS_PROXY"}, {"http_proxy", "HTTP_PROXY"}, {"no_proxy", "NO_PROXY"}} {
		for i, name := range pair {
			other := pair[1-i]
			if c.managedEnv.get(name) != nil || c.managedEnv.get(other) == nil && name != "NO_PROXY" {
				continue
			}
			c.found(Note, "variable_not_managed", c.managedFrom, "env."+name, "is not set in the managed settings",
				"A value from somebody's shell or project would count, and a lower-case variable wins over an upper-case one.", c.mendMissing("Set it"))
		}
	}
}

// gatePort returns the port of a URL that leads to this machine.
func gatePort(s string) (uint16, bool) {
	u, err := url.Parse(s)
	if err != nil || u.User != nil || !slices.Contains([]string{"", "/"}, u.Path) || u.RawQuery != "" {
		return 0, false
	}
	if !slices.Contains([]string{"http", "socks5", "socks5h"}, u.Scheme) ||
		!slices.Contains([]string{"localhost", loopbackHost, "::1"}, u.Hostname()) {
		return 0, false
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	return uint16(port), err == nil
}

// redact returns scheme, host and port of a proxy's URL: what is before the @ is
// a password, what is behind the host may be a token. It does not rely on the URL
// being one.
func redact(s string) string {
	scheme, rest, found := strings.Cut(s, "://")
	if !found {
		scheme, rest = "", s
	} else {
		scheme += "://"
	}
	if i := strings.LastIndexByte(rest, '@'); i >= 0 {
		rest = rest[i+1:]
	}
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		rest = rest[:i]
	}
	return scheme + rest
}
