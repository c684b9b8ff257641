package pair

import (
	"errors"
	"fmt"
	"io/fs"
)

// checkUncovered says what the sandbox never covers, so that nobody takes silence
// for safety. It has no say in whether the boundary holds.
func (c *checker) checkUncovered() {
	const byVariables = "It runs outside the sandbox; only the proxy variables lead it to the gate, and it can ignore them."
	c.add(Finding{
		Level: NotCovered, Code: "webfetch", Source: "Claude Code", Key: "WebFetch", Found: "is part of the product's own process",
		Why:  fmt.Sprintf("It goes through %s by the proxy variables, not through the list for commands.", ProcessProfile),
		Mend: "Deny the tool in the managed permissions if no page may be fetched.",
	})
	for _, scope := range c.scopes {
		if v := scope.get("hooks"); v != nil && len(v.members) > 0 {
			c.found(NotCovered, "hooks", v.at, "hooks", "are set for "+list(v.names()), byVariables, "Read what they run.")
		}
		for _, key := range []string{"enabledPlugins", "plugins"} {
			v := scope.get(key)
			if v == nil || len(v.members)+len(v.items) == 0 {
				continue
			}
			c.found(NotCovered, "plugins", v.at, key, "lists "+count(v, "plugin"), "A plugin can bring hooks and MCP servers. "+byVariables, "Read what they bring.")
		}
		c.servers(scope.get("mcpServers"), "mcpServers", byVariables)
	}
	for _, f := range []struct {
		name, path string
		limit      int64
	}{
		{"managed MCP servers", c.Places.ManagedMCP, maxFile},
		{"MCP servers of the project", c.Places.ProjectMCP, maxFile},
		{"MCP servers of the user", c.Places.State, maxState},
	} {
		if f.path == "" {
			continue
		}
		source := c.source(f.name, f.path)
		data, _, err := c.Files.Read(f.path, f.limit)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		v := c.parsed(source, f.path, data, err, NotChecked)
		c.servers(v.get("mcpServers"), "mcpServers", byVariables)
		c.servers(v.get("projects", c.Places.Folder, "mcpServers"), "projects.mcpServers", byVariables)
	}
}

// servers lists MCP servers by their names alone: their commands and headers hold
// secrets.
func (c *checker) servers(v *value, key, why string) {
	if v != nil && len(v.members) > 0 {
		c.found(NotCovered, "mcp_servers", v.at, key, "lists "+list(v.names()), why, "Read what they run and where they connect.")
	}
}

func (v *value) names() []string {
	var out []string
	for _, m := range v.members {
		out = append(out, m.name)
	}
	return out
}

func count(v *value, what string) string {
	if len(v.members) > 0 {
		return list(v.names())
	}
	return fmt.Sprintf("%d %s(s)", len(v.items), what)
}
