package sluicegate

import (
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// documents that must be there; all of docs/ is read besides.
var documents = []string{"README.md", "CONTRIBUTING.md", "CHANGELOG.md"}

func TestLinksResolve(t *testing.T) {
	fsys := os.DirFS(".")
	names, err := markdownFiles(fsys)
	if err != nil {
		t.Fatal(err)
	}
	problems, err := checkLinks(fsys, names)
	if err != nil {
		t.Fatal(err)
	}
	report(t, problems)
}

// markdownFiles are documents and every Markdown file below docs.
func markdownFiles(fsys fs.FS) ([]string, error) {
	names := slices.Clone(documents)
	err := fs.WalkDir(fsys, "docs", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && path.Ext(name) == ".md" {
			names = append(names, name)
		}
		return err
	})
	return names, err
}

var (
	codeSpan   = regexp.MustCompile("`[^`]*`")
	inlineLink = regexp.MustCompile(`\]\(\s*<?([^)<>\s]+)>?(?:\s+["'][^)]*)?\)`)
	linkTarget = regexp.MustCompile(`^ {0,3}\[[^\]]+\]:\s*<?([^<>\s]+)>?`)
	htmlLink   = regexp.MustCompile(`\b(?:href|src)="([^"]+)"`)
)

// checkLinks wants each link of the named Markdown files that is not to another
// site to lead to a file or folder of the repository. What is set as code is no
// link.
func checkLinks(fsys fs.FS, names []string) ([]string, error) {
	var problems []string
	for _, name := range names {
		content, err := fs.ReadFile(fsys, name)
		if err != nil {
			problems = append(problems, name+": "+err.Error())
			continue
		}
		fence := ""
		for i, line := range strings.Split(string(content), "\n") {
			trimmed := strings.TrimSpace(line)
			switch {
			case fence != "":
				if strings.HasPrefix(trimmed, fence) {
					fence = ""
				}
				continue
			case strings.HasPrefix(trimmed, "```"), strings.HasPrefix(trimmed, "~~~"):
				fence = trimmed[:3]
				continue
			}
			for _, target := range targets(line) {
				if why := unresolved(fsys, name, target); why != "" {
					problems = append(problems, fmt.Sprintf("%s:%d: link to %s: %s", name, i+1, target, why))
				}
			}
		}
	}
	return problems, nil
}

// targets are the link targets in one line of Markdown.
func targets(line string) []string {
	line = codeSpan.ReplaceAllString(line, "code")
	var found []string
	for _, re := range []*regexp.Regexp{inlineLink, linkTarget, htmlLink} {
		for _, match := range re.FindAllStringSubmatch(line, -1) {
			found = append(found, match[1])
		}
	}
	return found
}

// unresolved says why target, a link in the file name, leads nowhere in fsys, or "".
func unresolved(fsys fs.FS, name, target string) string {
	u, err := url.Parse(target)
	if err != nil {
		return "not a link: " + err.Error()
	}
	if u.Scheme != "" || u.Host != "" || u.Path == "" {
		return "" // another site, or a heading of the same file
	}
	file := path.Join(path.Dir(name), u.Path)
	if strings.HasPrefix(u.Path, "/") {
		file = strings.TrimPrefix(path.Clean(u.Path), "/") // from the root of the repository
	}
	if file == "" {
		file = "."
	}
	if !fs.ValidPath(file) {
		return "outside the repository"
	}
	if _, err := fs.Stat(fsys, file); err != nil {
		return "no such file"
	}
	return ""
}

func TestCheckLinks(t *testing.T) {
	tests := map[string]struct {
		text string
		want []string
	}{
		"a file":                  {"see [a](other.md) and [b](sub/deep.md#part)", nil},
		"upwards":                 {"see [a](../README.md)", nil},
		"from the root":           {"see [a](/docs/other.md)", nil},
		"a folder":                {"see [a](sub/)", nil},
		"another site":            {"see [a](https://example.com/none.md), [b](mailto:a@example.com), [c](//example.com/x)", nil},
		"a heading":               {"see [a](#part)", nil},
		"a name with a blank":     {"see [a](with%20blank.md) or [b](<other.md>)", nil},
		"a title":                 {`see [a](other.md "Other")`, nil},
		"code":                    {"write `[a](none.md)`\n```\n[a](none.md)\n```\nend", nil},
		"tilde code":              {"~~~sh\n[a](none.md)\n```\n[a](none.md)\n~~~", nil},
		"nothing there":           {"\nsee [a](none.md)", []string{"docs/a.md:2: link to none.md: no such file"}},
		"after code":              {"```\n```\n[a](none.md)", []string{"docs/a.md:3:"}},
		"code as the link text":   {"[`a`](none.md)", []string{"none.md"}},
		"two in a line":           {"[a](none.md) [b](other.md) [c](no/such.md#x)", []string{"none.md", "no/such.md"}},
		"with a title":            {`[a](none.md "Title")`, []string{"none.md"}},
		"a picture":               {"![a](none.png)", []string{"none.png"}},
		"a linked picture":        {"[![a](none.png)](other.md)", []string{"none.png"}},
		"a reference":             {"[a]: none.md", []string{"none.md"}},
		"HTML":                    {`<img src="none.png" alt="">`, []string{"none.png"}},
		"outside":                 {"[a](../../x.md)", []string{"outside the repository"}},
		"from the root, not here": {"[a](/none.md)", []string{"no such file"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			fsys := mapFS(map[string]string{
				"README.md": "", "docs/other.md": "", "docs/with blank.md": "", "docs/sub/deep.md": "",
				"docs/a.md": tt.text,
			})
			got, err := checkLinks(fsys, []string{"docs/a.md"})
			if err != nil {
				t.Fatal(err)
			}
			wantProblems(t, got, tt.want)
		})
	}
	t.Run("a document is gone", func(t *testing.T) {
		got, err := checkLinks(mapFS(map[string]string{"README.md": ""}), documents)
		if err != nil {
			t.Fatal(err)
		}
		wantProblems(t, got, []string{"CONTRIBUTING.md: ", "CHANGELOG.md: "})
	})
}
