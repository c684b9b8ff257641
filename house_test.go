package sluicegate

// The tests of this package guard the shape of the repository. Each guard is a
// function over a file system or plain values, so that the tests beside it feed
// it the fault it is for: a guard that cannot fail guards nothing.
//
//	house_test.go          the tree: package docs, module files, machine paths
//	house_imports_test.go  who may import what, with the reasons
//	house_habits_test.go   habits of test files: skips and sleeps
//	house_links_test.go    links in the documents

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
)

// modulePath is the path of the module; tools/ is a module below it.
const modulePath = "sluicegate"

// goFile is one parsed Go file of the tree, whatever its build constraints.
type goFile struct {
	name string // slash-separated, from the root of the repository
	dir  string // its folder, "." for the root
	test bool   // named *_test.go
	fset *token.FileSet
	ast  *ast.File
}

// at is the place of n, as an editor understands it.
func (f goFile) at(n ast.Node) string {
	return fmt.Sprintf("%s:%d", f.name, f.fset.Position(n.Pos()).Line)
}

// imports are the paths that f imports.
func (f goFile) imports() []string {
	var paths []string
	for _, spec := range f.ast.Imports {
		if p, err := strconv.Unquote(spec.Path.Value); err == nil {
			paths = append(paths, p)
		}
	}
	return paths
}

// localName is the name by which f refers to the standard package at importPath,
// or "" if f does not import it.
func (f goFile) localName(importPath string) string {
	for _, spec := range f.ast.Imports {
		if p, err := strconv.Unquote(spec.Path.Value); err != nil || p != importPath {
			continue
		}
		if spec.Name != nil {
			return spec.Name.Name
		}
		return path.Base(importPath)
	}
	return ""
}

// skipFolder tells folders that the go command does not build and we do not read.
func skipFolder(name string) bool {
	base := path.Base(name)
	return name != "." && (strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") ||
		base == "testdata" || name == "bin" || name == "dist")
}

// parseTree reads every Go file of fsys. There are no exceptions for build
// constraints: what is forbidden is forbidden on all systems.
func parseTree(fsys fs.FS) ([]goFile, error) {
	var files []goFile
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && skipFolder(name):
			return fs.SkipDir
		case d.IsDir() || path.Ext(name) != ".go":
			return nil
		}
		src, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		fset := token.NewFileSet()
		parsed, err := parser.ParseFile(fset, name, src, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		files = append(files, goFile{
			name: name, dir: path.Dir(name), test: strings.HasSuffix(name, "_test.go"),
			fset: fset, ast: parsed,
		})
		return nil
	})
	return files, err
}

// repository is this work tree, parsed.
func repository(t *testing.T) []goFile {
	t.Helper()
	files, err := parseTree(os.DirFS("."))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatal("no Go file found")
	}
	return files
}

// tree is a made-up work tree for the tests of the guards.
func tree(t *testing.T, files map[string]string) []goFile {
	t.Helper()
	parsed, err := parseTree(mapFS(files))
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

func mapFS(files map[string]string) fstest.MapFS {
	fsys := fstest.MapFS{}
	for name, content := range files {
		fsys[name] = &fstest.MapFile{Data: []byte(content)}
	}
	return fsys
}

// report fails t with each problem.
func report(t *testing.T, problems []string) {
	t.Helper()
	for _, p := range problems {
		t.Error(p)
	}
}

// wantProblems compares problems with what each of them must contain, in order.
func wantProblems(t *testing.T, got, want []string) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("got %d problems, want %d:\n%s", len(got), len(want), strings.Join(got, "\n"))
	}
	for i := range want {
		if !strings.Contains(got[i], want[i]) {
			t.Errorf("problem %d is %q, want it to contain %q", i, got[i], want[i])
		}
	}
}

// --- one package comment for each folder

func TestEveryFolderHasOnePackageComment(t *testing.T) {
	report(t, checkPackageComments(repository(t)))
}

// checkPackageComments wants exactly one package comment among the files of a
// folder that are not tests. Folders that hold only tests need none.
func checkPackageComments(files []goFile) []string {
	documented := map[string][]string{}
	for _, f := range files {
		if f.test {
			continue
		}
		if _, seen := documented[f.dir]; !seen {
			documented[f.dir] = nil
		}
		if f.ast.Doc != nil && strings.TrimSpace(f.ast.Doc.Text()) != "" {
			documented[f.dir] = append(documented[f.dir], path.Base(f.name))
		}
	}
	var problems []string
	for dir, names := range documented {
		switch len(names) {
		case 1:
		case 0:
			problems = append(problems, dir+": no file has a package comment; write one, in doc.go or the main file")
		default:
			problems = append(problems, fmt.Sprintf("%s: %s all have a package comment; keep one",
				dir, strings.Join(names, ", ")))
		}
	}
	slices.Sort(problems)
	return problems
}

