package policy

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strings"
	"unicode"
)

// Problem is one fault of a policy or settings file, or a notice about it.
type Problem struct {
	// File is the name as given to [Compile] or [DecodeYAML].
	File string
	// Line and Column count from 1; 0 means the whole file.
	Line, Column int
	// Path is the key's path inside the file, such as
	// profiles.commands.allow[2].host; "" for the whole file.
	Path string
	// Msg says what is wrong, Hint how to mend it; Hint may be empty.
	Msg, Hint string
	// Source is the line's text, shown with a caret below the column. Of a long
	// line it is the part around the column.
	Source string

	caret int // column of the caret in Source if that is not Column
}

// Error is the problem in one to three lines: place, path, message and hint,
// then the line itself with a caret.
func (p Problem) Error() string {
	var b strings.Builder
	b.WriteString(p.File)
	if p.Line > 0 {
		fmt.Fprintf(&b, ":%d:%d", p.Line, p.Column)
	}
	b.WriteString(": ")
	if p.Path != "" {
		b.WriteString(p.Path + ": ")
	}
	b.WriteString(p.Msg)
	if p.Hint != "" {
		b.WriteString(" (" + p.Hint + ")")
	}
	if p.Source != "" && p.Line > 0 {
		fmt.Fprintf(&b, "\n%5d | %s", p.Line, p.Source)
		// A value that is missing stands behind the end of the line.
		col := min(cmp.Or(p.caret, p.Column, 1), len([]rune(p.Source))+1)
		b.WriteString("\n      | " + strings.Repeat(" ", col-1) + "^")
	}
	return b.String()
}

// Problems are all faults of a load. It is an error when it is not empty.
type Problems []Problem

// Error joins the problems, one after the other.
func (ps Problems) Error() string {
	parts := make([]string, len(ps))
	for i, p := range ps {
		parts[i] = p.Error()
	}
	return strings.Join(parts, "\n")
}

// errOrNil avoids an error interface that holds an empty list.
func (ps Problems) errOrNil() error {
	if len(ps) == 0 {
		return nil
	}
	return ps
}

// maxProblems bounds what is reported of one file: a file of another kind, or a
// hostile one, would otherwise give more text than anybody reads.
const maxProblems = 50

// faults collects the problems of one file, up to maxProblems.
type faults struct {
	file  string
	text  sourceText
	list  Problems
	more  bool // some were left out
	paths map[string]bool
	// unknown holds, by the path of the mapping, what its unknown keys probably
	// meant, "" for one that resembles no key.
	unknown map[string][]string
}

func newFaults(file string) *faults {
	return &faults{file: file, paths: map[string]bool{}, unknown: map[string][]string{}}
}

// stop tells that there are more problems than are shown: then it is a waste of
// time to look for others.
func (f *faults) stop() bool { return f.more }

func (f *faults) add(pos Position, path, hint, format string, args ...any) {
	f.paths[path] = true
	if len(f.list) == maxProblems {
		f.more = true
		return
	}
	f.list = append(f.list, f.problem(pos, path, hint, format, args...))
}

func (f *faults) problem(pos Position, path, hint, format string, args ...any) Problem {
	p := Problem{
		File: f.file, Line: pos.Line, Column: pos.Column, Path: path,
		Msg: fmt.Sprintf(format, args...), Hint: hint,
	}
	p.Source, p.caret = excerpt(f.text.line(pos.Line), pos.Column)
	return p
}

// has tells whether the value at the path, or one that it stands in, has a
// problem already: a value that could not be decoded would fail every later
// check too.
func (f *faults) has(path string) bool {
	for i := 1; i < len(path); i++ {
		if (path[i] == '.' || path[i] == '[') && f.paths[path[:i]] {
			return true
		}
	}
	return path != "" && f.paths[path]
}

// all returns the problems in the order of their lines.
func (f *faults) all() Problems {
	slices.SortStableFunc(f.list, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	if f.more {
		return append(f.list, Problem{File: f.file, Msg: "there is more that is not shown"})
	}
	return f.list
}

// sourceText finds the lines of a file for problems.
type sourceText struct {
	data   string
	starts []int // of the lines
}

func newSourceText(data string) sourceText {
	t := sourceText{data: data, starts: []int{0}}
	for i := 0; i < len(data); i++ {
		if data[i] == '\n' {
			t.starts = append(t.starts, i+1)
		}
	}
	return t
}

// line is the text of line n, which counts from 1; "" if there is none.
func (t sourceText) line(n int) string {
	if n < 1 || n > len(t.starts) {
		return ""
	}
	rest := t.data[t.starts[n-1]:]
	if i := strings.IndexByte(rest, '\n'); i >= 0 {
		rest = rest[:i]
	}
	return rest
}

// place is the position of the byte at offset i.
func (t sourceText) place(i int) Position {
	n := sort.SearchInts(t.starts, i+1)
	return Position{n, 1 + len([]rune(t.data[t.starts[n-1]:i]))}
}

// excerpt is what a problem shows of a line: all of it, or the part around the
// column, with the caret's column in it. Tabs are shown as one space and what
// could drive or deceive a terminal as a dot.
func excerpt(line string, column int) (shown string, caret int) {
	const most = 120
	runes := []rune(line)
	start, end := 0, len(runes)
	caret = column
	if len(runes) > most {
		start = min(max(column-1-most/2, 0), len(runes)-most)
		end = start + most
		caret = column - start
	}
	out := make([]rune, 0, most+2)
	if start > 0 {
		out = append(out, '…')
		caret++
	}
	for _, r := range runes[start:end] {
		switch {
		case r == '\t':
			r = ' '
		case !plainRune(r):
			r = '.'
		}
		out = append(out, r)
	}
	if end < len(runes) {
		out = append(out, '…')
	}
	return string(out), caret
}

// plainRune tells whether r shows as itself: not a control character, not one
// that changes the direction of the text, breaks the line or is invisible.
func plainRune(r rune) bool { return r != unicode.ReplacementChar && unicode.IsPrint(r) }

// printable keeps messages on one line of sane length, whatever the file holds.
func printable(s string) string {
	const most = 60
	out := make([]rune, 0, min(len(s), most+1))
	for _, r := range s {
		if len(out) == most {
			return string(append(out, '…'))
		}
		if r > 0x7e || !plainRune(r) {
			r = '.'
		}
		out = append(out, r)
	}
	return string(out)
}

// nearest returns the candidate closest to s, "" when none is near.
func nearest(s string, candidates []string) string {
	if len(s) > 64 {
		return ""
	}
	best, bestDist := "", len(s)/2+1
	for _, c := range candidates {
		if d := distance(strings.ToLower(s), c); d < bestDist {
			best, bestDist = c, d
		}
	}
	return best
}

// distance is the Levenshtein distance.
func distance(a, b string) int {
	prev := make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diag := prev[0]
		prev[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			cur := min(prev[j]+1, prev[j-1]+1, diag+cost)
			diag, prev[j] = prev[j], cur
		}
	}
	return prev[len(b)]
}
