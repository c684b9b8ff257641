package pair

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var ports = Ports{Process: 18081, Commands: 18082}

// shelf is a file system of any operating system. A file may have a mode, an
// error, or both.
type shelf map[string]shelved

type shelved struct {
	text string
	mode fs.FileMode
	err  error
}

func (s shelf) Read(path string, limit int64) ([]byte, fs.FileMode, error) {
	f, ok := s[path]
	switch {
	case !ok:
		return nil, 0, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	case f.err != nil:
		return nil, f.mode, f.err
	case int64(len(f.text)) > limit:
		return nil, f.mode, errTooBig
	}
	return []byte(f.text), f.mode, nil
}

// Names lists the folder backwards: nothing may rely on a file system's order.
func (s shelf) Names(path string) ([]string, fs.FileMode, error) {
	if f, ok := s[path]; ok {
		return nil, f.mode, f.err
	}
	var names []string
	for name := range s {
		for _, sep := range []string{"/", `\`} {
			if base, ok := strings.CutPrefix(name, path+sep); ok {
				names = append([]string{base}, names...)
			}
		}
	}
	if names == nil {
		return nil, 0, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	}
	return names, 0o755, nil
}

// on is the places of a test on one system.
func on(system string) Places {
	if system == Windows {
		return Locate(system, "", `C:\Users\alice`, "", `C:\src\app`, "")
	}
	return Locate(system, "", "/home/alice", "", "/src/app", "alice")
}

// paired is what Write leaves behind.
func paired(t testing.TB, p Places) shelf {
	t.Helper()
	content, err := Settings(ports)
	require.NoError(t, err)
	return shelf{p.Own: {text: string(content), mode: 0o644}}
}

// told is what a finding says in short: level, code, key, file and line.
func told(r *Report) []string {
	var out []string
	for _, f := range r.Findings {
		if f.Code == "webfetch" || f.Code == "source_not_checked" {
			continue // always there
		}
		file := f.File[strings.LastIndexAny(f.File, `/\`)+1:]
		if f.Line > 0 {
			file += fmt.Sprintf(":%d", f.Line)
		}
		out = append(out, strings.Join(strings.Fields(fmt.Sprintf("%s %s %s %s", f.Level, f.Code, f.Key, file)), " "))
	}
	return out
}

func TestCheckPaired(t *testing.T) {
	for system, want := range map[string][]string{
		Linux: nil, Darwin: nil, Windows: {"weakens no_sandbox sandbox"},
	} {
		t.Run(system, func(t *testing.T) {
			p := on(system)
			r := Check(Question{Places: p, Files: paired(t, p), Ports: ports, Environ: []string{"PATH=/bin", "NO_PROXY=localhost"}})
			assert.Equal(t, want, told(r))
			assert.Equal(t, want == nil, r.Holds)
			var unchecked []string
			for _, f := range r.Findings {
				if f.Level == NotChecked {
					unchecked = append(unchecked, f.Source)
				}
			}
			assert.Equal(t, []string{"server-managed settings", "command line"}, unchecked)
		})
	}
}

func TestCheckNothingPaired(t *testing.T) {
	r := Check(Question{Places: on(Linux), Files: shelf{}, Ports: ports})
	assert.Equal(t, []string{"weakens not_paired 50-sluicegate.json"}, told(r))
	assert.False(t, r.Holds)
	assert.Contains(t, r.Findings[0].Found, "is missing")

	// A broken file is not a missing one.
	r = Check(Question{Places: on(Linux), Files: shelf{on(Linux).Own: {text: "{"}}, Ports: ports})
	assert.Equal(t, []string{"weakens file_unusable 50-sluicegate.json:1", "weakens not_paired 50-sluicegate.json"}, told(r))
	assert.Contains(t, r.Findings[1].Found, "nothing that can be used")
}

// Every finding that a file raises, with the least that raises it. The setup is
// paired, and the files are laid over it.
func TestCheckFindings(t *testing.T) {
	const (
		base  = "/etc/claude-code/managed-settings.json"
		drop  = "/etc/claude-code/managed-settings.d/"
		over  = drop + "90-other.json"
		user  = "/home/alice/.claude/settings.json"
		proj  = "/src/app/.claude/settings.json"
		local = "/src/app/.claude/settings.local.json"
	)
	sandboxed := func(text string) string { return `{"sandbox":` + text + `}` }
	networked := func(text string) string { return sandboxed(`{"network":` + text + `}`) }
	tests := map[string]struct {
		files map[string]string
		env   []string
		want  []string
	}{
		"nothing else": {},
		"disabled by a later file": {
			map[string]string{over: sandboxed(`{"enabled":false}`)},
			nil,
			[]string{"weakens sandbox_disabled sandbox.enabled 90-other.json:1"},
		},
		"disabled by an earlier file": {map[string]string{base: sandboxed(`{"enabled":false}`), drop + "10-x.json": sandboxed(`{"enabled":false}`)}, nil, nil},
		"disabled by a file that is not read": {
			map[string]string{drop + "90-other.json.bak": sandboxed(`{"enabled":false}`)}, nil, nil,
		},
		"the user can not disable": {map[string]string{user: sandboxed(`{"enabled":false,"network":{"httpProxyPort":1}}`)}, nil, nil},
		"may fail": {
			map[string]string{over: sandboxed(`{"failIfUnavailable":false}`)},
			nil,
			[]string{"weakens sandbox_may_fail sandbox.failIfUnavailable 90-other.json:1"},
		},
		"unsandboxed commands": {
			map[string]string{over: sandboxed(`{"allowUnsandboxedCommands":true}`)},
			nil,
			[]string{"weakens unsandboxed_commands sandbox.allowUnsandboxedCommands 90-other.json:1"},
		},
		"another HTTP port": {
			map[string]string{over: networked(`{"httpProxyPort":3128}`)},
			nil,
			[]string{"weakens http_port_other sandbox.network.httpProxyPort 90-other.json:1"},
		},
		"the HTTP port in another form": {map[string]string{over: networked(`{"httpProxyPort":1.8082e4}`)}, nil, nil},
		"the port of the process": {
			map[string]string{over: networked("{\n\"socksProxyPort\":18081}")},
			nil,
			[]string{"weakens socks_port_other sandbox.network.socksProxyPort 90-other.json:2"},
		},
		"no backstop": {
			map[string]string{over: networked(`{"allowManagedDomainsOnly":false}`)},
			nil,
			[]string{"note no_backstop sandbox.network.allowManagedDomainsOnly 90-other.json:1"},
		},
		"excluded in every scope": {
			map[string]string{
				over: sandboxed(`{"excludedCommands":["docker *"]}`), user: sandboxed(`{"excludedCommands":["gh"]}`),
				proj: sandboxed(`{"excludedCommands":["a"]}`), local: sandboxed(`{"excludedCommands":["b"]}`),
			},
			nil,
			[]string{
				"weakens excluded_commands sandbox.excludedCommands 90-other.json:1",
				"weakens excluded_commands sandbox.excludedCommands settings.local.json:1",
				"weakens excluded_commands sandbox.excludedCommands settings.json:1",
				"weakens excluded_commands sandbox.excludedCommands settings.json:1",
			},
		},
		"nothing excluded": {map[string]string{user: sandboxed(`{"excludedCommands":[]}`)}, nil, nil},
		"weaker sandbox": {
			map[string]string{proj: sandboxed(`{"enableWeakerNestedSandbox":true,"enableWeakerNetworkIsolation":true,"network":{"allowAllUnixSockets":true,"allowLocalBinding":true}}`)},
			nil,
			[]string{
				"weakens weaker_nested_sandbox sandbox.enableWeakerNestedSandbox settings.json:1",
				"weakens weaker_network_isolation sandbox.enableWeakerNetworkIsolation settings.json:1",
				"weakens all_unix_sockets sandbox.network.allowAllUnixSockets settings.json:1",
				"weakens local_binding sandbox.network.allowLocalBinding settings.json:1",
			},
		},
		"weaker sandbox, locked": {
			map[string]string{over: sandboxed(`{"enableWeakerNestedSandbox":false}`), proj: sandboxed(`{"enableWeakerNestedSandbox":true}`)}, nil, nil,
		},
		"weaker sandbox, taken back nearer": {
			map[string]string{local: sandboxed(`{"enableWeakerNestedSandbox":false}`), user: sandboxed(`{"enableWeakerNestedSandbox":true}`)}, nil, nil,
		},
		"Unix sockets": {
			map[string]string{user: networked(`{"allowUnixSockets":["/run/engine.sock"]}`)},
			nil,
			[]string{"note unix_sockets sandbox.network.allowUnixSockets settings.json:1"},
		},
		"full access": {
			map[string]string{user: `{"permissions":{"defaultMode":"bypassPermissions"}}`},
			nil,
			[]string{"weakens full_access permissions.defaultMode settings.json:1"},
		},
		"full access, not locked by another word": {
			map[string]string{user: `{"permissions":{"defaultMode":"bypassPermissions","disableBypassPermissionsMode":"enable"}}`},
			nil,
			[]string{"weakens full_access permissions.defaultMode settings.json:1"},
		},
		"full access, locked": {
			map[string]string{user: `{"permissions":{"defaultMode":"bypassPermissions"}}`, over: `{"permissions":{"disableBypassPermissionsMode":"disable"}}`}, nil, nil,
		},
		"another mode": {map[string]string{user: `{"permissions":{"defaultMode":"acceptEdits"}}`}, nil, nil},
		"proxy elsewhere": {
			map[string]string{over: `{"env":{"HTTPS_PROXY":"http://127.0.0.1:3128"}}`},
			nil,
			[]string{"weakens proxy_elsewhere env.HTTPS_PROXY 90-other.json:1"},
		},
		"proxy on another machine": {
			map[string]string{over: `{"env":{"http_proxy":"http://192.0.2.7:18081"}}`},
			nil,
			[]string{"weakens proxy_elsewhere env.http_proxy 90-other.json:1"},
		},
		"proxy by name": {map[string]string{over: `{"env":{"http_proxy":"http://localhost:18081/"}}`}, nil, nil},
		"proxy of the commands": {
			map[string]string{over: `{"env":{"https_proxy":"http://127.0.0.1:18082"}}`},
			nil,
			[]string{"weakens proxy_elsewhere env.https_proxy 90-other.json:1"},
		},
		"proxy with a password": {
			map[string]string{over: `{"env":{"https_proxy":"http://a:b@127.0.0.1:18081"}}`},
			nil,
			[]string{"weakens proxy_elsewhere env.https_proxy 90-other.json:1"},
		},
		"no URL": {
			map[string]string{over: `{"env":{"https_proxy":"127.0.0.1:18081"}}`},
			nil,
			[]string{"weakens proxy_elsewhere env.https_proxy 90-other.json:1"},
		},
		"the shell can not lead elsewhere": {nil, []string{"https_proxy=http://192.0.2.7:1", "no_proxy=*"}, nil},
		"emptied": {
			map[string]string{over: `{"env":{"https_proxy":"","HTTPS_PROXY":""}}`},
			nil,
			[]string{"weakens proxy_unset env.HTTPS_PROXY 50-sluicegate.json"},
		},
		"a shell that uses SOCKS": {
			nil,
			[]string{"ALL_PROXY=socks5h://127.0.0.1:18082"},
			[]string{"note all_proxy_socks ALL_PROXY"},
		},
		"a shell that uses another SOCKS proxy": {
			nil,
			[]string{"all_proxy=socks5://127.0.0.1:1080"},
			[]string{"weakens all_proxy_elsewhere all_proxy"},
		},
		"ALL_PROXY of ours": {nil, []string{"ALL_PROXY=http://127.0.0.1:18082"}, nil},
		"holes": {
			map[string]string{over: `{"env":{"NO_PROXY":"localhost,10.0.0.0/8"}}`},
			nil,
			[]string{"weakens no_proxy_hole env.NO_PROXY 90-other.json:1"},
		},
		"holes between spaces": {
			map[string]string{over: `{"env":{"no_proxy":"localhost ::1 * "}}`},
			nil,
			[]string{"weakens no_proxy_hole env.no_proxy 90-other.json:1"},
		},
		"loopback between spaces": {map[string]string{over: `{"env":{"no_proxy":" localhost ::1, 127.0.0.1 "}}`}, nil, nil},
		"hooks, plugins and servers": {
			map[string]string{
				user: `{"hooks":{"PreToolUse":[]},"enabledPlugins":{"a@b":true}}`, "/src/app/.mcp.json": `{"mcpServers":{"db":{"env":{"TOKEN":"hunter2"}}}}`,
				"/home/alice/.claude.json":          `{"mcpServers":{"x":{}},"projects":{"/src/app":{"mcpServers":{"y":{}}},"/other":{"mcpServers":{"z":{}}}}}`,
				"/etc/claude-code/managed-mcp.json": `{"mcpServers":{"m":{}}}`,
			},
			nil,
			[]string{
				"not_covered hooks hooks settings.json:1",
				"not_covered plugins enabledPlugins settings.json:1",
				"not_covered mcp_servers mcpServers managed-mcp.json:1",
				"not_covered mcp_servers mcpServers .mcp.json:1",
				"not_covered mcp_servers mcpServers .claude.json:1",
				"not_covered mcp_servers projects.mcpServers .claude.json:1",
			},
		},
		"no hooks": {map[string]string{user: `{"hooks":{},"enabledPlugins":{}}`, "/src/app/.mcp.json": `{"mcpServers":{}}`}, nil, nil},
		"state that is no JSON": {
			map[string]string{"/home/alice/.claude.json": "{"},
			nil,
			[]string{"not_checked file_unusable .claude.json:1"},
		},
		"wrong types": {
			map[string]string{user: `{"sandbox":{"enabled":"true","network":[]},"env":{"NO_PROXY":1}}`},
			nil,
			[]string{
				"weakens wrong_type sandbox.enabled settings.json:1",
				"weakens wrong_type sandbox.network settings.json:1",
				"weakens wrong_type env.NO_PROXY settings.json:1",
			},
		},
		"not JSON": {
			map[string]string{user: "{\n  \"a\": 1,\n}"},
			nil,
			[]string{"weakens file_unusable settings.json:3"},
		},
		"not JSON, managed": {
			map[string]string{base: "{"}, nil, []string{"weakens file_unusable managed-settings.json:1"},
		},
		"too big":  {map[string]string{user: `{"a":"` + strings.Repeat("x", maxFile) + `"}`}, nil, []string{"weakens file_unusable settings.json"}},
		"as big":   {map[string]string{user: `{"a":"` + strings.Repeat("x", maxFile-8) + `"}`}, nil, nil},
		"a double": {map[string]string{user: "{\"a\":1,\n\"a\":2}"}, nil, []string{"weakens file_unusable settings.json:2"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := on(Linux)
			files := paired(t, p)
			for path, text := range tt.files {
				files[path] = shelved{text: text, mode: 0o644}
			}
			r := Check(Question{Places: p, Files: files, Environ: tt.env, Ports: ports})
			assert.Equal(t, tt.want, told(r))
			weak := strings.Contains(strings.Join(tt.want, "\n"), "weakens")
			assert.Equal(t, !weak, r.Holds)
			for _, f := range r.Findings {
				for _, text := range []string{f.Source, f.Found, f.Why, f.Mend} {
					assert.NotEmpty(t, text, "%+v", f)
					assert.NotContains(t, text, "hunter2")
				}
			}
		})
	}
}

// What a finding says, where more than its kind matters.
func TestCheckSays(t *testing.T) {
	p := on(Linux)
	files := paired(t, p)
	files[p.DropIns+"/90.json"] = shelved{text: `{"env":{"https_proxy":"http://127.0.0.1:18082","NO_PROXY":"*,10.0.0.0/8"},` +
		`"sandbox":{"network":{"socksProxyPort":18081,"httpProxyPort":1}}}`}
	files[p.User] = shelved{text: `{"sandbox":{"excludedCommands":["docker --password hunter2","gh"]}}`}
	files[p.ProjectMCP] = shelved{text: `{"mcpServers":{"db":{"command":"hunter2"},"web":{}}}`}
	said := map[string]string{}
	for _, f := range Check(Question{Places: p, Files: files, Ports: ports}).Findings {
		said[f.Code] = f.Found
	}
	for code, want := range map[string]string{
		"proxy_elsewhere":   `is "http://127.0.0.1:18082", the port of claude-code/commands`,
		"socks_port_other":  `is 18081, the port of claude-code/process`,
		"http_port_other":   `is 1`,
		"no_proxy_hole":     `lists "*" (everything), "10.0.0.0/8" (a private range)`,
		"excluded_commands": `lists "docker", "gh"`,
		"mcp_servers":       `lists "db", "web"`,
	} {
		assert.Equal(t, want, said[code], code)
	}
}

// A file that can't be used is told of the source, whatever comes after it.
func TestCheckSourceStates(t *testing.T) {
	p := on(Linux)
	files := paired(t, p)
	files[p.Managed] = shelved{text: "{"}
	files[p.User] = shelved{text: "{}"}
	states := map[string]string{}
	for _, s := range Check(Question{Places: p, Files: files, Ports: ports}).Sources {
		states[s.Name] = s.State
	}
	assert.Equal(t, map[string]string{
		"server-managed settings": StateNotChecked, "managed settings file": StateUnreadable, "command line": StateNotChecked,
		"local settings of the project": StateAbsent, "settings of the project": StateAbsent, "settings of the user": StateRead,
		"environment of this shell": StateRead, "managed MCP servers": StateAbsent, "MCP servers of the project": StateAbsent,
		"MCP servers of the user": StateAbsent,
	}, states)
}

// Windows does not tell the spellings of a variable's name apart.
func TestCheckVariableNames(t *testing.T) {
	for system, want := range map[string]bool{Windows: true, Linux: false} {
		p := on(system)
		r := Check(Question{Places: p, Files: paired(t, p), Ports: ports, Environ: []string{"All_Proxy=http://192.0.2.7:1"}})
		assert.Equal(t, want, strings.Contains(strings.Join(told(r), "\n"), "all_proxy_elsewhere"), system)
	}
}

// Each key that Settings writes is missed when it is not there.
func TestCheckMissing(t *testing.T) {
	tests := map[string]struct {
		without string
		want    []string
	}{
		"enabled":      {`"enabled": true,`, []string{"weakens sandbox_disabled sandbox.enabled 50-sluicegate.json"}},
		"fail":         {`"failIfUnavailable": true,`, []string{"weakens sandbox_may_fail sandbox.failIfUnavailable 50-sluicegate.json"}},
		"unsandboxed":  {`"allowUnsandboxedCommands": false,`, []string{"weakens unsandboxed_commands sandbox.allowUnsandboxedCommands 50-sluicegate.json"}},
		"HTTP port":    {`"httpProxyPort": 18082,`, []string{"weakens http_port_unset sandbox.network.httpProxyPort 50-sluicegate.json"}},
		"SOCKS port":   {`"socksProxyPort": 18082,`, []string{"weakens socks_port_unset sandbox.network.socksProxyPort 50-sluicegate.json"}},
		"backstop":     {`"allowManagedDomainsOnly": true,`, []string{"note no_backstop sandbox.network.allowManagedDomainsOnly 50-sluicegate.json"}},
		"one spelling": {`"https_proxy": "http://127.0.0.1:18081",`, []string{"note variable_not_managed env.https_proxy 50-sluicegate.json"}},
		"the other":    {`"HTTP_PROXY": "http://127.0.0.1:18081",`, []string{"note variable_not_managed env.HTTP_PROXY 50-sluicegate.json"}},
		"NO_PROXY":     {`"NO_PROXY": "localhost,127.0.0.1,::1",`, []string{"note variable_not_managed env.NO_PROXY 50-sluicegate.json"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := on(Linux)
			files := paired(t, p)
			whole := files[p.Own].text
			cut := strings.Replace(whole, tt.without, "", 1)
			require.NotEqual(t, whole, cut)
			files[p.Own] = shelved{text: cut, mode: 0o644}
			// A user's settings do not replace managed ones.
			files[p.User] = shelved{text: whole, mode: 0o644}
			r := Check(Question{Places: p, Files: files, Ports: ports})
			assert.Equal(t, tt.want, told(r))
			for _, f := range r.Findings {
				if f.Level == Weakens {
					assert.Contains(t, f.Found, "settings of the user have ")
				}
			}
		})
	}
}

// Variables that only a user's settings or the shell have do not hold.
func TestCheckVariablesNotManaged(t *testing.T) {
	p := on(Linux)
	managed := `{"sandbox":{"enabled":true,"failIfUnavailable":true,"allowUnsandboxedCommands":false,` +
		`"network":{"httpProxyPort":18082,"socksProxyPort":18082,"allowManagedDomainsOnly":true}}}`
	r := Check(Question{
		Places: p, Ports: ports,
		Files:   shelf{p.Managed: {text: managed}, p.User: {text: `{"env":{"HTTPS_PROXY":"http://127.0.0.1:18081"}}`}},
		Environ: []string{"http_proxy=http://127.0.0.1:18081", "no_proxy=.example.com", "HTTPS_PROXY=http://192.0.2.7:1"},
	})
	assert.Equal(t, []string{
		"weakens proxy_not_managed env.HTTPS_PROXY settings.json:1",
		"weakens proxy_not_managed http_proxy",
		"weakens no_proxy_hole no_proxy",
		"note variable_not_managed env.NO_PROXY 50-sluicegate.json",
	}, told(r))

	// A lower-case variable of the shell wins over an upper-case one of a file.
	r = Check(Question{
		Places: p, Ports: ports,
		Files:   shelf{p.Managed: {text: strings.Replace(managed, "{", `{"env":{"HTTPS_PROXY":"http://127.0.0.1:18081","HTTP_PROXY":"http://127.0.0.1:18081","NO_PROXY":"localhost"},`, 1)}},
		Environ: []string{"https_proxy=http://alice:hunter2@192.0.2.7:3128/hunter2?t=hunter2"},
	})
	require.Equal(t, []string{
		"weakens proxy_elsewhere https_proxy",
		"note variable_not_managed env.https_proxy 50-sluicegate.json",
		"note variable_not_managed env.http_proxy 50-sluicegate.json",
		"note variable_not_managed env.no_proxy 50-sluicegate.json",
	}, told(r))
	assert.Equal(t, `is "http://192.0.2.7:3128"`, r.Findings[0].Found, "no password and no token")
	assert.Contains(t, r.Findings[0].Why, "A lower-case variable wins")
}

// Only the first managed source with a policy key counts.
func TestCheckPrecedence(t *testing.T) {
	whole, err := Settings(ports)
	require.NoError(t, err)
	const disabled = `{"sandbox":{"enabled":false}}`
	mdm := func(text string) []Document {
		return []Document{{Name: "managed preferences", Place: "domain", Data: []byte(text)}}
	}
	hkcu := func(text string) []Document {
		return []Document{{Name: "registry of the user", Place: "HKCU", Weak: true, Data: []byte(text)}}
	}
	missing := func(file string) []string {
		return []string{
			"weakens sandbox_disabled sandbox.enabled " + file,
			"weakens sandbox_may_fail sandbox.failIfUnavailable domain",
			"weakens unsandboxed_commands sandbox.allowUnsandboxedCommands domain",
			"weakens http_port_unset sandbox.network.httpProxyPort domain",
			"weakens socks_port_unset sandbox.network.socksProxyPort domain",
			"note source_overridden managed-settings.json",
		}
	}
	tests := map[string]struct {
		device []Document
		file   string // managed-settings.json; "" for none
		want   []string
	}{
		"device over file":               {mdm(disabled), string(whole), missing("domain:1")},
		"any policy key":                 {mdm(`{"model":"x"}`), string(whole), missing("domain")},
		"device with the same":           {mdm(string(whole)), disabled, []string{"note source_overridden managed-settings.json"}},
		"device without policy keys":     {mdm(`{"env":{"A":"b"},"sandbox":{"network":{"allowManagedDomainsOnly":true}}}`), string(whole), nil},
		"an empty device":                {mdm(`{}`), string(whole), nil},
		"an absent device":               {[]Document{{Name: "registry", Place: "HKLM"}}, string(whole), nil},
		"variables of the device win":    {mdm(`{"env":{"https_proxy":"http://192.0.2.7:1"}}`), string(whole), []string{"weakens proxy_elsewhere env.https_proxy domain:1"}},
		"a device that can not be read":  {[]Document{{Name: "registry", Place: "HKLM", Err: errors.New("access denied")}}, string(whole), []string{"weakens file_unusable HKLM"}},
		"a device that is no JSON":       {mdm(`{`), string(whole), []string{"weakens file_unusable domain:1"}},
		"the user's registry below file": {hkcu(disabled), string(whole), []string{"note source_overridden HKCU"}},
		"the user's registry alone":      {hkcu(string(whole)), "", []string{"weakens source_writable HKCU"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := on(Darwin)
			files := shelf{}
			if tt.file != "" {
				files[p.Managed] = shelved{text: tt.file}
			}
			r := Check(Question{Places: p, Files: files, Device: tt.device, Ports: ports})
			assert.Equal(t, tt.want, told(r))
		})
	}

	unchecked := Check(Question{Places: on(Linux), Files: paired(t, on(Linux)), Ports: ports, Device: []Document{{Name: "registry", Unchecked: "not here"}}})
	assert.Equal(t, 3, unchecked.Count(NotChecked))
	assert.True(t, unchecked.Holds)
}

func TestCheckAccess(t *testing.T) {
	p := on(Linux)
	tests := map[string]struct {
		path string
		file shelved
		want []string
	}{
		"own file writable by the group": {p.Own, shelved{mode: 0o664}, []string{"weakens source_writable 50-sluicegate.json"}},
		"own file writable by others":    {p.Own, shelved{mode: 0o646}, []string{"weakens source_writable 50-sluicegate.json"}},
		"own file for the owner alone":   {p.Own, shelved{mode: 0o600}, nil},
		"managed file unreadable": {
			p.Managed,
			shelved{err: &fs.PathError{Op: "open", Path: p.Managed, Err: fs.ErrPermission}},
			[]string{"weakens file_unusable managed-settings.json"},
		},
		"user's file is a pipe": {p.User, shelved{err: errNotRegular}, []string{"weakens file_unusable settings.json"}},
		"folder is a file": {
			p.DropIns,
			shelved{err: &fs.PathError{Op: "open", Path: p.DropIns, Err: errors.New("not a directory")}},
			[]string{"weakens file_unusable managed-settings.d"},
		},
		"folder writable": {p.DropIns, shelved{mode: 0o777}, []string{"weakens source_writable managed-settings.d"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			files := paired(t, p)
			if tt.path == p.DropIns {
				// The settings are in the other file, so that the folder may fail.
				files[p.Managed] = files[p.Own]
				delete(files, p.Own)
			}
			if tt.path == p.Own {
				tt.file.text = files[p.Own].text
			}
			files[tt.path] = tt.file
			r := Check(Question{Places: p, Files: files, Ports: ports})
			assert.Equal(t, tt.want, told(r))
		})
	}
}

// What others wrote reaches nobody's terminal as anything but text.
func TestCheckShowsHostileSettingsAsText(t *testing.T) {
	const evil = "a\\u001b[2J\\n\\u009b31m\\u202e"
	p := on(Linux)
	files := paired(t, p)
	files[p.User] = shelved{text: fmt.Sprintf(`{"sandbox":{"excludedCommands":["%[1]s"]},"hooks":{"%[1]s":[]},`+
		`"permissions":{"defaultMode":"%[1]s"},"env":{"ALL_PROXY":"%[1]s"},"%[1]s":1,"%[1]s":2}`, evil)}
	files[p.DropIns+"/99.json"] = shelved{text: fmt.Sprintf(`{"env":{"NO_PROXY":"%[1]s","HTTP_PROXY":"%[1]s"},"sandbox":{"enabled":"%[1]s","network":{"httpProxyPort":"%[1]s"}}}`, evil)}
	r := Check(Question{Places: p, Files: files, Ports: ports})
	assert.Greater(t, len(r.Findings), 8)
	for _, f := range r.Findings {
		for _, text := range []string{f.Key, f.Found, f.Why, f.Mend, f.Source} {
			for _, c := range []byte(text) {
				require.True(t, c >= ' ' && c < 0x7f, "%q", text)
			}
		}
	}
}

func TestHole(t *testing.T) {
	for entry, want := range map[string]string{
		"localhost": "", "LOCALHOST": "", ".localhost": "", "*.localhost": "", "a.localhost": "", "localhost:80": "",
		"127.0.0.1": "", "127.9.9.9": "", "127.0.0.1:8080": "", "::1": "", "[::1]": "", "[::1]:80": "", "::ffff:127.0.0.1": "",
		"127.0.0.0/8": "", "127.1.0.0/16": "", "::1/128": "",
		"*": "everything", "10.0.0.0/8": "a private range", "192.168.0.0/16": "a private range", "172.16.0.0/12": "a private range",
		"169.254.0.0/16": "a link-local range", "169.254.169.254": "a link-local address", "fe80::1": "a link-local address",
		"fc00::/7": "a private range", "10.0.0.1": "a private address", "192.0.2.7": "a public address",
		"0.0.0.0/0": "a very wide range", "::/0": "a very wide range", "127.0.0.0/7": "a public range", "::1/127": "a very wide range",
		"localhost.example.com": "a name", "notlocalhost": "a name", ".example.com": "a name", "example.com": "a name", ".": "a name", "128.0.0.1": "a public address",
	} {
		assert.Equal(t, want, hole(entry), entry)
	}
}

func TestRedact(t *testing.T) {
	for in, want := range map[string]string{
		"http://127.0.0.1:1":              "http://127.0.0.1:1",
		"http://a:b@host:1/p?q#f":         "http://host:1",
		"a:b@host:1":                      "host:1",
		"http://a:b@c@host":               "http://host",
		"http://a:pass/word@host:1":       "http://host:1",
		"host:1?token=x":                  "host:1",
		"socks5h://user:pw@[2001:db8::1]": "socks5h://[2001:db8::1]",
		"":                                "",
	} {
		assert.Equal(t, want, redact(in), in)
	}
}
