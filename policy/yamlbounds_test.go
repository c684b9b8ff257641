package policy_test

import (
	"fmt"
	"strings"
	"testing"

	"sluicegate/policy"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Each bound lets pass what is at it and refuses one more. What a file says
// within the bound is wrong too, so that both sides give one problem first.
func TestBounds(t *testing.T) {
	keys := func(n int, line string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, line, i)
		}
		return b.String()
	}
	const head = "version: 1\nproduct: test\n"
	for name, tt := range map[string]struct {
		limit          int
		text           func(n int) string
		within, beyond string
	}{
		"brackets": {
			15, func(n int) string { return head + "surface: " + strings.Repeat("[", n) + strings.Repeat("]", n) + "\n" },
			"a text is wanted, not a list", "the file is nested too deeply",
		},
		"braces": {
			15, func(n int) string {
				return head + "surface: " + strings.Repeat("{a: ", n) + "1" + strings.Repeat("}", n) + "\n"
			},
			"a text is wanted, not key: value pairs", "the file is nested too deeply",
		},
		"hyphens": {
			15, func(n int) string { return head + "surface:\n  " + strings.Repeat("- ", n) + "x\n" },
			"a text is wanted, not a list", "the file is nested too deeply",
		},
		"indentation": {
			15, func(n int) string {
				var b strings.Builder
				for i := range n {
					b.WriteString(strings.Repeat(" ", i+1) + "a:\n")
				}
				return head + "surface:\n" + strings.TrimSuffix(b.String(), "\n") + " 1\n"
			},
			"a text is wanted, not key: value pairs", "the file is nested too deeply",
		},
		"keys": {
			512, func(n int) string { return keys(n, "k%d: 1\n") },
			"unknown key", "the mapping has too many keys",
		},
		"key length": {
			256, func(n int) string { return head + strings.Repeat("k", n) + ": 1\n" },
			"unknown key", "the key is too long",
		},
		"keys without value": {
			100, func(n int) string { return keys(n, "k%d:\n") },
			"unknown key", "more than 100 values are missing",
		},
		"items without value": {
			100, func(n int) string { return head + "surface:\n" + strings.Repeat("-\n", n) },
			"a text is wanted, not a list", "more than 100 values are missing",
		},
		"keys in braces without value": {
			100, func(n int) string { return head + "surface: {" + keys(n, "k%d: ,") + "}\n" },
			"a text is wanted, not key: value pairs", "more than 100 values are missing",
		},
		"keys in braces without colon": {
			100, func(n int) string { return head + "surface: {" + keys(n, "k%d, ") + "}\n" },
			"a text is wanted, not key: value pairs", "more than 100 values are missing",
		},
		"empty lines": {
			50, func(n int) string { return head + strings.Repeat("\n", n) + "x: 1\n" },
			"unknown key", "the file has more than 50 empty lines in a row",
		},
		"lines of spaces": {
			50, func(n int) string { return head + strings.Repeat("  \n", n) + "x: 1\n" },
			"unknown key", "the file has more than 50 empty lines in a row",
		},
		"tabs": {
			100, func(n int) string { return head + "x: \"" + strings.Repeat("\t", n) + "\"\n" },
			"unknown key", "the line has more than 100 tabs",
		},
		"tabs between words": {
			100, func(n int) string { return head + "x: \"" + strings.Repeat("a\t", n) + "\"\n" },
			"unknown key", "the line has more than 100 tabs",
		},
		"angles": {
			100, func(n int) string { return head + "x: " + strings.Repeat("<", n) + "\n" },
			"unknown key", "the line has more than 100 times < in a row",
		},
	} {
		t.Run(name, func(t *testing.T) {
			first := func(n int) string {
				_, err := policy.Compile(files(tt.text(n)))
				var problems policy.Problems
				require.ErrorAs(t, err, &problems)
				return problems[0].Msg
			}
			assert.Equal(t, tt.within, first(tt.limit))
			assert.Equal(t, tt.beyond, first(tt.limit+1))
		})
	}
}

// What looks like the hostile shapes and is none of them.
func TestWithinBounds(t *testing.T) {
	s := compile(t, "# "+strings.Repeat("[see (1", 200)+"\n# "+strings.Repeat("-", 300)+"\n# "+strings.Repeat("- ", 300)+"\n"+
		oneProfile("allow:\n  - {host: a.test, why: \""+strings.Repeat("[{", 100)+"\"}\n  - host: b.test\n    why: x "+strings.Repeat("- ", 100)+"\n"))
	assert.Equal(t, "allow rule", verdict(s.Decide(tunnel(t, "a.test:443"))))
	assert.Equal(t, "allow rule", verdict(s.Decide(tunnel(t, "b.test:443"))))
}
