package sluicegate

import (
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestTestFilesHaveGoodHabits(t *testing.T) {
	files := repository(t)
	report(t, checkSkips(files))
	report(t, checkSleeps(files))
}

// checkSkips wants a reason with each skip of a test: a skipped test looks like a
// passed one. Only values of package testing count: a Skip of rapid, which
// discards one draw, is another thing.
func checkSkips(files []goFile) []string {
	var problems []string
	for _, f := range files {
		pkg := f.localName("testing")
		if !f.test || pkg == "" {
			continue
		}
		ast.Walk(&skipVisitor{file: f, testing: pkg, problems: &problems}, f.ast)
	}
	return problems
}

// skipVisitor walks a file and knows, inside each function, which parameter names
// are tests. A function literal inherits the names of the function around it.
type skipVisitor struct {
	file     goFile
	testing  string // local name of package testing
	tests    []string
	problems *[]string
}

func (v *skipVisitor) Visit(n ast.Node) ast.Visitor {
	switch n := n.(type) {
	case *ast.FuncDecl:
		return v.inside(n.Type)
	case *ast.FuncLit:
		return v.inside(n.Type)
	case *ast.CallExpr:
		v.call(n)
	}
	return v
}

func (v *skipVisitor) inside(fn *ast.FuncType) *skipVisitor {
	inner := *v
	inner.tests = slices.Clone(v.tests)
	for _, field := range fn.Params.List {
		for _, name := range field.Names {
			inner.tests = slices.DeleteFunc(inner.tests, func(s string) bool { return s == name.Name })
			if v.isTest(field.Type) {
				inner.tests = append(inner.tests, name.Name)
			}
		}
	}
	return &inner
}

// isTest tells whether t is *testing.T, *testing.B, *testing.F or testing.TB.
func (v *skipVisitor) isTest(t ast.Expr) bool {
	if star, ok := t.(*ast.StarExpr); ok {
		t = star.X
	}
	sel, ok := t.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	pkg, ok := sel.X.(*ast.Ident)
	return ok && pkg.Name == v.testing && slices.Contains([]string{"T", "B", "F", "TB"}, sel.Sel.Name)
}

func (v *skipVisitor) call(call *ast.CallExpr) {
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return
	}
	if recv, ok := sel.X.(*ast.Ident); !ok || !slices.Contains(v.tests, recv.Name) {
		return
	}
	switch sel.Sel.Name {
	case "SkipNow":
	case "Skip", "Skipf":
		if len(call.Args) > 0 && !blank(call.Args[0]) {
			return
		}
	default:
		return
	}
	*v.problems = append(*v.problems, fmt.Sprintf("%s: %s without a reason; say what the test needs, or delete it",
		v.file.at(call), sel.Sel.Name))
}

// blank tells whether e is a literal string without a word in it.
func blank(e ast.Expr) bool {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return false
	}
	s, err := strconv.Unquote(lit.Value)
	return err == nil && strings.TrimSpace(s) == ""
}

