package sluicegate

import (
	"fmt"
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// anything in room.may lifts the direction rule for a room.
const anything = "*"

// room says what the code of a folder, and of the folders below it, may import of
// ours. Its own folder is always allowed. The rule of the longest matching folder
// counts.
type room struct {
	folder string
	may    []string // folders, with those below them
	tests  []string // folders that its test files may import besides
	why    string   // completes "..., because"
}

// rooms holds every folder with Go files. A folder that is not covered fails the
// test, and so does a rule for a folder that is gone.
var rooms = []room{
	{
		".", nil, nil,
		"the root package holds the overview and the tests of the tree, no code",
	},
	{
		"policy", nil,
		[]string{"configs"},
		"the decision is pure: every surface, the linter and the replay must be able to ask it without a daemon around",
	},
	{
		"audit",
		[]string{"policy"},
		[]string{"configs"},
		"the record of a decision must not depend on how the request came in",
	},
	{
		"dnsguard",
		[]string{"policy", "audit"},
		[]string{"configs"},
		"names are looked up below the proxy and do not know about connections",
	},
	{
		"proxy",
		[]string{"policy", "audit"},
		[]string{"configs"},
		"it declares the Resolver and the Identifier it needs, and internal/daemon hands them in",
	},
	{
		"configs", nil,
		[]string{"policy"},
		"it is the shipped files and no logic",
	},
	{
		"internal/identity",
		[]string{"policy", "audit"},
		nil,
		"who is calling is evidence for a decision and knows of no proxy",
	},
	{
		"internal/control",
		[]string{"policy", "audit", "internal/identity"},
		nil,
		"the local API serves what internal/daemon hands in and does not start anything itself",
	},
	{
		"internal/pair", nil,
		nil,
		"what other programs are told, and whether they obey, must be testable for every system without a gate around",
	},
	{
		"internal/daemon",
		[]string{"policy", "audit", "dnsguard", "proxy", "configs", "internal"},
		nil,
		"it wires the rooms together and is itself only started by a command",
	},
	{
		"cmd/sluicegate",
		[]string{anything},
		nil,
		"commands may use every room",
	},
}

// owned is a folder that only a few may import, in tests as well.
type owned struct {
	folder    string
	importers []string // besides the folder itself
	why       string
}

var ownedRooms = []owned{
	{
		"cmd", nil,
		"a command parses flags and prints; what others need belongs in a room",
	},
	{
		"internal/daemon",
		[]string{"cmd"},
		"there is one place that wires everything, and a room that reaches up to it closes a circle",
	},
}

// library is a rule for one imported package; if its path has a dot, for the
// packages below it as well (log and log/slog are two things).
type library struct {
	path  string
	only  []string // folders that may import it; nil for any
	never []string // folders that may not
	files int      // how many files that are not tests import it, exactly; 0 for any number
	tests bool     // test files are bound too
	used  bool     // fail if no file imports it any more: then the rule is out of date
	why   string
}

var libraries = []library{
	{
		path: "github.com/elazarl/goproxy", only: []string{"proxy"}, files: 1, used: true,
		why: "what the library does by default must be undone in one place that can be read at once",
	},
	{
		path: "github.com/miekg/dns", only: []string{"dnsguard"},
		why: "names on the wire are converted where they come in, and the rest uses the policy's form",
	},
	{
		path: "log", only: []string{"cmd"}, tests: true,
		why: "it writes through a logger that everybody shares; take a *slog.Logger",
	},
	{
		path: "log/slog", never: []string{"policy"}, tests: true,
		why: "the decision is pure: it returns its reason and writes nothing",
	},
	{
		path: "github.com/lmittmann/tint", only: []string{"cmd", "internal/daemon"},
		why: "only who knows what the terminal is chooses how a log line looks",
	},
}

func TestImportsGoOneWay(t *testing.T) {
	files := repository(t)
	report(t, checkDirection(files, rooms))
	report(t, checkOwned(files, ownedRooms))
	report(t, checkLibraries(files, libraries))
	report(t, checkDefaultLogger(files))
}

// within tells whether dir is folder or below it. Below "." is only "." itself.
func within(dir, folder string) bool {
	return dir == folder || folder != "." && strings.HasPrefix(dir, folder+"/")
}

func withinAny(dir string, folders []string) bool {
	return slices.ContainsFunc(folders, func(folder string) bool { return within(dir, folder) })
}

// exists tells whether folder, or one below it, has a Go file.
func exists(files []goFile, folder string) bool {
	return slices.ContainsFunc(files, func(f goFile) bool { return within(f.dir, folder) })
}

// ourFolder is the folder of an imported package of this module.
func ourFolder(importPath string) (folder string, ours bool) {
	if importPath == modulePath {
		return ".", true
	}
	return strings.CutPrefix(importPath, modulePath+"/")
}

// roomOf is the rule with the longest folder that dir is within.
func roomOf(dir string, rooms []room) (room, bool) {
	best, found := room{}, false
	for _, r := range rooms {
		if within(dir, r.folder) && (!found || len(r.folder) > len(best.folder)) {
			best, found = r, true
		}
	}
	return best, found
}

func checkDirection(files []goFile, rooms []room) []string {
	var problems []string
	for _, r := range rooms {
		for _, folder := range slices.Concat([]string{r.folder}, r.may, r.tests) {
			if folder != anything && !exists(files, folder) {
				problems = append(problems, fmt.Sprintf("the rule for %s names %s, which has no Go file", r.folder, folder))
			}
		}
	}
	for _, f := range files {
		r, ok := roomOf(f.dir, rooms)
		if !ok {
			problems = append(problems, f.name+": no rule says what "+f.dir+" may import; add one, with the reason")
			continue
		}
		may := r.may
		if f.test {
			may = slices.Concat(r.may, r.tests)
		}
		if slices.Contains(may, anything) {
			continue
		}
		for _, imported := range f.imports() {
			to, ours := ourFolder(imported)
			if !ours || within(to, r.folder) || withinAny(to, may) {
				continue
			}
			allowed := "nothing of ours"
			if len(may) > 0 {
				allowed = "only " + strings.Join(may, ", ")
			}
			problems = append(problems, fmt.Sprintf("%s imports %s; %s may import %s, because %s", f.name, to, r.folder, allowed, r.why))
		}
	}
	return problems
}

func checkOwned(files []goFile, rooms []owned) []string {
	var problems []string
	for _, o := range rooms {
		for _, folder := range slices.Concat([]string{o.folder}, o.importers) {
			if !exists(files, folder) {
				problems = append(problems, fmt.Sprintf("the rule for importers of %s names %s, which has no Go file", o.folder, folder))
			}
		}
		for _, f := range files {
			if within(f.dir, o.folder) || withinAny(f.dir, o.importers) {
				continue
			}
			for _, imported := range f.imports() {
				if to, ours := ourFolder(imported); ours && within(to, o.folder) {
					who := "nobody else"
					if len(o.importers) > 0 {
						who = "besides itself only " + strings.Join(o.importers, ", ")
					}
					problems = append(problems, fmt.Sprintf("%s imports %s, which %s may, because %s", f.name, to, who, o.why))
				}
			}
		}
	}
	return problems
}

func (l library) matches(importPath string) bool {
	return importPath == l.path || strings.Contains(l.path, ".") && strings.HasPrefix(importPath, l.path+"/")
}

func checkLibraries(files []goFile, libraries []library) []string {
	var problems []string
	for _, l := range libraries {
		for _, folder := range slices.Concat(l.only, l.never) {
			if !exists(files, folder) {
				problems = append(problems, fmt.Sprintf("the rule for %s names %s, which has no Go file", l.path, folder))
			}
		}
		var importers []string
		for _, f := range files {
			if !slices.ContainsFunc(f.imports(), l.matches) {
				continue
			}
			if f.test && !l.tests {
				continue
			}
			if !f.test {
				importers = append(importers, f.name)
			}
			switch {
			case withinAny(f.dir, l.never):
				problems = append(problems, fmt.Sprintf("%s imports %s, which %s must not, because %s",
					f.name, l.path, strings.Join(l.never, ", "), l.why))
			case l.only != nil && !withinAny(f.dir, l.only):
				problems = append(problems, fmt.Sprintf("%s imports %s, which only %s may, because %s",
					f.name, l.path, strings.Join(l.only, ", "), l.why))
			}
		}
		switch {
		case l.used && len(importers) == 0:
			problems = append(problems, "no file imports "+l.path+" any more; drop its rule")
		case l.files > 0 && len(importers) > l.files:
			problems = append(problems, fmt.Sprintf("%s are %d files that import %s; %d may, because %s",
				strings.Join(importers, ", "), len(importers), l.path, l.files, l.why))
		}
	}
	return problems
}

// defaultLogger are the functions of log/slog that read or replace the logger of
// the whole process.
var defaultLogger = []string{
	"Debug", "DebugContext", "Info", "InfoContext", "Warn", "WarnContext", "Error", "ErrorContext",
	"Log", "LogAttrs", "With", "Default", "SetDefault", "SetLogLoggerLevel",
}

func checkDefaultLogger(files []goFile) []string {
	var problems []string
	for _, f := range files {
		slog := f.localName("log/slog")
		if slog == "" || within(f.dir, "cmd") {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok || !slices.Contains(defaultLogger, sel.Sel.Name) {
				return true
			}
			if id, ok := sel.X.(*ast.Ident); ok && id.Name == slog {
				problems = append(problems, fmt.Sprintf(
					"%s: slog.%s uses the logger of the whole process; only a command may, others are handed a *slog.Logger",
					f.at(sel), sel.Sel.Name))
			}
			return true
		})
	}
	return problems
}

