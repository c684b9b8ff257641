package policy

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// DecodeYAML reads one strict YAML document (JSON is YAML) into out, a pointer
// to a struct whose fields carry yaml tags. Unknown and duplicate keys, a
// second document, anchors, aliases, tags, merge keys, numbers that are not
// decimal, nulls and wrong types are problems; all of them are reported, as
// [Problems]. Nothing is read into out unless the result is nil. Bounds that no
// real file comes near keep every file of at most [MaxFileSize] a matter of a
// moment: see yamlparse.go.
//
// The parser is goccy/go-yaml's; the decoding is done here because the
// library's own stops at the first fault and forgets where a value stood, and
// records name the line of a rule.
func DecodeYAML(file string, data []byte, out any) error {
	target := reflect.ValueOf(out).Elem()
	fresh := reflect.New(target.Type())
	f := newFaults(file)
	decodeYAML(f, data, fresh)
	if err := f.all().errOrNil(); err != nil {
		return err
	}
	target.Set(fresh.Elem())
	return nil
}

// decodeYAML reads what it can into out, a pointer, so that later checks can
// run over a file that has problems already. It returns false when nothing
// could be read.
func decodeYAML(f *faults, data []byte, out reflect.Value) bool {
	d := &decoder{f}
	body := d.parse(data)
	if body == nil {
		return false
	}
	d.decode(body, out.Elem(), "")
	return true
}

// Position is the place of a value in its file.
type Position struct{ Line, Column int }

// located is a scalar together with its place, for checks that come later.
type located[T string | int | bool] struct {
	V   T
	Pos Position
}

func (l *located[T]) set(d *decoder, n ast.Node, path string) {
	l.Pos = position(n)
	d.decode(n, reflect.ValueOf(&l.V).Elem(), path)
}

type locatedValue interface {
	set(d *decoder, n ast.Node, path string)
}

// laterKeys is implemented by structs with keys whose feature does not exist in
// this version; they are told apart from typing errors.
type laterKeys interface{ LaterKeys() []string }

// example is implemented by structs that people like to write as a plain text;
// it returns what they should have written.
type example interface{ example(text string) string }

type decoder struct{ *faults }

func position(n ast.Node) Position {
	t := n.GetToken()
	if m, ok := n.(*ast.MappingNode); ok && len(m.Values) > 0 {
		t = m.Values[0].Key.GetToken()
	}
	if m, ok := n.(*ast.MappingValueNode); ok {
		t = m.Key.GetToken()
	}
	return tokenPosition(t)
}

// decode reads n into v by v's type.
func (d *decoder) decode(n ast.Node, v reflect.Value, path string) {
	if n == nil {
		d.add(Position{}, path, "", "the value is missing")
		return
	}
	if lv, ok := v.Addr().Interface().(locatedValue); ok {
		lv.set(d, n, path)
		return
	}
	if n.Type() == ast.NullType {
		d.add(position(n), path, "leave the key out, or give it a value", "the value is missing")
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.decode(n, v.Elem(), path)
	case reflect.Struct:
		d.decodeStruct(n, v, path)
	case reflect.Map:
		d.decodeMap(n, v, path)
	case reflect.Slice:
		d.decodeSlice(n, v, path)
	case reflect.String:
		d.decodeString(n, v, path)
	case reflect.Bool:
		b, ok := n.(*ast.BoolNode)
		if !ok {
			d.add(position(n), path, "", "true or false is wanted, not %s", kindName(n))
			return
		}
		v.SetBool(b.Value)
	case reflect.Int:
		d.decodeInt(n, v, path)
	default:
		panic("policy: no decoding for " + v.Type().String())
	}
}

func (d *decoder) decodeString(n ast.Node, v reflect.Value, path string) {
	text, ok := stringOf(n)
	switch {
	case !ok:
		d.add(position(n), path, "quote it if it is meant as text", "a text is wanted, not %s", kindName(n))
	case strings.IndexFunc(text, deceptive) >= 0:
		d.add(position(n), path, "leave it out", "the text has a control character")
	default:
		v.SetString(text)
	}
}

func stringOf(n ast.Node) (string, bool) {
	switch s := n.(type) {
	case *ast.StringNode:
		return s.Value, true
	case *ast.LiteralNode:
		return s.Value.Value, true
	default:
		return "", false
	}
}

// decodeInt takes one spelling of each number: no sign but a minus, no leading
// zero, no underscore.
func (d *decoder) decodeInt(n ast.Node, v reflect.Value, path string) {
	i, ok := n.(*ast.IntegerNode)
	if !ok {
		d.add(position(n), path, "", "a whole number is wanted, not %s", kindName(n))
		return
	}
	text := i.GetToken().Value
	value, err := strconv.Atoi(text)
	if err != nil || strconv.Itoa(value) != text {
		d.add(position(n), path, "", "a plain decimal number is wanted")
		return
	}
	v.SetInt(int64(value))
}