func TestCheckSkips(t *testing.T) {
	const head = "package p\n\nimport \"testing\"\n\n"
	tests := map[string]struct {
		src  string
		want []string
	}{
		"with a reason":    {head + `func TestA(t *testing.T) { t.Skip("needs root") }`, nil},
		"with a format":    {head + `func TestA(t *testing.T) { t.Skipf("needs %d", 1) }`, nil},
		"with a value":     {head + `func TestA(t *testing.T) { t.Skip(reason) }`, nil},
		"bare":             {head + `func TestA(t *testing.T) { t.Skip() }`, []string{"a_test.go:5: Skip without"}},
		"SkipNow":          {head + `func TestA(t *testing.T) { t.SkipNow() }`, []string{"SkipNow without"}},
		"empty":            {head + `func TestA(t *testing.T) { t.Skip(" ") }`, []string{"Skip without"}},
		"empty format":     {head + `func TestA(t *testing.T) { t.Skipf("") }`, []string{"Skipf without"}},
		"benchmark":        {head + `func BenchmarkA(b *testing.B) { b.Skip() }`, []string{"Skip without"}},
		"fuzz body":        {head + `func FuzzA(f *testing.F) { f.Fuzz(func(t *testing.T, s string) { t.Skip() }) }`, []string{"Skip without"}},
		"helper":           {head + `func need(tb testing.TB) { tb.Skip() }`, []string{"Skip without"}},
		"method":           {head + `func (w world) need(tb testing.TB) { tb.Skip() }`, []string{"Skip without"}},
		"in a closure":     {head + `func TestA(t *testing.T) { f := func() { t.Skip() }; f() }`, []string{"Skip without"}},
		"another t inside": {head + `func TestA(t *testing.T) { check(func(t *rapid.T) { t.Skip() }) }`, nil},
		"and out again":    {head + `func TestA(t *testing.T) { check(func(t *rapid.T) {}); t.Skip() }`, []string{"Skip without"}},
		"another Skip":     {head + `func TestA(t *testing.T) { s.Skip() }`, nil},
		"renamed": {
			"package p\n\nimport tt \"testing\"\n\nfunc TestA(t *tt.T) { t.Skip() }",
			[]string{"Skip without"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			wantProblems(t, checkSkips(tree(t, map[string]string{"proxy/a_test.go": tt.src})), tt.want)
		})
	}
}

// checkSleeps finds time.Sleep in test files: a test that sleeps is slow where it
// is right and fails where the machine is slow. Inside the function handed to
// synctest.Test the clock is a fake one that a sleep moves on, so there it is fine.
func checkSleeps(files []goFile) []string {
	var problems []string
	for _, f := range files {
		clock := f.localName("time")
		if !f.test || clock == "" {
			continue
		}
		synctest := f.localName("testing/synctest")
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok && synctest != "" && isSelector(call.Fun, synctest, "Test") {
				return false
			}
			if sel, ok := n.(ast.Expr); ok && isSelector(sel, clock, "Sleep") {
				problems = append(problems, f.at(sel)+": time.Sleep in a test; wait for what the test needs, or use testing/synctest")
			}
			return true
		})
	}
	return problems
}

// isSelector tells whether e is pkg.name.
func isSelector(e ast.Expr, pkg, name string) bool {
	sel, ok := e.(*ast.SelectorExpr)
	if !ok || sel.Sel.Name != name {
		return false
	}
	id, ok := sel.X.(*ast.Ident)
	return ok && id.Name == pkg
}

func TestCheckSleeps(t *testing.T) {
	const head = "package p\n\nimport (\n\t\"testing/synctest\"\n\t\"time\"\n)\n\n"
	tests := map[string]struct {
		name, src string
		want      []string
	}{
		"no sleep":        {"a_test.go", head + `func f() { <-time.After(time.Second) }`, nil},
		"a sleep":         {"a_test.go", head + `func f() { time.Sleep(1) }`, []string{"a_test.go:8: time.Sleep"}},
		"as a value":      {"a_test.go", head + `var wait = time.Sleep`, []string{"time.Sleep"}},
		"another Sleep":   {"a_test.go", head + `func f() { clock.Sleep(1) }`, nil},
		"not a test file": {"a.go", head + `func f() { time.Sleep(1) }`, nil},
		"fake clock":      {"a_test.go", head + `func f() { synctest.Test(t, func(t *testing.T) { go func() { time.Sleep(1) }() }) }`, nil},
		"beside it": {
			"a_test.go", head + `func f() { synctest.Test(t, g); synctest.Wait(); time.Sleep(1) }`,
			[]string{"time.Sleep"},
		},
		"renamed": {
			"a_test.go", "package p\n\nimport clock \"time\"\n\nfunc f() { clock.Sleep(1) }",
			[]string{"time.Sleep"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			wantProblems(t, checkSleeps(tree(t, map[string]string{tt.name: tt.src})), tt.want)
		})
	}
}
