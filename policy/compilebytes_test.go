package policy_test

import (
	"strings"
	"testing"

	"sluicegate/policy"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Files that are wrong or odd below the level of YAML.
func TestBytes(t *testing.T) {
	good := oneProfile("allow:\n  - {host: a.test}")
	fill := func(size int) string { return good + strings.Repeat("#", size-len(good)) }
	for name, tt := range map[string]struct{ text, want string }{
		"BOM":                   {"\xef\xbb\xbf" + good, ""},
		"CRLF":                  {strings.ReplaceAll(good, "\n", "\r\n"), ""},
		"no newline at the end": {strings.TrimRight(good, "\n"), ""},
		"document header":       {"---\n" + good, ""},
		"comment before it":     {"# x\n---\n" + good, ""},
		"tabs before a comment": {strings.Replace(good, "version: 1", "version: 1\t# one", 1), ""},
		"exactly 1 MiB":         {fill(policy.MaxFileSize), ""},
		"JSON": {`{"version": 1, "product": "test", "profiles": {"p": {"listen": {"port": 18001},
	"allow": [{"host": "a.test"}]}}}`, ""},

		"1 MiB and a byte":   {fill(policy.MaxFileSize + 1), "the file is larger than 1 MiB"},
		"two BOMs":           {"\xef\xbb\xbf\xef\xbb\xbf" + good, "the file has a control character"},
		"not UTF-8":          {strings.Replace(good, "a.test", "a\xff.test", 1), "the file is not valid UTF-8"},
		"Latin-1":            {strings.Replace(good, "a.test", "b\xfccher.test", 1), "the file is not valid UTF-8"},
		"surrogate":          {strings.Replace(good, "a.test", "\xed\xa0\x80", 1), "the file is not valid UTF-8"},
		"UTF-16":             {"v\x00e\x00r\x00", "the file has a control character"},
		"NUL":                {good + "\x00", "the file has a control character"},
		"ESC":                {good + "# \x1b[2J", "the file has a control character"},
		"DEL":                {good + "# \x7f", "the file has a control character"},
		"C1":                 {good + "# \u009b", "the file has a control character"},
		"next line":          {good + "# \u0085allow: x", "the file has a control character"},
		"line separator":     {good + "# \u2028allow: x", "the file has a control character"},
		"right to left":      {good + "# \u202e", "the file has a control character"},
		"isolate":            {good + "# \u2066", "the file has a control character"},
		"CR alone":           {strings.ReplaceAll(good, "\n", "\r"), "the file has a control character"},
		"only a BOM":         {"\xef\xbb\xbf", "the file is empty"},
		"only a header":      {"---\n", "the file holds nothing but comments"},
		"header and comment": {"---\n# x\n", "the file holds nothing but comments"},
		"null":               {"null\n", "the value is missing"},
		"number":             {"5\n", "key: value pairs are wanted, not a number"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := policy.Compile(files(tt.text))
			if tt.want == "" {
				require.NoError(t, err)
				assert.Equal(t, "allow rule", verdict(s.Decide(tunnel(t, "a.test:443"))))
				return
			}
			var problems policy.Problems
			require.ErrorAs(t, err, &problems)
			require.Len(t, problems, 1)
			assert.Equal(t, tt.want, problems[0].Msg)
			assert.NotContains(t, err.Error(), "\x1b")
		})
	}
}

// Lines are counted as an editor does, whatever the line ends: records name
// them.
func TestLines(t *testing.T) {
	text := "version: 1\nproduct: test\nprofiles:\n  p:\n    listen: {port: 18001}\n    allow:\n" +
		"      - host: a.test\n        why: \"two\n          lines\"\n      - why: >-\n          folded\n          text\n\n        host: b.test\n" +
		"      - {\n          host: c.test,\n        }\n      # comment\n      - {why: 'single\n          quoted', host: d.test}\n      - host: e.test\n"
	want := map[string]int{"a.test": 7, "b.test": 10, "c.test": 16, "d.test": 19, "e.test": 21}
	for name, text := range map[string]string{"LF": text, "CRLF": strings.ReplaceAll(text, "\n", "\r\n"), "BOM": "\xef\xbb\xbf" + text} {
		s := compile(t, text)
		for host, line := range want {
			d := s.Decide(tunnel(t, host+":443"))
			require.NotNil(t, d.Rule, host)
			assert.Equal(t, line, d.Rule.Line, "%s %s", name, host)
			assert.Equal(t, "f0.yaml", d.Rule.File)
		}
	}
}

// A long line is shown around the fault, and the caret stays below it.
func TestProblemOfALongLine(t *testing.T) {
	text := oneProfile("allow: [" + strings.Repeat("{host: \"é.test\", ports: [1]}, ", 30) + "{host: \"bad/\"}, " + strings.Repeat("{host: b.test}, ", 30) + "]")
	_, err := policy.Compile(files(text))
	var problems policy.Problems
	require.ErrorAs(t, err, &problems)
	for _, p := range problems {
		lines := strings.Split(p.Error(), "\n")
		require.Len(t, lines, 3)
		assert.LessOrEqual(t, len([]rune(p.Source)), 122)
		if p.Msg != "a host has no path" {
			continue
		}
		caret := strings.IndexByte(lines[2], '^')
		assert.Equal(t, `"bad/"`, string([]rune(lines[1])[caret:caret+6]))
		return
	}
	assert.Fail(t, "the fault was not found")
}

// A file of the wrong kind gives a page of problems, not a book.
func TestManyProblems(t *testing.T) {
	_, err := policy.Compile(files(oneProfile("allow: ["+strings.Repeat("{host: \"x/\"},", 5000)+"]"), "version: 2\n"))
	var problems policy.Problems
	require.ErrorAs(t, err, &problems)
	require.Len(t, problems, 52)
	assert.Equal(t, "f0.yaml", problems[50].File)
	assert.Equal(t, "there is more that is not shown", problems[50].Msg)
	assert.Equal(t, "f1.yaml", problems[51].File)
	assert.Less(t, len(err.Error()), 40_000)
}