func TestCheckPackageComments(t *testing.T) {
	got := checkPackageComments(tree(t, map[string]string{
		"fine/a.go":         "// Package fine is.\npackage fine\n",
		"fine/b.go":         "package fine\n",
		"fine/a_test.go":    "// A comment in a test counts for nothing.\npackage fine\n",
		"empty/a.go":        "//\npackage empty\n",
		"detached/a.go":     "// Package detached is.\n\npackage detached\n",
		"twice/a.go":        "// Package twice is.\npackage twice\n",
		"twice/b_darwin.go": "//go:build darwin\n\n// Package twice is.\npackage twice\n",
		"tests/a_test.go":   "package tests\n",
	}))
	wantProblems(t, got, []string{
		"detached: no file",
		"empty: no file",
		"twice: a.go, b_darwin.go all",
	})
}

// --- module files

func TestModuleFilesAreOurs(t *testing.T) {
	problems, err := checkModules(os.DirFS("."))
	if err != nil {
		t.Fatal(err)
	}
	report(t, problems)
}

// checkModules allows no replace directive, no workspace file and no copy of
// somebody else's code: what runs is what go.sum names.
func checkModules(fsys fs.FS) ([]string, error) {
	var problems []string
	modules := 0
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := path.Base(name)
		if d.IsDir() {
			if base == "vendor" || base == "third_party" {
				problems = append(problems, name+": a vendored copy; require the module instead")
				return fs.SkipDir
			}
			if skipFolder(name) {
				return fs.SkipDir
			}
			return nil
		}
		if base == "go.work" {
			problems = append(problems, name+": a workspace file changes what is built without a trace in go.sum")
		}
		if base != "go.mod" {
			return nil
		}
		modules++
		content, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		for i, line := range strings.Split(string(content), "\n") {
			code, _, _ := strings.Cut(line, "//")
			fields := strings.Fields(strings.ReplaceAll(code, "(", " ( "))
			switch {
			case len(fields) == 0:
			case fields[0] == "replace" || slices.Contains(fields, "=>"):
				problems = append(problems, fmt.Sprintf(
					"%s:%d: a replace directive; a fault of a library is worked around in our code or fixed there", name, i+1))
			case fields[0] == "module" && fields[1] != modulePath && !strings.HasPrefix(fields[1], modulePath+"/"):
				problems = append(problems, fmt.Sprintf("%s:%d: module %s is a copy of somebody else's", name, i+1, fields[1]))
			}
		}
		return nil
	})
	if err == nil && modules == 0 {
		problems = append(problems, "no go.mod found")
	}
	return problems, err
}

func TestCheckModules(t *testing.T) {
	const head = "module sluicegate\n\ngo 1.26.0\n"
	tests := map[string]struct {
		files map[string]string
		want  []string
	}{
		"ours": {map[string]string{
			"go.mod":       head + "// replace is only a word here\nrequire example.com/a v1.0.0 // replace it some day\n",
			"tools/go.mod": "module sluicegate/tools\n",
		}, nil},
		"replace":       {map[string]string{"go.mod": head + "replace example.com/a => ../a\n"}, []string{"go.mod:4: a replace"}},
		"replace block": {map[string]string{"go.mod": head + "replace(\n\texample.com/a => ../a\n)\n"}, []string{"go.mod:4:", "go.mod:5:"}},
		"replace in tools": {
			map[string]string{"go.mod": head, "tools/go.mod": "module sluicegate/tools\nreplace a => b v1.0.0\n"},
			[]string{"tools/go.mod:2: a replace"},
		},
		"vendor":      {map[string]string{"go.mod": head, "vendor/modules.txt": ""}, []string{"vendor: a vendored copy"}},
		"third_party": {map[string]string{"go.mod": head, "proxy/third_party/a/a.go": ""}, []string{"proxy/third_party: a vendored"}},
		"copy":        {map[string]string{"go.mod": head, "internal/dns/go.mod": "module example.com/dns\n"}, []string{"module example.com/dns is a copy"}},
		"lookalike":   {map[string]string{"go.mod": "module sluicegate2\n"}, []string{"module sluicegate2 is"}},
		"workspace":   {map[string]string{"go.mod": head, "go.work": "go 1.26.0\n"}, []string{"go.work: a workspace"}},
		"nothing":     {map[string]string{"README.md": ""}, []string{"no go.mod found"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := checkModules(mapFS(tt.files))
			if err != nil {
				t.Fatal(err)
			}
			wantProblems(t, got, tt.want)
		})
	}
}

