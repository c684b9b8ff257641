package policy_test

import (
	"strings"
	"testing"
	"time"

	"sluicegate/policy"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// hostileFiles are texts that make a YAML library slow or deep: each is known to
// have taken minutes, or the stack, with the library alone.
var hostileFiles = map[string]func(size int) string{
	"open brackets":       func(n int) string { return strings.Repeat("[", n) },
	"open braces":         func(n int) string { return strings.Repeat("{a: ", n/4) },
	"brackets and braces": func(n int) string { return strings.Repeat("[{a: ", n/5) },
	"hyphens in a line":   func(n int) string { return strings.Repeat("- ", n/2) },
	"question marks":      func(n int) string { return strings.Repeat("? ", n/2) },
	"colons":              func(n int) string { return strings.Repeat(": ", n/2) },
	"keys in a line":      func(n int) string { return strings.Repeat("a: ", n/3) },
	"staircase": func(n int) string {
		var b strings.Builder
		for i := 0; b.Len()+i+3 < n; i++ {
			b.WriteString(strings.Repeat(" ", i) + "a:\n")
		}
		return b.String()
	},
	"staircase of hyphens": func(n int) string {
		var b strings.Builder
		for i := 0; b.Len()+i+2 < n; i++ {
			b.WriteString(strings.Repeat(" ", i) + "-\n")
		}
		return b.String()
	},
	"keys without values":  func(n int) string { return strings.Repeat("a:\n", n/3) },
	"items without values": func(n int) string { return strings.Repeat("-\n", n/2) },
	"flow keys alone":      func(n int) string { return "{" + strings.Repeat("a,", n/2-2) + "}" },
	"flow keys no values":  func(n int) string { return "{" + strings.Repeat("a: ,", n/4-2) + "}" },
	"many keys": func(n int) string {
		var b strings.Builder
		for i := 0; b.Len()+12 < n; i++ {
			b.WriteString("k" + strings.Repeat("x", i%5) + string(rune('a'+i%26)) + ": 1\n")
		}
		return b.String()
	},
	"many block texts":       func(n int) string { return strings.Repeat("a: |\n", n/5) },
	"empty lines after text": func(n int) string { return "a: |\n x\n" + strings.Repeat("\n", n-20) + "b: 1\n" },
	"spaces after text":      func(n int) string { return "a: |\n x\n" + strings.Repeat(" \n", n/2-20) + "b: 1\n" },
	"quoted tabs":            func(n int) string { return "a: \"" + strings.Repeat("\t", n-10) + "\"" },
	"quoted tabs and text":   func(n int) string { return "a: \"" + strings.Repeat("x\t", n/2-10) + "\"" },
	"angles":                 func(n int) string { return strings.Repeat("<", n) },
	"hyphens in brackets":    func(n int) string { return "[" + strings.Repeat("- ", n/2-2) + "]" },
	"pairs in brackets":      func(n int) string { return "[\n" + strings.Repeat("a: b\n", n/5-2) + "]" },
	"pairs in braces":        func(n int) string { return "{a:\n" + strings.Repeat(" a: b\n", n/6-2) + "}" },
	"list under a long key":  func(n int) string { return strings.Repeat("k", n/2) + ": [" + strings.Repeat("a,", n/4-10) + "]" },
	"documents":              func(n int) string { return strings.Repeat("---\n", n/4) },
	"document ends":          func(n int) string { return strings.Repeat("...\n", n/4) },
	"directives":             func(n int) string { return strings.Repeat("%A b\n", n/5) },
	"anchors":                func(n int) string { return strings.Repeat("&a ", n/3) },
	"aliases":                func(n int) string { return strings.Repeat("*a ", n/3) },
	"tags":                   func(n int) string { return strings.Repeat("!!str ", n/6) },
	"merge keys":             func(n int) string { return strings.Repeat("<<: ", n/4) },
	"closing brackets":       func(n int) string { return strings.Repeat("]", n) },
	"reserved characters":    func(n int) string { return strings.Repeat("@", n) },
	"commas":                 func(n int) string { return "[" + strings.Repeat(",", n-2) + "]" },
	"one long word":          func(n int) string { return strings.Repeat("x", n) },
	"one long quote":         func(n int) string { return "version: \"" + strings.Repeat("x", n-20) + "\"" },
	"one long comment":       func(n int) string { return "version: 1 " + strings.Repeat("#", n-20) },
	"folded text":            func(n int) string { return "version: 1\nproduct: >-\n" + strings.Repeat(" x\n", n/3-20) },
	"rules of a wrong type":  func(n int) string { return oneProfile("allow: [" + strings.Repeat("1,", n/2-100) + "]") },
	"missing rules":          func(n int) string { return oneProfile("allow: [" + strings.Repeat("~,", n/2-100) + "]") },
	"bad hosts in one line":  func(n int) string { return oneProfile("allow: [" + strings.Repeat("{host: \"x/\"},", n/13-100) + "]") },
	"port over and over": func(n int) string {
		return oneProfile("allow: [{host: a.test, ports: [" + strings.Repeat("1,", n/2-100) + "]}]")
	},
	"unknown group":  func(n int) string { return oneProfile("use: [" + strings.Repeat("k", n-200) + "]") },
	"unknown groups": func(n int) string { return githubGroup + "x: [" + strings.Repeat("k,", n/2-200) + "]" },
	"profiles in braces": func(n int) string {
		return "version: 1\nproduct: test\nprofiles: {" + strings.Repeat("p: {},", n/6-20) + "}\n"
	},
}

// Every file is judged in a moment: each hostile shape at a size where quadratic
// time shows, a quarter of the largest file.
func TestHostileFilesAreJudgedInAMoment(t *testing.T) {
	size := policy.MaxFileSize / 4
	if raceDetector || testing.Short() {
		size /= 4
	}
	for name, text := range hostileFiles {
		t.Run(name, func(t *testing.T) {
			in := text(size)
			require.LessOrEqual(t, len(in), policy.MaxFileSize)
			start := time.Now()
			_, err := policy.Compile(files(in))
			took := time.Since(start)
			require.Error(t, err)
			assert.Less(t, took, 5*time.Second)
			assert.Less(t, len(err.Error()), 50_000)
		})
	}
}

// A large honest file is no hostile one.
func TestLargeHonestFiles(t *testing.T) {
	n := 30_000
	if raceDetector || testing.Short() {
		n = 3_000
	}
	var group, product strings.Builder
	group.WriteString("version: 1\ngroup: large\nhosts:\n")
	product.WriteString("version: 1\nproduct: test\nprofiles:\n  p:\n    listen: {port: 18001}\n    use: [large]\n    allow:\n")
	for i := range n {
		host := "h" + strings.Repeat("x", i%4) + strings.ToLower(strings.ReplaceAll(time.Duration(i).String(), ".", "-")) + ".example.com"
		group.WriteString("  - " + host + "\n")
		if i%3 == 0 {
			product.WriteString("      - host: allow." + host + "\n        ports: [443, 8443] # why\n")
		}
	}
	require.Less(t, group.Len(), policy.MaxFileSize)
	require.Less(t, product.Len(), policy.MaxFileSize)
	s := compile(t, group.String(), product.String())
	p, ok := s.Profile(testProfile)
	require.True(t, ok)
	assert.Equal(t, n+n/3, p.Allow)
}

// Many profiles with one large group would be more rules than fit in memory.
func TestTooManyRules(t *testing.T) {
	var group, product strings.Builder
	group.WriteString("version: 1\ngroup: large\nhosts:\n")
	for i := range 3000 {
		group.WriteString("  - h" + string(rune('a'+i%26)) + string(rune('a'+i/26%26)) + string(rune('a'+i/676)) + ".test\n")
	}
	product.WriteString("version: 1\nproduct: test\nprofiles: {")
	for i := range 400 {
		product.WriteString("p" + string(rune('a'+i%26)) + string(rune('a'+i/26)) + ": {listen: {port: 0}, use: [large]},\n")
	}
	product.WriteString("}\n")
	problems := problemsOf(t, files(group.String(), product.String()))
	assert.Contains(t, problems[0], "the policy has more than 1048576 rules")
}
