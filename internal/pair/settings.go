package pair

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
)

// The profiles whose ports Claude Code is told.
const (
	ProcessProfile  = "claude-code/process"
	CommandsProfile = "claude-code/commands"
)

// Loopback is what NO_PROXY holds, and all that it should: a client never asks
// the gate for what is listed there. Names and addresses only, because many
// clients ignore ranges and some fail on them.
const Loopback = "localhost,127.0.0.1,::1"

// Ports are the fixed ports of the two listeners for Claude Code.
type Ports struct {
	// Process is for the product's own traffic, Commands for what its sandbox runs.
	Process  uint16 `json:"process"`
	Commands uint16 `json:"commands"`
}

// proxyVariables is every spelling of the variables that name a proxy for HTTP
// and HTTPS, in the order in which Claude Code looks for its own.
var proxyVariables = []string{"https_proxy", "HTTPS_PROXY", "http_proxy", "HTTP_PROXY"}

var noProxyVariables = []string{"no_proxy", "NO_PROXY"}

var allProxyVariables = []string{"all_proxy", "ALL_PROXY"}

// settings is the file of managed settings that we write.
type settings struct {
	Env     map[string]string `json:"env"`
	Sandbox sandbox           `json:"sandbox"`
}

type sandbox struct {
	Enabled                  bool    `json:"enabled"`
	FailIfUnavailable        bool    `json:"failIfUnavailable"`
	AllowUnsandboxedCommands bool    `json:"allowUnsandboxedCommands"`
	Network                  network `json:"network"`
}

type network struct {
	HTTPProxyPort  uint16 `json:"httpProxyPort"`
	SOCKSProxyPort uint16 `json:"socksProxyPort"`
	// The two are a backstop: should the ports ever be unset, Claude Code's own
	// proxy takes over, and must not allow anything.
	AllowManagedDomainsOnly bool     `json:"allowManagedDomainsOnly"`
	AllowedDomains          []string `json:"allowedDomains"`
}

// Settings returns the content of our file of managed settings.
func Settings(p Ports) ([]byte, error) {
	if p.Process == 0 || p.Commands == 0 {
		return nil, fmt.Errorf("making settings: both ports must be fixed, not %d and %d", p.Process, p.Commands)
	}
	s := settings{Env: map[string]string{}, Sandbox: sandbox{
		Enabled: true, FailIfUnavailable: true,
		Network: network{
			HTTPProxyPort: p.Commands, SOCKSProxyPort: p.Commands,
			AllowManagedDomainsOnly: true, AllowedDomains: []string{},
		},
	}}
	// Both spellings: a lower-case variable of somebody's shell would win over an
	// upper-case one of the settings.
	for _, name := range proxyVariables {
		s.Env[name] = proxyURL(loopbackHost, p.Process)
	}
	for _, name := range noProxyVariables {
		s.Env[name] = Loopback
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		return nil, fmt.Errorf("making settings: %w", err)
	}
	return b.Bytes(), nil
}

// ourKeys are the keys that [Settings] writes; below env, the variables.
var ourKeys = map[string][]string{
	"":                {"env", "sandbox"},
	"env":             slices.Concat(proxyVariables, noProxyVariables),
	"sandbox":         {"enabled", "failIfUnavailable", "allowUnsandboxedCommands", "network"},
	"sandbox.network": {"httpProxyPort", "socksProxyPort", "allowManagedDomainsOnly", "allowedDomains"},
}

// isOurs tells whether a file's content has no key that we do not write. A JSON
// file has no room for a mark, so this is how a file that somebody else made, or
// added to, is kept from being lost.
func isOurs(data []byte) bool {
	root, faults := parse(data)
	return root != nil && len(faults) == 0 && onlyOurs(root, "")
}

func onlyOurs(v *value, path string) bool {
	allowed, nested := ourKeys[path]
	if !nested {
		return true
	}
	if v.kind != kindObject {
		return false
	}
	for _, m := range v.members {
		below := m.name
		if path != "" {
			below = path + "." + m.name
		}
		if !slices.Contains(allowed, m.name) || !onlyOurs(m.value, below) {
			return false
		}
	}
	return true
}
