package pair

import (
	"fmt"
	"strconv"
	"strings"
)

// checkSandbox judges what keeps commands inside.
func (c *checker) checkSandbox() {
	if c.Places.OS == Windows {
		c.add(Finding{
			Level: Weakens, Code: "no_sandbox", Source: "Claude Code", Key: "sandbox", Found: "does not exist on native Windows",
			Why:  "Nothing but variables makes a command use the gate, and a command can ignore them.",
			Mend: "Run Claude Code in WSL2.",
		})
	}
	c.required("sandbox_disabled", true, "Commands run outside the sandbox and reach the network without the gate.", "sandbox", "enabled")
	c.required("sandbox_may_fail", true, "Where the sandbox can not start, commands run without it.", "sandbox", "failIfUnavailable")
	c.required("unsandboxed_commands", false, "The agent can ask for a command outside the sandbox.", "sandbox", "allowUnsandboxedCommands")
	c.port("http_port", "httpProxyPort")
	c.port("socks_port", "socksProxyPort")
	c.checkBackstop()
	c.checkExcluded()
	c.checkLoosened()
	c.checkPermissions()
}

// unset is what to say of a key that the managed settings do not have.
func (c *checker) unset(path ...string) string {
	text := "is not set in the managed settings"
	for _, scope := range c.scopes[1:] {
		if v := scope.get(path...); v != nil {
			return text + "; " + v.at.source.Name + " have " + show(v) + ", which a user or an agent can change"
		}
	}
	return text
}

// required wants a switch in the managed settings, the only ones that hold.
func (c *checker) required(code string, want bool, why string, path ...string) {
	key := strings.Join(path, ".")
	set := fmt.Sprintf("Set it to %t", want)
	switch v := c.managed.get(path...); {
	case v == nil && c.unpaired:
	case v == nil:
		c.found(Weakens, code, c.managedFrom, key, c.unset(path...), why, c.mendMissing(set))
	case v.kind != kindBool || v.boolean != want:
		c.found(Weakens, code, v.at, key, "is "+show(v), why, set+" there.")
	}
}

// port wants the port of the profile for commands.
func (c *checker) port(code, name string) {
	path := []string{"sandbox", "network", name}
	key := strings.Join(path, ".")
	set := fmt.Sprintf("Set it to %d, the port of %s", c.Ports.Commands, CommandsProfile)
	v := c.managed.get(path...)
	switch {
	case v == nil && c.unpaired:
	case v == nil:
		c.found(Weakens, code+"_unset", c.managedFrom, key, c.unset(path...),
			"Claude Code then runs a proxy of its own for this protocol, and the gate does not see the traffic.", c.mendMissing(set))
	case isPort(v, c.Ports.Commands):
	case isPort(v, c.Ports.Process):
		c.found(Weakens, code+"_other", v.at, key, "is "+show(v)+", the port of "+ProcessProfile,
			"Commands would reach the hosts of the model API, which is a way to carry data out.", set+" there.")
	default:
		c.found(Weakens, code+"_other", v.at, key, "is "+show(v), "Whatever listens there decides, not the gate.", set+" there.")
	}
}

func isPort(v *value, port uint16) bool {
	n, err := strconv.ParseFloat(v.text, 64)
	return err == nil && v.kind == kindNumber && n == float64(port)
}

func (c *checker) checkBackstop() {
	if c.unpaired {
		return
	}
	for _, v := range c.anyManaged {
		// It counts from every managed source.
		if only := v.get("sandbox", "network", "allowManagedDomainsOnly"); only != nil && only.boolean {
			return
		}
	}
	at, text := c.managedFrom, c.unset("sandbox", "network", "allowManagedDomainsOnly")
	if v := c.managed.get("sandbox", "network", "allowManagedDomainsOnly"); v != nil {
		at, text = v.at, "is "+show(v)
	}
	c.found(Note, "no_backstop", at, "sandbox.network.allowManagedDomainsOnly", text,
		"Should the ports ever be unset, lists of the user and of projects would decide.", c.mendMissing("Set it to true"))
}

// checkExcluded looks into every scope: the lists are joined, and no managed
// setting can lock them.
func (c *checker) checkExcluded() {
	for _, scope := range c.scopes {
		v := scope.get("sandbox", "excludedCommands")
		if v == nil || len(v.items) == 0 {
			continue
		}
		var programs []string
		for _, item := range v.items {
			// The first word: arguments are nobody's business here.
			word, _, _ := strings.Cut(strings.TrimSpace(item.text), " ")
			programs = append(programs, word)
		}
		c.found(Weakens, "excluded_commands", v.at, "sandbox.excludedCommands", "lists "+list(programs),
			"These commands always run outside the sandbox. No managed setting can lock this list.",
			"Empty the list, and let the policy allow what they need.")
	}
}

// checkLoosened finds switches that open the sandbox, in the scope that decides.
func (c *checker) checkLoosened() {
	for _, s := range []struct{ code, key, why string }{
		{"weaker_nested_sandbox", "sandbox.enableWeakerNestedSandbox", "The sandbox is weaker than the boundary needs."},
		{"weaker_network_isolation", "sandbox.enableWeakerNetworkIsolation", "Commands reach system services that can connect for them."},
		{"all_unix_sockets", "sandbox.network.allowAllUnixSockets", "A command can ask another program, such as a container engine, to connect for it."},
		{"local_binding", "sandbox.network.allowLocalBinding", "Commands can listen and reach other programs on this machine without the gate."},
	} {
		if v := c.effective(strings.Split(s.key, ".")...); v != nil && v.boolean {
			c.found(Weakens, s.code, v.at, s.key, "is true", s.why, "Set it to false in the managed settings.")
		}
	}
	for _, scope := range c.scopes {
		if v := scope.get("sandbox", "network", "allowUnixSockets"); v != nil && len(v.items) > 0 {
			c.found(Note, "unix_sockets", v.at, "sandbox.network.allowUnixSockets", fmt.Sprintf("lists %d socket(s)", len(v.items)),
				"A program behind a socket, such as a container engine, can connect for a command.", "Keep the list to sockets that lead nowhere.")
		}
	}
}

func (c *checker) checkPermissions() {
	mode := c.effective("permissions", "defaultMode")
	if mode == nil || mode.text != "bypassPermissions" {
		return
	}
	if lock := c.effective("permissions", "disableBypassPermissionsMode"); lock != nil && lock.text == "disable" {
		return
	}
	c.found(Weakens, "full_access", mode.at, "permissions.defaultMode", "is "+show(mode),
		"Tools that run outside the sandbox are used without asking anybody.",
		"Set permissions.disableBypassPermissionsMode to \"disable\" in the managed settings.")
}