// --- one toolchain

func TestOneToolchain(t *testing.T) {
	pins := map[string]string{}
	for name, pin := range map[string]string{
		"go.mod":       `(?m)^toolchain (\S+)$`,
		"tools/go.mod": `(?m)^toolchain (\S+)$`,
		"Makefile":     `(?m)^export GOTOOLCHAIN := (\S+)$`,
	} {
		content, err := os.ReadFile(filepath.FromSlash(name))
		if err != nil {
			t.Fatal(err)
		}
		found := regexp.MustCompile(pin).FindSubmatch(content)
		if found == nil {
			t.Fatalf("%s pins no toolchain", name)
		}
		pins[name] = string(found[1])
	}
	for name, pin := range pins {
		if pin != pins["go.mod"] {
			t.Errorf("%s pins %s, go.mod pins %s", name, pin, pins["go.mod"])
		}
	}
}

// --- no path of a build machine

// machinePath finds absolute paths that exist only where somebody builds. The
// first characters are in brackets so that this file does not match itself.
var machinePath = regexp.MustCompile(`(^|[^\w./-])([/]work|[/]root/go|[/]builds|[/]home/runner)/`)

func TestNoMachinePaths(t *testing.T) {
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := checkMachinePaths(os.DirFS("."), trackedFiles(t), filepath.ToSlash(here))
	if err != nil {
		t.Fatal(err)
	}
	report(t, problems)
}

// trackedFiles are the files that are, or with the next commit can be, in the
// repository. Where there is no git, that is every file.
func trackedFiles(t *testing.T) []string {
	t.Helper()
	out, err := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	if err == nil {
		return strings.FieldsFunc(string(out), func(r rune) bool { return r == 0 })
	}
	t.Logf("git lists no files (%v): reading all", err)
	var names []string
	err = fs.WalkDir(os.DirFS("."), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && (name == ".git" || name == "bin" || name == "dist") {
			return fs.SkipDir
		}
		if err == nil && d.Type().IsRegular() {
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// checkMachinePaths looks for machinePath, and for here, the folder the tests run
// in, in the named files. A here of one element (such as /src) is a word that may
// mean anything and is not looked for.
func checkMachinePaths(fsys fs.FS, names []string, here string) ([]string, error) {
	if strings.Count(here, "/") < 2 {
		here = ""
	}
	var problems []string
	for _, name := range names {
		info, err := fs.Lstat(fsys, name)
		if err != nil || !info.Mode().IsRegular() {
			continue // deleted but still in the index, or a symbolic link
		}
		content, err := fs.ReadFile(fsys, name)
		if err != nil {
			return nil, err
		}
		if bytes.IndexByte(content, 0) >= 0 {
			continue // not text
		}
		for i, line := range strings.Split(string(content), "\n") {
			if machinePath.MatchString(line) || here != "" && strings.Contains(line, here) {
				problems = append(problems, fmt.Sprintf("%s:%d: a path of a build machine: %s", name, i+1, strings.TrimSpace(line)))
			}
		}
	}
	return problems, nil
}

func TestCheckMachinePaths(t *testing.T) {
	const slash = "/" // keeps this file free of what it looks for
	tests := map[string]struct {
		line string
		here string
		want []string
	}{
		"relative":          {"see docs/work/list.md and network/", "/x/y", nil},
		"in a URL":          {"https://example.com" + slash + "work/list", "/x/y", nil},
		"work":              {"cd " + slash + "work/main", "/x/y", []string{"f:2: a path"}},
		"at the start":      {slash + "work/main", "/x/y", []string{"f:2:"}},
		"quoted":            {`"` + slash + `work/main"`, "/x/y", []string{"f:2:"}},
		"module cache":      {"in " + slash + "root/go/pkg/mod", "/x/y", []string{"f:2:"}},
		"here":              {"built in /x/y/z", "/x/y", []string{"f:2:"}},
		"here is ambiguous": {"built in /src/z", "/src", nil},
		"not text":          {slash + "work/main\x00", "/x/y", nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			fsys := mapFS(map[string]string{"f": "first\n" + tt.line + "\n"})
			got, err := checkMachinePaths(fsys, []string{"f", "gone"}, tt.here)
			if err != nil {
				t.Fatal(err)
			}
			wantProblems(t, got, tt.want)
		})
	}
}