// importing is a Go file that imports paths and does nothing.
func importing(paths ...string) string {
	var b strings.Builder
	b.WriteString("package p\n")
	for _, p := range paths {
		fmt.Fprintf(&b, "import _ %q\n", p)
	}
	return b.String()
}

// smallHouse is a tree in which all is well; edits are laid over it.
func smallHouse(t *testing.T, edits map[string]string) []goFile {
	files := map[string]string{
		"policy/a.go":           importing("net/netip"),
		"policy/a_test.go":      importing("sluicegate/policy", "sluicegate/configs"),
		"audit/a.go":            importing("sluicegate/policy"),
		"audit/audittest/a.go":  importing("sluicegate/audit", "sluicegate/policy"),
		"proxy/a.go":            importing("sluicegate/audit", "example.com/lib"),
		"internal/daemon/a.go":  importing("sluicegate/policy", "sluicegate/proxy"),
		"cmd/sluicegate/a.go":   importing("sluicegate/internal/daemon", "log"),
		"configs/embed.go":      importing("embed"),
		"audit/testdata/bad.go": importing("sluicegate/proxy"),
	}
	for name, content := range edits {
		if content == "" {
			delete(files, name)
			continue
		}
		files[name] = content
	}
	return tree(t, files)
}

func TestCheckDirection(t *testing.T) {
	rules := []room{
		{"policy", nil, []string{"configs"}, "it is pure"},
		{"audit", []string{"policy"}, nil, "it is a record"},
		{"proxy", []string{"policy", "audit"}, nil, "it is handed the rest"},
		{"configs", nil, nil, "it is files"},
		{"internal/daemon", []string{"policy", "audit", "proxy"}, nil, "it wires"},
		{"cmd/sluicegate", []string{anything}, nil, "it may"},
	}
	tests := map[string]struct {
		edits map[string]string
		want  []string
	}{
		"all is well": {nil, nil},
		"policy imports audit": {
			map[string]string{"policy/b.go": importing("sluicegate/audit")},
			[]string{"policy/b.go imports audit; policy may import nothing of ours, because it is pure"},
		},
		"on one system only": {
			map[string]string{"policy/b_windows.go": "//go:build windows && never\n\n" + importing("sluicegate/audit")},
			[]string{"policy/b_windows.go imports audit"},
		},
		"upwards": {
			map[string]string{"audit/b.go": importing("sluicegate/proxy")},
			[]string{"audit/b.go imports proxy; audit may import only policy, because it is a record"},
		},
		"from below": {
			map[string]string{"audit/audittest/b.go": importing("sluicegate/proxy")},
			[]string{"audit/audittest/b.go imports proxy"},
		},
		"into below": {
			map[string]string{"policy/b.go": importing("sluicegate/audit/audittest")},
			[]string{"policy/b.go imports audit/audittest"},
		},
		"what only tests may": {
			map[string]string{"policy/b.go": importing("sluicegate/configs")},
			[]string{"policy/b.go imports configs"},
		},
		"what tests may not either": {
			map[string]string{"policy/b_test.go": importing("sluicegate/proxy")},
			[]string{"policy/b_test.go imports proxy; policy may import only configs"},
		},
		"the root": {
			map[string]string{"policy/b.go": importing("sluicegate")},
			[]string{"policy/b.go imports ."},
		},
		"a name that only begins alike": {
			map[string]string{"policy/b.go": importing("sluicegatesomething/audit", "sluicegate.example/audit")},
			nil,
		},
		"a folder without a rule": {
			map[string]string{"policy2/a.go": importing("embed")},
			[]string{"no rule says what policy2 may import"},
		},
		"a rule without a folder": {
			map[string]string{"proxy/a.go": ""},
			[]string{
				"the rule for proxy names proxy, which has no Go file",
				"the rule for internal/daemon names proxy, which has no Go file",
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			wantProblems(t, checkDirection(smallHouse(t, tt.edits), rules), tt.want)
		})
	}
}

