package daemon

import (
	"io/fs"
	"os"
	"strings"
	"testing"
	"unicode"

	"sluicegate/policy"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSettingsOfALaterVersion(t *testing.T) {
	for prefix, part := range map[string]interface{ LaterKeys() []string }{
		"": settingsFile{}, "policy.": policyPart{}, "audit.": auditPart{}, "audit.rotate.": rotatePart{},
		"dns.": dnsPart{}, "limits.": limitsPart{},
	} {
		require.NotEmpty(t, part.LaterKeys(), prefix)
		for _, key := range part.LaterKeys() {
			problems := problemsOf(t, "version: 1\n"+nested(prefix+key, "x")+"\n")
			require.Len(t, problems, 1)
			assert.Equal(t, prefix+key, problems[0].Path)
			assert.Contains(t, problems[0].Msg, "not supported by this version", "a key that would do nothing is no typing error")
		}
	}
}

func TestSettingsThatAreNotSettings(t *testing.T) {
	for name, tc := range map[string]struct{ text, path, says string }{
		"nothing":           {"", "", "empty"},
		"no version":        {"refusal_detail: rule\n", "version", "missing or not known"},
		"later version":     {"version: 2\n", "version", "missing or not known"},
		"unknown key":       {"version: 1\naudits: {}\n", "audits", "unknown key"},
		"unknown inner key": {"version: 1\naudit: {fiel: a}\n", "audit.fiel", "unknown key"},
		"key twice":         {"version: 1\nversion: 1\n", "version", "twice"},
		"number for text":   {"version: 1\naudit: {sync: 5}\n", "audit.sync", "a text is wanted"},
		"text for number":   {"version: 1\nlimits: {connections: \"5\"}\n", "limits.connections", "number is wanted"},
		"null":              {"version: 1\naudit:\n", "audit", "missing"},
		"a list":            {"- version: 1\n", "", "pairs are wanted"},
		"two documents":     {"version: 1\n---\nversion: 1\n", "", "second document"},
		"alias":             {"version: &a 1\n", "", "anchors"},
		"too large":         {"# " + strings.Repeat("x", policy.MaxFileSize) + "\nversion: 1\n", "", "larger than 1 MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			problems := problemsOf(t, tc.text)
			assert.Equal(t, tc.path, problems[0].Path)
			assert.Contains(t, problems[0].Msg, tc.says)
		})
	}
}

// All faults are told at once, in the order of the file, each with its line.
func TestSettingsTellAllFaults(t *testing.T) {
	problems := problemsOf(t, "\xef\xbb\xbfrefusal_detail: all\r\nlimits:\r\n\tidle: 1ms\r\n")
	require.Len(t, problems, 1, "a tab: no YAML")
	problems = problemsOf(t, "\xef\xbb\xbfrefusal_detail: all\r\nlimits:\r\n    idle:   1ms # short\r\n    dial: \"1ms\"\r\n")
	require.Len(t, problems, 4)
	assert.Equal(t, "version", problems[0].Path)
	assert.Equal(t, 1, problems[0].Line, "what is missing is missing at the start")
	for i, want := range []policy.Problem{
		{Path: "refusal_detail", Line: 1, Column: 17, Source: "refusal_detail: all"},
		{Path: "limits.idle", Line: 3, Column: 13, Source: "    idle:   1ms # short"},
		{Path: "limits.dial", Line: 4, Column: 11, Source: `    dial: "1ms"`},
	} {
		got := problems[i+1]
		got.File, got.Msg, got.Hint = "", "", ""
		assert.Equal(t, want, got)
	}
	assert.True(t, strings.HasSuffix(problems[2].Error(), "\n    3 |     idle:   1ms # short\n      |             ^"), problems[2].Error())
}

// The line of a fault is shown on a terminal, which must not obey it.
func TestSettingsFaultsAreHarmless(t *testing.T) {
	for _, text := range []string{"\u202e", "\u2066\u200b", "\u009b31m"} {
		problems := problemsOf(t, "version: 1\nrefusal_detail: all # "+text+strings.Repeat("x", 200)+"\n")
		for _, p := range problems {
			assert.LessOrEqual(t, len([]rune(p.Source)), 122)
			assert.Negative(t, strings.IndexFunc(p.Error(), func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) && r != '\u2026' }), "%q", p.Error())
		}
	}
}

func TestLoadSettings(t *testing.T) {
	p := userPaths(t)
	s, err := LoadSettings(p, false)
	require.NoError(t, err, "no file is no fault")
	assert.Equal(t, defaultSettings(p), s)
	_, err = LoadSettings(p, true)
	require.ErrorIs(t, err, fs.ErrNotExist, "a file that was named must be there")
	assert.ErrorContains(t, err, p.Config)

	write(t, p.Config, "version: 1\nrefusal_detail: rule\n")
	for _, required := range []bool{false, true} {
		s, err = LoadSettings(p, required)
		require.NoError(t, err)
		assert.EqualValues(t, "rule", s.Detail)
	}

	write(t, p.Config, "# "+strings.Repeat("x", policy.MaxFileSize)+"\nversion: 1\n")
	_, err = LoadSettings(p, false)
	assert.ErrorContains(t, err, "larger than 1 MiB")
	require.NoError(t, os.Remove(p.Config))
	require.NoError(t, os.Mkdir(p.Config, 0o700))
	_, err = LoadSettings(p, false)
	assert.ErrorContains(t, err, "not a regular file")
}
