package policy

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// MaxFileSize is the largest policy or settings file, in bytes.
const MaxFileSize = 1 << 20

const (
	emptyFile = "an interrupted write? To deny everything write the keys with empty lists"
	byteOrder = "\xef\xbb\xbf"
)

// parse checks the raw bytes and tokens and returns the document's root, nil
// when there is a problem.
func (d *decoder) parse(data []byte) (body ast.Node) {
	// The library has panicked on hostile input before; a file must never end
	// the daemon.
	defer func() {
		if r := recover(); r != nil {
			d.add(Position{}, "", "", "the file can not be parsed as YAML")
			body = nil
		}
	}()
	if !d.readable(data) || !d.bounded() {
		return nil
	}
	tokens := lexer.Tokenize(d.text.data)
	if !d.checkTokens(tokens) || !d.checkShape(tokens) {
		return nil
	}
	// Duplicate keys are found by the decoder with their place, together with
	// all else.
	f, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		d.syntax(err)
		return nil
	}
	var docs []*ast.DocumentNode
	for _, doc := range f.Docs {
		if doc.Body != nil && doc.Body.Type() != ast.CommentType {
			docs = append(docs, doc)
		}
	}
	switch len(docs) {
	case 0:
		d.add(Position{}, "", emptyFile, "the file holds nothing but comments")
		return nil
	case 1:
		return docs[0].Body
	default:
		d.add(position(docs[1].Body), "", "put it into a file of its own", "the file has a second document")
		return nil
	}
}

// readable checks size and characters and sets the text, with line ends of one
// kind: the library miscounts others inside quotes.
func (d *decoder) readable(data []byte) bool {
	if len(data) > MaxFileSize {
		d.add(Position{}, "", "split it, or move long host lists into group files", "the file is larger than 1 MiB")
		return false
	}
	s := strings.ReplaceAll(strings.TrimPrefix(string(data), byteOrder), "\r\n", "\n")
	switch {
	case strings.TrimSpace(s) == "":
		d.add(Position{}, "", emptyFile, "the file is empty")
		return false
	case !utf8.ValidString(s):
		d.add(Position{}, "", "save it as UTF-8", "the file is not valid UTF-8")
		return false
	}
	d.text = newSourceText(s)
	if i := strings.IndexFunc(s, deceptive); i >= 0 {
		d.add(d.text.place(i), "", "remove it", "the file has a control character")
		return false
	}
	return true
}

// deceptive tells whether a file must not hold r: control characters, line
// breaks that only some programs see, and marks that make the text read
// otherwise than it is (Unicode Technical Report 36, section 3.9).
func deceptive(r rune) bool {
	switch {
	case r == '\n', r == '\t':
		return false
	case r == 0x2028, r == 0x2029, r == 0xfeff:
		return true
	default:
		return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)
	}
}

// What no real file comes near, and what the library needs quadratic time or
// deep recursion for.
const (
	maxDepth      = 16  // collections inside each other
	maxKeys       = 512 // keys of one mapping that is written without braces
	maxKeyLength  = 256 // bytes
	maxMissing    = 100 // keys and list items without a value
	maxBlankLines = 50  // in a row
	maxTabs       = 100 // in a line
	maxAngles     = 100 // "<" in a row
)

// bounded refuses what the library's scanner needs quadratic time for: rows of
// empty lines after a block text, tabs in a quoted text, rows of "<".
func (d *decoder) bounded() bool {
	blank, tabs, angles, content := 0, 0, 0, false
	for i := 0; i < len(d.text.data); i++ {
		switch d.text.data[i] {
		case '\n':
			if blank++; content {
				blank = 0
			}
			tabs, angles, content = 0, 0, false
		case ' ':
			angles = 0
		case '\t':
			tabs++
			angles = 0
		case '<':
			angles++
			content = true
		default:
			angles = 0
			content = true
		}
		msg := ""
		switch {
		case blank > maxBlankLines:
			msg = "the file has more than 50 empty lines in a row"
		case tabs > maxTabs:
			msg = "the line has more than 100 tabs"
		case angles > maxAngles:
			msg = "the line has more than 100 times < in a row"
		}
		if msg != "" {
			d.add(d.text.place(i), "", "remove them", "%s", msg)
			return false
		}
	}
	return true
}

// checkTokens refuses what YAML has and a policy file has no use for.
func (d *decoder) checkTokens(tokens token.Tokens) bool {
	ok := true
	bad := func(t *token.Token, hint, msg string) {
		ok = false
		d.add(tokenPosition(t), "", hint, "%s", msg)
	}
	content := false
	directive := 0 // the line of one
	for _, t := range tokens {
		switch t.Type {
		case token.AnchorType, token.AliasType:
			bad(t, "write the value out", "anchors and aliases are not allowed")
		case token.TagType:
			bad(t, "leave the tag out", "tags are not allowed")
		case token.MergeKeyType:
			bad(t, "write the keys out", "merge keys are not allowed")
		case token.DirectiveType:
			bad(t, "leave it out", "directives are not allowed")
			directive = t.Position.Line
		case token.MappingKeyType:
			bad(t, "write key: value", "complex keys are not allowed")
		case token.DocumentEndType:
			bad(t, "leave it out", "a document end marker is not allowed")
		case token.DocumentHeaderType:
			if content {
				bad(t, "put it into a file of its own", "the file has a second document")
			}
			content = true
		case token.OctetIntegerType, token.HexIntegerType, token.BinaryIntegerType:
			bad(t, "write it in decimal, or quote it if it is text", "numbers must be decimal")
		case token.CommentType:
		default:
			content = content || t.Position.Line != directive
		}
	}
	return ok
}

// syntax turns the library's error into a problem with a place.
func (d *decoder) syntax(err error) {
	var p Position
	msg := "the file can not be parsed as YAML"
	type tokenError interface {
		GetToken() *token.Token
		GetMessage() string
	}
	// The error's own text is not used: it quotes the whole file.
	if te, ok := err.(tokenError); ok {
		msg = "syntax error: " + strings.Map(oneLine, strings.ReplaceAll(te.GetMessage(), "\t", `\t`))
		p = tokenPosition(te.GetToken())
	}
	hint := ""
	line := d.text.line(p.Line)
	if strings.Contains(line[:len(line)-len(strings.TrimLeft(line, " \t"))], "\t") {
		hint = "YAML indents with spaces, not tabs"
	}
	d.add(p, "", hint, "%s", msg)
}

// oneLine shows what could drive a terminal as a dot.
func oneLine(r rune) rune {
	if plainRune(r) {
		return r
	}
	return '.'
}

func tokenPosition(t *token.Token) Position {
	if t == nil || t.Position == nil {
		return Position{}
	}
	return Position{t.Position.Line, t.Position.Column}
}