func TestCheckOwned(t *testing.T) {
	rules := []owned{
		{"cmd", nil, "it is a command"},
		{"internal/daemon", []string{"cmd"}, "it is the top"},
	}
	tests := map[string]struct {
		edits map[string]string
		want  []string
	}{
		"all is well": {nil, nil},
		"cmd is imported": {
			map[string]string{"internal/daemon/b.go": importing("sluicegate/cmd/sluicegate")},
			[]string{"internal/daemon/b.go imports cmd/sluicegate, which nobody else may, because it is a command"},
		},
		"cmd imports below itself": {
			map[string]string{"cmd/sluicegate/b.go": importing("sluicegate/cmd/sluicegate/internal/flags")},
			nil,
		},
		"daemon is imported": {
			map[string]string{"proxy/b.go": importing("sluicegate/internal/daemon")},
			[]string{"proxy/b.go imports internal/daemon, which besides itself only cmd may, because it is the top"},
		},
		"by a test": {
			map[string]string{"proxy/b_test.go": importing("sluicegate/internal/daemon/world")},
			[]string{"proxy/b_test.go imports internal/daemon/world"},
		},
		"a folder is gone": {
			map[string]string{"cmd/sluicegate/a.go": ""},
			[]string{"importers of cmd names cmd,", "importers of internal/daemon names cmd,"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			wantProblems(t, checkOwned(smallHouse(t, tt.edits), rules), tt.want)
		})
	}
}

