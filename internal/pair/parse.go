package pair

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

const (
	// maxFile bounds a file of settings, maxState the product's own state, which
	// grows with its history.
	maxFile  = 1 << 20
	maxState = 32 << 20
	// maxDepth bounds how deep values are nested; settings need five.
	maxDepth = 128
)

type kind string

const (
	kindNull   kind = "null"
	kindBool   kind = "a boolean"
	kindNumber kind = "a number"
	kindString kind = "a string"
	kindArray  kind = "a list"
	kindObject kind = "an object"
)

// value is a JSON value and where it stands.
type value struct {
	kind    kind
	boolean bool
	text    string // of a string, or the digits of a number
	items   []*value
	members []member // each name once, in the order of the file
	at      place
}

type member struct {
	name  string
	value *value
}

// place is where a value stands. File is filled in when files are merged.
type place struct {
	source       *Source
	file         string
	line, column int
}

// get returns the value below a path of keys, nil if there is none. It may be
// called on nil.
func (v *value) get(path ...string) *value {
	for _, name := range path {
		if v == nil || v.kind != kindObject {
			return nil
		}
		var next *value
		for _, m := range v.members {
			if m.name == name {
				next = m.value
			}
		}
		v = next
	}
	return v
}

// fault is what is wrong with a file, and where.
type fault struct {
	line, column int
	text         string
}

// parse reads a JSON file. It returns nil if nothing of it can be used; a fault
// without that is one which the product may or may not forgive.
func parse(data []byte) (*value, []fault) {
	var faults []fault
	if rest, ok := bytes.CutPrefix(data, []byte("\xef\xbb\xbf")); ok {
		data = rest
		faults = append(faults, fault{1, 1, "it begins with a byte order mark, which JSON does not have"})
	}
	if i := bytes.IndexByte(data, 0); i >= 0 {
		line, column := position(data, i)
		return nil, append(faults, fault{line, column, "it has a NUL byte, so it is not JSON text"})
	}
	if !utf8.Valid(data) {
		line, column := position(data, firstInvalid(data))
		faults = append(faults, fault{line, column, "it is not UTF-8"})
	}
	if err := json.Unmarshal(data, new(json.RawMessage)); err != nil {
		offset := len(data)
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) && syntax.Offset > 0 {
			offset = min(int(syntax.Offset)-1, len(data))
		}
		line, column := position(data, offset)
		return nil, append(faults, fault{line, column, "it is not JSON: " + err.Error()})
	}
	p := parser{data: data, dec: json.NewDecoder(bytes.NewReader(data)), lines: lineStarts(data)}
	p.dec.UseNumber()
	root, err := p.value(0)
	if err != nil {
		return nil, append(faults, p.faultAt(p.dec.InputOffset(), err.Error()))
	}
	faults = append(faults, p.faults...)
	if root.kind != kindObject {
		return nil, append(faults, fault{root.at.line, root.at.column, "it is " + string(root.kind) + ", not an object"})
	}
	return root, faults
}

type parser struct {
	data   []byte
	dec    *json.Decoder
	lines  []int // where each line begins
	faults []fault
}

var errTooDeep = fmt.Errorf("values are nested deeper than %d", maxDepth)

func (p *parser) value(depth int) (*value, error) {
	if depth > maxDepth {
		return nil, errTooDeep
	}
	start := p.start()
	token, err := p.dec.Token()
	if err != nil {
		return nil, err
	}
	v := &value{at: p.placeAt(start)}
	switch token := token.(type) {
	case nil:
		v.kind = kindNull
	case bool:
		v.kind, v.boolean = kindBool, token
	case json.Number:
		v.kind, v.text = kindNumber, token.String()
	case string:
		v.kind, v.text = kindString, token
	case json.Delim:
		if token == '[' {
			v.kind = kindArray
			return v, p.array(v, depth)
		}
		v.kind = kindObject
		return v, p.object(v, depth)
	}
	return v, nil
}

func (p *parser) array(v *value, depth int) error {
	for p.dec.More() {
		item, err := p.value(depth + 1)
		if err != nil {
			return err
		}
		v.items = append(v.items, item)
	}
	_, err := p.dec.Token()
	return err
}

func (p *parser) object(v *value, depth int) error {
	index := map[string]int{}
	for p.dec.More() {
		start := p.start()
		token, err := p.dec.Token()
		if err != nil {
			return err
		}
		name, _ := token.(string)
		item, err := p.value(depth + 1)
		if err != nil {
			return err
		}
		// A finding points at the key, which a person searches for.
		item.at = p.placeAt(start)
		if i, double := index[name]; double {
			p.faults = append(p.faults, p.faultAt(int64(start), "the key "+quote(name)+" is there twice; programs differ in which one they take"))
			v.members[i].value = item
			continue
		}
		index[name] = len(v.members)
		v.members = append(v.members, member{name, item})
	}
	_, err := p.dec.Token()
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// start is where the next value or key begins: what the decoder has read ends
// before white space and the comma or colon.
func (p *parser) start() int {
	i := int(p.dec.InputOffset())
	for i < len(p.data) && strings.IndexByte(" \t\r\n,:", p.data[i]) >= 0 {
		i++
	}
	return i
}

func (p *parser) placeAt(offset int) place {
	f := p.faultAt(int64(offset), "")
	return place{line: f.line, column: f.column}
}

func (p *parser) faultAt(offset int64, text string) fault {
	at := min(int(offset), len(p.data))
	// The last line that does not begin behind it.
	low, high := 0, len(p.lines)
	for high-low > 1 {
		if middle := (low + high) / 2; p.lines[middle] <= at {
			low = middle
		} else {
			high = middle
		}
	}
	return fault{low + 1, at - p.lines[low] + 1, text}
}

func lineStarts(data []byte) []int {
	starts := []int{0}
	for i, c := range data {
		if c == '\n' {
			starts = append(starts, i+1)
		}
	}
	return starts
}

// position is the line and the column, in bytes, of an offset.
func position(data []byte, offset int) (line, column int) {
	before := data[:offset]
	return bytes.Count(before, []byte("\n")) + 1, offset - bytes.LastIndexByte(before, '\n')
}

func firstInvalid(data []byte) int {
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && size == 1 {
			return i
		}
		i += size
	}
	return len(data)
}
