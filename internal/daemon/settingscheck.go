package daemon

import (
	"bytes"
	"fmt"
	"strings"
	"unicode"

	"sluicegate/policy"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// settingsCheck gathers the faults of values that were decoded well but do not
// make sense.
type settingsCheck struct {
	file     string
	lines    []string
	doc      *ast.File // nil places everything at the start of the file
	problems policy.Problems
}

// newSettingsCheck takes the content of a file that policy.DecodeYAML has
// accepted: the parser sees no hostile input here.
func newSettingsCheck(file string, data []byte) *settingsCheck {
	// The parser counts some lines that end in CR LF twice.
	data = bytes.ReplaceAll(bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")), []byte("\r\n"), []byte("\n"))
	c := &settingsCheck{file: file, lines: strings.Split(string(data), "\n")}
	if doc, err := parser.ParseBytes(data, 0); err == nil {
		c.doc = doc
	}
	return c
}

// fail adds a problem with the value at path, such as audit.rotate.size.
func (c *settingsCheck) fail(path, hint, format string, args ...any) {
	p := policy.Problem{File: c.file, Path: path, Hint: hint, Msg: fmt.Sprintf(format, args...)}
	p.Line, p.Column = c.place(path)
	p.Source = c.source(p.Line)
	c.problems = append(c.problems, p)
}

// place finds the value at path; a value that is not there is missed at the
// start of the file.
func (c *settingsCheck) place(path string) (line, column int) {
	if p, err := yaml.PathString("$." + path); err == nil && c.doc != nil {
		if n, err := p.FilterFile(c.doc); err == nil && n != nil && n.GetToken() != nil {
			pos := n.GetToken().Position
			return pos.Line, pos.Column
		}
	}
	return 1, 1
}

// source is a line as it may be shown on a terminal, above a caret.
func (c *settingsCheck) source(line int) string {
	const maxShown = 120
	text := []rune(c.lines[line-1])
	for i, r := range text {
		switch {
		case r == '\t':
			text[i] = ' '
		case !unicode.IsPrint(r):
			text[i] = '.'
		}
	}
	return string(text[:min(len(text), maxShown)])
}