func TestCheckLibraries(t *testing.T) {
	rules := []library{
		{path: "example.com/lib", only: []string{"proxy"}, files: 1, used: true, why: "it is tamed there"},
		{path: "log", only: []string{"cmd"}, tests: true, why: "it is shared"},
		{path: "log/slog", never: []string{"policy"}, tests: true, why: "it is pure"},
	}
	tests := map[string]struct {
		edits map[string]string
		want  []string
	}{
		"all is well": {nil, nil},
		"outside its folder": {
			map[string]string{"proxy/a.go": importing("embed"), "audit/b.go": importing("example.com/lib")},
			[]string{"audit/b.go imports example.com/lib, which only proxy may, because it is tamed there"},
		},
		"a package below it": {
			map[string]string{"proxy/a.go": importing("embed"), "audit/b.go": importing("example.com/lib/ext")},
			[]string{"audit/b.go imports example.com/lib"},
		},
		"a second file": {
			map[string]string{"proxy/b.go": importing("example.com/lib")},
			[]string{"proxy/a.go, proxy/b.go are 2 files that import example.com/lib; 1 may"},
		},
		"a test is free": {
			map[string]string{"audit/b_test.go": importing("example.com/lib")},
			nil,
		},
		"a test is bound": {
			map[string]string{"audit/b_test.go": importing("log")},
			[]string{"audit/b_test.go imports log, which only cmd may"},
		},
		"log is not log/slog": {
			map[string]string{"audit/b.go": importing("log/slog")},
			nil,
		},
		"a logger in policy": {
			map[string]string{"policy/b.go": importing("log/slog")},
			[]string{"policy/b.go imports log/slog, which policy must not, because it is pure"},
		},
		"no longer used": {
			map[string]string{"proxy/a.go": importing("embed")},
			[]string{"no file imports example.com/lib any more"},
		},
		"a folder is gone": {
			map[string]string{"cmd/sluicegate/a.go": ""},
			[]string{"the rule for log names cmd, which has no Go file"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			wantProblems(t, checkLibraries(smallHouse(t, tt.edits), rules), tt.want)
		})
	}
}

func TestCheckDefaultLogger(t *testing.T) {
	const head = "package p\n\nimport \"log/slog\"\n\n"
	tests := map[string]struct {
		name, src string
		want      []string
	}{
		"a logger handed in": {"proxy/a.go", head + `func f(l *slog.Logger) { l.Info("x", slog.String("a", "b")) }`, nil},
		"a call":             {"proxy/a.go", head + `func f() { slog.Info("x") }`, []string{"proxy/a.go:5: slog.Info"}},
		"as a value":         {"proxy/a.go", head + `var l = slog.Default`, []string{"proxy/a.go:5: slog.Default"}},
		"in a test":          {"proxy/a_test.go", head + `func f() { slog.SetDefault(nil) }`, []string{"slog.SetDefault"}},
		"renamed":            {"proxy/a.go", "package p\n\nimport l \"log/slog\"\n\nfunc f() { l.Warn(\"x\") }", []string{"slog.Warn"}},
		"in a command":       {"cmd/sluicegate/a.go", head + `func f() { slog.Info("x") }`, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			wantProblems(t, checkDefaultLogger(tree(t, map[string]string{tt.name: tt.src})), tt.want)
		})
	}
}
