package policy

import "github.com/goccy/go-yaml/token"

// checkShape bounds nesting, the keys of a mapping, their length and the number
// of missing values. It walks the tokens without recursion before the library's
// parser does with it.
func (d *decoder) checkShape(tokens token.Tokens) bool {
	w := shapeWalk{d: d}
	tokens = withoutComments(tokens)
	for i, t := range tokens {
		var prev, next *token.Token
		if i > 0 {
			prev = tokens[i-1]
		}
		if i+1 < len(tokens) {
			next = tokens[i+1]
		}
		if !w.step(t, prev, next) {
			return false
		}
	}
	return true
}

func withoutComments(tokens token.Tokens) token.Tokens {
	out := make(token.Tokens, 0, len(tokens))
	for _, t := range tokens {
		if t.Type != token.CommentType {
			out = append(out, t)
		}
	}
	return out
}

type shapeWalk struct {
	d       *decoder
	block   []blockLevel
	flow    []flowLevel
	missing int
}

// blockLevel is a collection that is written by indentation.
type blockLevel struct{ column, keys int }

// flowLevel is a collection in brackets or braces.
type flowLevel struct{ braces, item, colon bool }

// step takes one token and tells whether to go on.
func (w *shapeWalk) step(t, prev, next *token.Token) bool {
	switch t.Type {
	case token.SequenceStartType, token.MappingStartType:
		w.item()
		w.flow = append(w.flow, flowLevel{braces: t.Type == token.MappingStartType})
	case token.SequenceEndType, token.MappingEndType, token.CollectEntryType:
		w.endItem(t)
	case token.SequenceEntryType:
		if len(w.flow) > 0 {
			return w.fault(t, "write it as [a, b]", "a list in brackets has no hyphens")
		}
		w.indent(t.Position.Column)
		if next == nil || next.Position.Line > t.Position.Line && next.Position.Column <= t.Position.Column {
			w.missing++
		}
	case token.MappingValueType:
		return w.key(t, prev, next)
	default:
		w.item()
	}
	return w.check(t)
}

func (w *shapeWalk) check(t *token.Token) bool {
	switch {
	case len(w.block)+len(w.flow) > maxDepth:
		return w.fault(t, "", "the file is nested too deeply")
	case w.missing > maxMissing:
		return w.fault(t, "give each a value, or leave it out", "more than 100 values are missing")
	default:
		return true
	}
}

func (w *shapeWalk) fault(t *token.Token, hint, msg string) bool {
	w.d.add(tokenPosition(t), "", hint, "%s", msg)
	return false
}

// item notes that something stands in the innermost brackets.
func (w *shapeWalk) item() {
	if n := len(w.flow); n > 0 {
		w.flow[n-1].item = true
	}
}

// endItem ends an item of the innermost brackets. In braces, one without a
// colon is a key without a value.
func (w *shapeWalk) endItem(t *token.Token) {
	n := len(w.flow)
	if n == 0 {
		return
	}
	top := &w.flow[n-1]
	if top.braces && top.item && !top.colon {
		w.missing++
	}
	top.item, top.colon = false, false
	if t.Type != token.CollectEntryType {
		w.flow = w.flow[:n-1]
	}
}

// key takes the colon after a key.
func (w *shapeWalk) key(t, prev, next *token.Token) bool {
	column := t.Position.Column
	if prev != nil {
		column = prev.Position.Column
		if len(prev.Value) > maxKeyLength {
			return w.fault(prev, "", "the key is too long")
		}
	}
	if n := len(w.flow); n > 0 {
		top := &w.flow[n-1]
		if !top.braces || top.colon {
			return w.fault(t, "write {key: value}", "a pair in brackets needs braces of its own")
		}
		top.colon = true
		if next == nil || next.Type == token.CollectEntryType || next.Type == token.MappingEndType || next.Type == token.SequenceEndType {
			w.missing++
		}
		return w.check(t)
	}
	level := w.indent(column)
	if level.keys++; level.keys > maxKeys {
		return w.fault(t, "", "the mapping has too many keys")
	}
	sameList := next != nil && next.Type == token.SequenceEntryType && next.Position.Column == column
	if next == nil || next.Position.Line > t.Position.Line && next.Position.Column <= column && !sameList {
		w.missing++
	}
	return w.check(t)
}

// indent enters the block collection of that column and leaves those further to
// the right.
func (w *shapeWalk) indent(column int) *blockLevel {
	n := len(w.block)
	for n > 0 && w.block[n-1].column > column {
		n--
	}
	w.block = w.block[:n]
	if n == 0 || w.block[n-1].column < column {
		w.block = append(w.block, blockLevel{column: column})
	}
	return &w.block[len(w.block)-1]
}
