package pair

import "strings"

// FileName is our file in the folder of managed settings. The number puts it in
// the middle: an administrator can be read before it and after it.
const FileName = "50-sluicegate.json"

// Operating systems, as runtime.GOOS has them. Any other is taken for Linux.
const (
	Darwin  = "darwin"
	Linux   = "linux"
	Windows = "windows"
)

// Places are the paths of everything that Claude Code reads on one system.
type Places struct {
	// OS decides rules that differ, such as whether a sandbox exists.
	OS string
	// Managed is managed-settings.json, DropIns the folder beside it, and Own the
	// file in it that [Write] makes.
	Managed, DropIns, Own string
	// ManagedMCP lists MCP servers for all users.
	ManagedMCP string
	// User are the user's settings; State also holds MCP servers.
	User, State string
	// Project, Local and ProjectMCP are the project's.
	Project, Local, ProjectMCP string
	// Folder is the project's folder, the key of its MCP servers in State.
	Folder string
	// Preferences are macOS's managed preferences, strongest first.
	Preferences []string
}

// Locate returns the places on an operating system. root is put in front of every
// absolute path and is "" for the running system. home, configDir (the value of
// CLAUDE_CONFIG_DIR, "" if not set), project and user may be "": what depends on
// them is then left out, or has its default.
func Locate(system, root, home, configDir, project, user string) Places {
	j := joiner{sep: "/", root: root}
	base := "/etc/claude-code"
	switch system {
	case Darwin:
		base = "/Library/Application Support/ClaudeCode"
	case Windows:
		j.sep, base = `\`, `C:\Program Files\ClaudeCode`
	}
	base = j.under(base)
	p := Places{
		OS: system, Managed: j.join(base, "managed-settings.json"), DropIns: j.join(base, "managed-settings.d"),
		ManagedMCP: j.join(base, "managed-mcp.json"),
	}
	p.Own = j.join(p.DropIns, FileName)
	if system == Darwin {
		const folder = "/Library/Managed Preferences"
		const file = "com.anthropic.claudecode.plist"
		if user != "" && !strings.ContainsAny(user, `/\`) {
			p.Preferences = append(p.Preferences, j.join(j.under(folder), user, file))
		}
		p.Preferences = append(p.Preferences, j.join(j.under(folder), file))
	}
	switch {
	case configDir != "":
		configDir = j.under(configDir)
		p.User, p.State = j.join(configDir, "settings.json"), j.join(configDir, ".claude.json")
	case home != "":
		home = j.under(home)
		p.User, p.State = j.join(home, ".claude", "settings.json"), j.join(home, ".claude.json")
	}
	if project != "" {
		p.Folder = project
		project = j.under(project)
		p.Project = j.join(project, ".claude", "settings.json")
		p.Local = j.join(project, ".claude", "settings.local.json")
		p.ProjectMCP = j.join(project, ".mcp.json")
	}
	return p
}

// joiner joins paths of a system that need not be the running one.
type joiner struct{ sep, root string }

func (j joiner) join(elements ...string) string { return strings.Join(elements, j.sep) }

// under puts the root in front of a path, without the letter of a drive.
func (j joiner) under(path string) string {
	path = strings.TrimRight(path, `/`+j.sep)
	if j.root == "" {
		return path
	}
	if j.sep == `\` && len(path) > 1 && path[1] == ':' {
		path = path[2:]
	}
	return strings.TrimRight(j.root, `/`+j.sep) + path
}
