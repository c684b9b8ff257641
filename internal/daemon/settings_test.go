package daemon

import (
	"io/fs"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"sluicegate/audit"
	"sluicegate/configs"
	"sluicegate/policy"
	"sluicegate/proxy"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// shipped is the settings file of package configs.
func shipped(t *testing.T) string {
	t.Helper()
	data, err := fs.ReadFile(configs.FS, "sluicegate.yaml")
	require.NoError(t, err)
	return string(data)
}

func TestShippedSettingsAreTheDefaults(t *testing.T) {
	p := userPaths(t)
	s, err := ParseSettings(p.Config, []byte(shipped(t)), p)
	require.NoError(t, err)
	assert.Equal(t, defaultSettings(p), s)

	s, err = ParseSettings(p.Config, []byte("version: 1\n"), p)
	require.NoError(t, err)
	assert.Equal(t, defaultSettings(p), s, "a file that says nothing changes nothing")
	assert.Equal(t, p.Audit, s.AuditFile)
	assert.Empty(t, s.PolicyDir)
}

// The comment beside each value of the shipped file says what the value is.
func TestShippedSettingsSayTheirDefaults(t *testing.T) {
	lines := regexp.MustCompile(`(?m)^\s*[a-z_]+: (.+?) # default: (.+)$`).FindAllStringSubmatch(shipped(t), -1)
	require.Len(t, lines, 13, "as many values as keys that have a fixed default")
	for _, l := range lines {
		assert.Equal(t, l[1], l[2], l[0])
	}
}

// keysOf lists the keys of a part of the settings, as paths.
func keysOf(part reflect.Type, prefix string) (paths []string) {
	for f := range reflect.VisibleFields(part) {
		field := part.Field(f)
		name := field.Tag.Get("yaml")
		if name == "" {
			continue
		}
		inner := field.Type
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		if inner.Kind() == reflect.Struct {
			paths = append(paths, keysOf(inner, prefix+name+".")...)
			continue
		}
		paths = append(paths, prefix+name)
	}
	return paths
}

// nested writes "a.b" and "v" as "a: {b: v}".
func nested(path, value string) string {
	keys := strings.Split(path, ".")
	for _, key := range slices.Backward(keys[1:]) {
		value = "{" + key + ": " + value + "}"
	}
	return keys[0] + ": " + value
}

func TestEverySetting(t *testing.T) {
	p := userPaths(t)
	base := filepath.Dir(p.Config)
	absolute := filepath.Join(p.State, "elsewhere")
	type cases map[string]func(*Settings)
	all := map[string]cases{
		"policy.dir": {
			"own.d":            func(s *Settings) { s.PolicyDir = filepath.Join(base, "own.d") },
			"../own.d":         func(s *Settings) { s.PolicyDir = filepath.Join(filepath.Dir(base), "own.d") },
			quote(absolute):    func(s *Settings) { s.PolicyDir = absolute },
			`"with a blank"`:   func(s *Settings) { s.PolicyDir = filepath.Join(base, "with a blank") },
			"\"#not-comment\"": func(s *Settings) { s.PolicyDir = filepath.Join(base, "#not-comment") },
		},
		"audit.file": {
			"log/a.jsonl":   func(s *Settings) { s.AuditFile = filepath.Join(base, "log", "a.jsonl") },
			quote(absolute): func(s *Settings) { s.AuditFile = absolute },
		},
		"audit.allowed": {
			"off":    func(s *Settings) { s.Allowed = proxy.AllowedOff },
			"closed": func(s *Settings) { s.Allowed = proxy.AllowedClosed },
			"all":    func(s *Settings) { s.Allowed = proxy.AllowedAll },
		},
		"audit.sync": {
			"1ms":    func(s *Settings) { s.Sync = time.Millisecond },
			"1m":     func(s *Settings) { s.Sync = time.Minute },
			"always": func(s *Settings) { s.Sync = audit.SyncAlways },
		},
		"audit.on_failure": {
			"allow": func(s *Settings) { s.AllowUnrecorded = true },
			"deny":  func(s *Settings) { s.AllowUnrecorded = false },
		},
		"audit.rotate.size": {
			"64KiB":     func(s *Settings) { s.RotateSize = 64 << 10 },
			`"1048576"`: func(s *Settings) { s.RotateSize = 1 << 20 },
			"1024GiB":   func(s *Settings) { s.RotateSize = 1 << 40 },
		},
		"dns.upstreams": {
			"[system]":     func(s *Settings) { s.Upstreams = []string{"system"} },
			"[192.0.2.53]": func(s *Settings) { s.Upstreams = []string{"192.0.2.53"} },
			`["127.0.0.1:5300", "[2001:db8::53]:53"]`: func(s *Settings) {
				s.Upstreams = []string{"127.0.0.1:5300", "[2001:db8::53]:53"}
			},
		},
		"limits.connections": {
			"1":       func(s *Settings) { s.Limits.Connections = 1 },
			"1048576": func(s *Settings) { s.Limits.Connections = 1 << 20 },
		},
		"limits.per_profile": {
			"1":       func(s *Settings) { s.Limits.PerProfile = 1 },
			"1048576": func(s *Settings) { s.Limits.PerProfile = 1 << 20 },
		},
		"limits.header_bytes": {
			"1KiB": func(s *Settings) { s.Limits.HeaderBytes = 1 << 10 },
			"1MiB": func(s *Settings) { s.Limits.HeaderBytes = 1 << 20 },
		},
		"limits.dial":        {"10ms": func(s *Settings) { s.Limits.Dial = 10 * time.Millisecond }},
		"limits.idle":        {"24h": func(s *Settings) { s.Limits.Idle = 24 * time.Hour }},
		"limits.half_closed": {"1m30s": func(s *Settings) { s.Limits.HalfClosed = 90 * time.Second }},
		"limits.handshake":   {"1s": func(s *Settings) { s.Limits.Handshake = time.Second }},
		"refusal_detail": {
			"none":   func(s *Settings) { s.Detail = proxy.DetailNone },
			"reason": func(s *Settings) { s.Detail = proxy.DetailReason },
			"rule":   func(s *Settings) { s.Detail = proxy.DetailRule },
		},
	}
	for path, values := range all {
		for value, change := range values {
			t.Run(path+"="+value, func(t *testing.T) {
				want := defaultSettings(p)
				change(&want)
				got, err := ParseSettings(p.Config, []byte("version: 1\n"+nested(path, value)+"\n"), p)
				require.NoError(t, err)
				assert.Equal(t, want, got)
			})
		}
	}
	for _, path := range keysOf(reflect.TypeFor[settingsFile](), "") {
		if path == "version" {
			continue
		}
		assert.Contains(t, all, path, "this key is not tested")
		key := path[strings.LastIndex(path, ".")+1:]
		assert.Regexp(t, `(?m)^[\s#]*`+key+`: \S`, shipped(t), "this key is not shown in the shipped file")
	}
}

func quote(path string) string { return "'" + path + "'" }

// problemsOf parses settings that must be refused.
func problemsOf(t *testing.T, text string) policy.Problems {
	t.Helper()
	p := userPaths(t)
	s, err := ParseSettings(p.Config, []byte(text), p)
	var problems policy.Problems
	require.ErrorAs(t, err, &problems)
	assert.Zero(t, s, "a file with a fault gives no settings")
	for _, problem := range problems {
		assert.Equal(t, p.Config, problem.File)
	}
	return problems
}

func TestSettingsOutOfRange(t *testing.T) {
	for path, values := range map[string][]string{
		"policy.dir":          {`""`},
		"audit.file":          {`""`},
		"audit.allowed":       {"some", "ALL", `""`},
		"audit.sync":          {"0s", "999us", "61s", "-1s", "soon", `"1"`, "Always", `""`},
		"audit.on_failure":    {"drop", `""`},
		"audit.rotate.size":   {"63KiB", `"65535"`, "1025GiB", "64MB", "64 mib", "-1GiB", "1.5GiB", "GiB", `""`, "17179869185GiB", "99999999999999999999GiB"},
		"dns.upstreams":       {"[]", "[system, 192.0.2.53]", "[dns.example.com]", `["192.0.2.53:0"]`, `["192.0.2.53:65536"]`, `["tls://192.0.2.53"]`, `[""]`},
		"limits.connections":  {"0", "-1", "1048577"},
		"limits.per_profile":  {"0", "1048577"},
		"limits.header_bytes": {"1023", "2MiB", "many"},
		"limits.dial":         {"9ms", "25h", "10"},
		"limits.idle":         {"9ms", "24h1s"},
		"limits.half_closed":  {"0s", "25h"},
		"limits.handshake":    {"0s", "25h"},
		"refusal_detail":      {"all", `""`},
	} {
		for _, value := range values {
			t.Run(path+"="+value, func(t *testing.T) {
				if path == "limits.header_bytes" && value == "1023" {
					value = `"1023"`
				}
				line := nested(path, value)
				problems := problemsOf(t, "version: 1\n"+line+"\n")
				require.Len(t, problems, 1, "%v", problems)
				assert.Equal(t, path, problems[0].Path)
				assert.NotEmpty(t, problems[0].Msg)
				assert.Equal(t, 2, problems[0].Line)
				assert.Equal(t, strings.Index(line, value)+1, problems[0].Column, "the place is that of the value")
				assert.Equal(t, line, problems[0].Source)
			})
		}
	}
}
