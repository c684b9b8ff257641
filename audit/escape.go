package audit

import "unicode/utf8"

const hexDigits = "0123456789abcdef"

// EscapeRaw returns b as printable ASCII: bytes outside 0x20–0x7e become \xNN
// and a backslash becomes \\, so the text is unambiguous. The result has at most
// limit bytes and never ends within an escape; cut reports whether something of
// b is missing.
//
// It is for bytes as they came off the wire (a request target, a server name),
// where an invalid encoding is evidence that a replacement character would hide.
func EscapeRaw(b []byte, limit int) (s string, cut bool) {
	out := make([]byte, 0, min(len(b), max(limit, 0))+len(`\x00`))
	for _, c := range b {
		mark := len(out)
		switch {
		case c == '\\':
			out = append(out, '\\', '\\')
		case c >= 0x20 && c <= 0x7e:
			out = append(out, c)
		default:
			out = append(out, '\\', 'x', hexDigits[c>>4], hexDigits[c&0xf])
		}
		if len(out) > limit {
			return string(out[:mark]), true
		}
	}

	return string(out), false
}

// plain holds the bytes that stand for themselves in a JSON string and on a
// terminal.
var plain = func() (t [256]bool) {
	for c := 0x20; c <= 0x7e; c++ {
		t[c] = c != '"' && c != '\\'
	}

	return t
}()

// appendQuoted appends s as a JSON string of printable ASCII. Everything else is
// written as \uXXXX, an invalid byte as \ufffd: no string can end its line, and
// none can reach a terminal as a control sequence or turn text around.
//
// It stops before it has used more than maxIn bytes of s or written more than
// maxOut bytes between the quotes; cut reports whether it did.
func appendQuoted(dst []byte, s string, maxIn, maxOut int) (out []byte, cut bool) {
	dst = append(dst, '"')
	limit := len(dst) + maxOut

	i := 0
	for i < len(s) {
		run := i
		end := min(len(s), maxIn, i+limit-len(dst))
		for run < end && plain[s[run]] {
			run++
		}
		if run > i {
			dst = append(dst, s[i:run]...)
			i = run

			continue
		}

		r, used := utf8.DecodeRuneInString(s[i:])
		mark := len(dst)
		dst = appendEscaped(dst, r)
		if len(dst) > limit || i+used > maxIn {
			dst = dst[:mark]

			break
		}
		i += used
	}

	return append(dst, '"'), i < len(s)
}

// appendEscaped appends one rune that is not plain.
func appendEscaped(dst []byte, r rune) []byte {
	switch {
	case r == '"' || r == '\\':
		return append(dst, '\\', byte(r))
	case r < 0x80 && plain[r]:
		// Only reached when the limit is used up; the caller takes it back.
		return append(dst, byte(r))
	case r > 0xffff:
		r -= 0x10000
		dst = appendUnit(dst, 0xd800+r>>10)

		return appendUnit(dst, 0xdc00+r&0x3ff)
	default:
		return appendUnit(dst, r)
	}
}

// appendUnit appends one UTF-16 code unit as \uXXXX.
func appendUnit(dst []byte, u rune) []byte {
	return append(dst, '\\', 'u',
		hexDigits[u>>12&0xf], hexDigits[u>>8&0xf], hexDigits[u>>4&0xf], hexDigits[u&0xf])
}
