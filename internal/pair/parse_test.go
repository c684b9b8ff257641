package pair

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	deep := func(n int) string { return `{"a":` + strings.Repeat("[", n) + strings.Repeat("]", n) + "}" }
	tests := map[string]struct {
		in     string
		usable bool
		faults []string // line:column text
	}{
		"an object":      {"{\"a\": {\"b\": [1, true, null, \"x\"]}}", true, nil},
		"empty":          {"", false, []string{"1:1 it is not JSON: unexpected end of JSON input"}},
		"blank":          {" \n", false, []string{"1:2 it is not JSON: unexpected end"}},
		"a list":         {"\n [1]", false, []string{"2:2 it is a list, not an object"}},
		"null":           {"null", false, []string{"1:1 it is null, not an object"}},
		"trailing comma": {"{\"a\": 1,\n }", false, []string{"2:2 it is not JSON: invalid character '}'"}},
		"a comment":      {"{ // x\n}", false, []string{"1:3 it is not JSON: invalid character '/'"}},
		"two values":     {"{} {}", false, []string{"1:4 it is not JSON"}},
		"cut":            {"{\"a\": [1", false, []string{"1:8 it is not JSON: unexpected end"}},
		"BOM":            {"\xef\xbb\xbf{}", true, []string{"1:1 it begins with a byte order mark"}},
		"UTF-16":         {"\xff\xfe{\x00}\x00", false, []string{"1:4 it has a NUL byte"}},
		"NUL":            {"{\n\"a\":\"\x00\"}", false, []string{"2:6 it has a NUL byte"}},
		"not UTF-8":      {"{\"a\":\n\"\xe9\"}", true, []string{"2:2 it is not UTF-8"}},
		"double":         {"{\"a\":1,\n \"b\":2,\n  \"a\":3}", true, []string{"3:3 the key \"a\" is there twice"}},
		"double, nested": {"{\"s\":{\"a\":1,\n\"a\":{}}}", true, []string{"2:1 the key \"a\" is there twice"}},
		"double, spelt":  {"{\"a\":1,\"\\u0061\":2}", true, []string{"1:8 the key \"a\" is there twice"}},
		"same elsewhere": {"{\"a\":{\"a\":{\"a\":1}},\"b\":{\"a\":2}}", true, nil},
		"deep":           {deep(maxDepth), true, nil},
		"too deep":       {deep(maxDepth + 1), false, []string{fmt.Sprintf("1:%d values are nested deeper than 128", maxDepth+6)}},
		"absurdly deep":  {deep(200_000), false, []string{"exceeded max depth"}},
		"a big number":   {`{"a":1e999999999}`, true, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			v, faults := parse([]byte(tt.in))
			assert.Equal(t, tt.usable, v != nil)
			require.Len(t, faults, len(tt.faults), "%v", faults)
			for i, f := range faults {
				assert.Contains(t, fmt.Sprintf("%d:%d %s", f.line, f.column, f.text), tt.faults[i])
			}
		})
	}
}

// The last of two equal keys is the one that JSON.parse takes.
func TestParseKeepsTheLast(t *testing.T) {
	v, _ := parse([]byte(`{"a":1,"b":{"c":true},"a":"x"}`))
	assert.Equal(t, "x", v.get("a").text)
	assert.True(t, v.get("b", "c").boolean)
	assert.Nil(t, v.get("b", "d"))
	assert.Nil(t, v.get("a", "d"))
	assert.Equal(t, []string{"a", "b"}, v.names())
}

func TestMerge(t *testing.T) {
	tests := map[string]struct{ a, b, want string }{
		"scalars":         {`{"x":1}`, `{"x":2}`, `{x:2}`},
		"objects":         {`{"o":{"a":1,"b":2}}`, `{"o":{"b":3,"c":4},"p":5}`, `{o:{a:1,b:3,c:4},p:5}`},
		"lists":           {`{"l":[1]}`, `{"l":[2]}`, `{l:[1,2]}`},
		"of other kinds":  {`{"x":{"a":1}}`, `{"x":[1]}`, `{x:[1]}`},
		"null is a value": {`{"x":1}`, `{"x":null}`, `{x:null}`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			a, _ := parse([]byte(tt.a))
			b, _ := parse([]byte(tt.b))
			before := written(a) + written(b)
			assert.Equal(t, tt.want, written(merge(a, b)))
			assert.Equal(t, before, written(a)+written(b), "an argument was changed")
		})
	}
	a, _ := parse([]byte(`{"x":1}`))
	assert.Same(t, a, merge(nil, a))
	assert.Same(t, a, merge(a, nil))
}

// written is a value in short.
func written(v *value) string {
	var parts []string
	switch v.kind {
	case kindArray:
		for _, item := range v.items {
			parts = append(parts, written(item))
		}
		return "[" + strings.Join(parts, ",") + "]"
	case kindObject:
		for _, m := range v.members {
			parts = append(parts, m.name+":"+written(m.value))
		}
		return "{" + strings.Join(parts, ",") + "}"
	case kindNull:
		return "null"
	default:
		return strings.Trim(show(v), `"`)
	}
}

// Whatever a file holds: no panic, and a file that can't be used is a finding
// that keeps the boundary from being called whole.
func FuzzCheck(f *testing.F) {
	content, err := Settings(ports)
	require.NoError(f, err)
	for _, seed := range []string{
		string(content), "", "\xfd", "{", "[]", "{}", "null", "\xef\xbb\xbf{}", "{\"a\":\"\xff\"}", `{"env":1,"sandbox":[]}`, `{"env":{"NO_PROXY":"*, [::1"}}`,
		`{"sandbox":{"excludedCommands":[1,{},"x y"]},"hooks":[],"permissions":{"defaultMode":null}}`, `{"a":1,"a":{}}`,
		`{"sandbox":{"network":{"httpProxyPort":1e400,"allowUnixSockets":{}}}}`, `{"env":{"https_proxy":"http://%zz","ALL_PROXY":"://@"}}`,
	} {
		f.Add(seed, true)
		f.Add(seed, false)
	}
	f.Fuzz(func(t *testing.T, text string, managed bool) {
		p := on(Linux)
		files := paired(t, p)
		path := p.User
		if managed {
			path = p.DropIns + "/90.json"
		}
		files[path] = shelved{text: text, mode: 0o644}
		files[p.State] = shelved{text: text}
		r := Check(Question{Places: p, Files: files, Ports: ports, Environ: []string{"no_proxy=" + text, text}})
		for _, finding := range r.Findings {
			for _, c := range []byte(finding.Key + finding.Found + finding.Why + finding.Mend) {
				if c < ' ' || c >= 0x7f {
					t.Fatalf("byte %#x in %+v", c, finding)
				}
			}
		}
		if v, faults := parse([]byte(text)); (v == nil || len(faults) > 0) && r.Holds {
			t.Fatal("the boundary is said to hold although a file can not be used")
		}
	})
}