// pairs returns the key-value pairs of a mapping.
func pairs(n ast.Node) ([]*ast.MappingValueNode, bool) {
	switch m := n.(type) {
	case *ast.MappingNode:
		return m.Values, true
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{m}, true
	default:
		return nil, false
	}
}

// key reads a mapping key as text and reports a second one of the same name.
func (d *decoder) key(p *ast.MappingValueNode, seen map[string]Position, path string) (string, bool) {
	k, ok := p.Key.(*ast.StringNode)
	if !ok {
		d.add(position(p), join(path, p.Key.GetToken().Value), "quote it if it is meant as text", "a key must be text")
		return "", false
	}
	if first, dup := seen[k.Value]; dup {
		d.add(position(p), join(path, k.Value), fmt.Sprintf("it stands in line %d already", first.Line), "the key is there twice")
		return "", false
	}
	seen[k.Value] = position(p)
	return k.Value, true
}

func (d *decoder) decodeStruct(n ast.Node, v reflect.Value, path string) {
	ps, ok := pairs(n)
	if !ok {
		hint := ""
		if e, can := v.Interface().(example); can {
			if text, plain := stringOf(n); plain {
				hint = "write " + e.example(printable(text))
			}
		}
		d.add(position(n), path, hint, "key: value pairs are wanted, not %s", kindName(n))
		return
	}
	fields, names := map[string]reflect.Value{}, []string{}
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if f.Type == reflect.TypeFor[Position]() {
			v.Field(i).Set(reflect.ValueOf(position(n)))
			continue
		}
		name := f.Tag.Get("yaml")
		fields[name] = v.Field(i)
		names = append(names, name)
	}
	var later []string
	if l, ok := v.Interface().(laterKeys); ok {
		later = l.LaterKeys()
	}
	seen := map[string]Position{}
	for _, p := range ps {
		if d.stop() {
			return
		}
		name, ok := d.key(p, seen, path)
		if !ok {
			continue
		}
		f, known := fields[name]
		switch {
		case known:
			d.decode(p.Value, f, join(path, name))
		case slices.Contains(later, name):
			d.add(position(p), join(path, name), "remove it; it would have no effect", "this key is not supported by this version")
		default:
			d.unknownKey(p, name, path, names, later)
		}
	}
}

func (d *decoder) unknownKey(p *ast.MappingValueNode, name, path string, known, later []string) {
	hint := "known keys: " + strings.Join(known, ", ")
	near := nearest(name, slices.Concat(known, later))
	if near != "" {
		hint = fmt.Sprintf("did you mean %q?", near)
	}
	d.unknown[path] = append(d.unknown[path], near)
	d.add(position(p), join(path, name), hint, "unknown key")
}

func (d *decoder) decodeMap(n ast.Node, v reflect.Value, path string) {
	ps, ok := pairs(n)
	if !ok {
		d.add(position(n), path, "", "key: value pairs are wanted, not %s", kindName(n))
		return
	}
	v.Set(reflect.MakeMapWithSize(v.Type(), len(ps)))
	seen := map[string]Position{}
	for _, p := range ps {
		if d.stop() {
			return
		}
		name, ok := d.key(p, seen, path)
		if !ok {
			continue
		}
		e := reflect.New(v.Type().Elem()).Elem()
		d.decode(p.Value, e, join(path, name))
		v.SetMapIndex(reflect.ValueOf(name), e)
	}
}

func (d *decoder) decodeSlice(n ast.Node, v reflect.Value, path string) {
	s, ok := n.(*ast.SequenceNode)
	if !ok {
		d.add(position(n), path, "write it as [a, b] or as lines that start with -", "a list is wanted, not %s", kindName(n))
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(s.Values), len(s.Values)))
	for i, e := range s.Values {
		if d.stop() {
			return
		}
		d.decode(e, v.Index(i), index(path, i))
	}
}

// join is the path of a key, shortened and without what a terminal obeys.
func join(path, key string) string {
	key = printable(key)
	if path == "" {
		return key
	}
	return path + "." + key
}

// index is the path of a list item.
func index(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }

func kindName(n ast.Node) string {
	switch n.Type() {
	case ast.MappingType, ast.MappingValueType:
		return "key: value pairs"
	case ast.SequenceType:
		return "a list"
	case ast.StringType, ast.LiteralType:
		return "a text"
	case ast.IntegerType:
		return "a number"
	case ast.FloatType, ast.InfinityType, ast.NanType:
		return "a fraction"
	case ast.BoolType:
		return "true or false"
	case ast.NullType:
		return "nothing"
	default:
		return "this"
	}
}
