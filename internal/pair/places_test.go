package pair

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLocate(t *testing.T) {
	tests := map[string]struct {
		got  Places
		want Places
	}{
		"Linux": {
			Locate(Linux, "", "/home/alice", "", "/src/app", "alice"),
			Places{
				OS: Linux, Managed: "/etc/claude-code/managed-settings.json", DropIns: "/etc/claude-code/managed-settings.d",
				Own:        "/etc/claude-code/managed-settings.d/50-sluicegate.json",
				ManagedMCP: "/etc/claude-code/managed-mcp.json", User: "/home/alice/.claude/settings.json", State: "/home/alice/.claude.json",
				Project: "/src/app/.claude/settings.json", Local: "/src/app/.claude/settings.local.json", ProjectMCP: "/src/app/.mcp.json", Folder: "/src/app",
			},
		},
		"macOS below a root": {
			Locate(Darwin, "/image/", "/Users/alice", "/conf/", "", "alice"),
			Places{
				OS: Darwin, Managed: "/image/Library/Application Support/ClaudeCode/managed-settings.json",
				DropIns:    "/image/Library/Application Support/ClaudeCode/managed-settings.d",
				Own:        "/image/Library/Application Support/ClaudeCode/managed-settings.d/50-sluicegate.json",
				ManagedMCP: "/image/Library/Application Support/ClaudeCode/managed-mcp.json",
				User:       "/image/conf/settings.json", State: "/image/conf/.claude.json",
				Preferences: []string{
					"/image/Library/Managed Preferences/alice/com.anthropic.claudecode.plist",
					"/image/Library/Managed Preferences/com.anthropic.claudecode.plist",
				},
			},
		},
		"Windows": {
			Locate(Windows, "", `C:\Users\alice`, "", "", `CORP\alice`),
			Places{
				OS: Windows, Managed: `C:\Program Files\ClaudeCode\managed-settings.json`, DropIns: `C:\Program Files\ClaudeCode\managed-settings.d`,
				Own: `C:\Program Files\ClaudeCode\managed-settings.d\50-sluicegate.json`, ManagedMCP: `C:\Program Files\ClaudeCode\managed-mcp.json`,
				User: `C:\Users\alice\.claude\settings.json`, State: `C:\Users\alice\.claude.json`,
			},
		},
		"Windows below a root": {
			Locate(Windows, `D:\image`, "", "", `C:\src`, ""),
			Places{
				OS: Windows, Managed: `D:\image\Program Files\ClaudeCode\managed-settings.json`, DropIns: `D:\image\Program Files\ClaudeCode\managed-settings.d`,
				Own: `D:\image\Program Files\ClaudeCode\managed-settings.d\50-sluicegate.json`, ManagedMCP: `D:\image\Program Files\ClaudeCode\managed-mcp.json`,
				Project: `D:\image\src\.claude\settings.json`, Local: `D:\image\src\.claude\settings.local.json`, ProjectMCP: `D:\image\src\.mcp.json`, Folder: `C:\src`,
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) { assert.Equal(t, tt.want, tt.got) })
	}
	assert.Len(t, Locate(Darwin, "", "", "", "", "../x").Preferences, 1, "a user's name is not a path")
}

func TestSettings(t *testing.T) {
	got, err := Settings(ports)
	require.NoError(t, err)
	again, err := Settings(ports)
	require.NoError(t, err)
	assert.Equal(t, got, again)
	assert.Equal(t, byte('\n'), got[len(got)-1])
	assert.True(t, isOurs(got), "the file that is written must be recognised")
	var s map[string]any
	require.NoError(t, json.Unmarshal(got, &s))
	const proxy = "http://127.0.0.1:18081"
	assert.Equal(t, map[string]any{
		"env": map[string]any{
			"https_proxy": proxy, "HTTPS_PROXY": proxy, "http_proxy": proxy, "HTTP_PROXY": proxy,
			"no_proxy": "localhost,127.0.0.1,::1", "NO_PROXY": "localhost,127.0.0.1,::1",
		},
		"sandbox": map[string]any{
			"enabled": true, "failIfUnavailable": true, "allowUnsandboxedCommands": false,
			"network": map[string]any{
				"httpProxyPort": 18082.0, "socksProxyPort": 18082.0, "allowManagedDomainsOnly": true, "allowedDomains": []any{},
			},
		},
	}, s)
	for _, p := range []Ports{{}, {Process: 1}, {Commands: 1}} {
		_, err := Settings(p)
		require.Error(t, err)
	}
}
