package proxy

import (
	"bytes"

	"sluicegate/policy"
)

// Limits of chunked framing, in bytes. All are below those of net/http, which
// reads the same bytes after us: what it refuses must have been refused here.
const (
	maxChunkLine = 256
	// maxTrailer is for the trailer section with its empty line.
	maxTrailer = 4 << 10
	// maxExcess is how much more than content the chunk lines may be.
	maxExcess = 8 << 10
)

// bodyState is where in a request body the reader stands.
type bodyState int

const (
	bodyNone bodyState = iota // no body, or its end was passed
	bodyLength
	bodyChunkLine
	bodyChunkData
	bodyChunkEnd
	bodyTrailer
)

// body follows the framing of one request body, RFC 9112 section 6, and finds
// its end. It never interprets content.
type body struct {
	state  bodyState
	left   int64 // bytes of bodyLength or of the current chunk
	used   int   // bytes of the trailer section so far
	excess int64 // bytes of chunk lines beyond a fair share
}

func bodyOf(h *head) body {
	switch {
	case h.chunked:
		return body{state: bodyChunkLine}
	case h.length > 0:
		return body{state: bodyLength, left: h.length}
	default:
		return body{}
	}
}

func (b *body) done() bool { return b.state == bodyNone }

// advance returns how many bytes at the start of in belong to the body and are
// well-formed. Zero means that more bytes are needed. The chunk syntax is read
// strictly: net/http would let through forms that other readers count
// differently.
func (b *body) advance(in []byte) (int, *fault) {
	n := 0
	for n < len(in) && !b.done() {
		step, f := b.step(in[n:])
		if f != nil {
			return n, f
		}
		if step == 0 {
			break
		}
		n += step
	}
	return n, nil
}

func (b *body) step(in []byte) (int, *fault) {
	switch b.state {
	case bodyLength, bodyChunkData:
		n := int(min(int64(len(in)), b.left))
		b.left -= int64(n)
		if b.left == 0 {
			if b.state == bodyLength {
				b.state = bodyNone
			} else {
				b.state = bodyChunkEnd
			}
		}
		return n, nil
	case bodyChunkLine:
		return b.chunkLine(in)
	case bodyChunkEnd:
		if len(in) < 2 {
			if in[0] != '\r' {
				return 0, faultOf(policy.ReasonBadFraming, "a chunk does not end where its size says")
			}
			return 0, nil
		}
		if in[0] != '\r' || in[1] != '\n' {
			return 0, faultOf(policy.ReasonBadFraming, "a chunk does not end where its size says")
		}
		b.state = bodyChunkLine
		return 2, nil
	default:
		return b.trailer(in)
	}
}

// line returns the length of the first line of in with its CRLF, 0 while it is
// incomplete.
func line(in []byte, limit int) (int, *fault) {
	i := bytes.IndexByte(in, '\n')
	switch {
	case i < 0 && len(in) > limit, i > limit:
		return 0, faultOf(policy.ReasonBadFraming, "a line of the chunked body is too long")
	case i < 0:
		return 0, nil
	case i == 0 || in[i-1] != '\r':
		return 0, faultOf(policy.ReasonBadFraming, "a line of the chunked body ends with a bare line feed")
	default:
		return i + 1, nil
	}
}

func (b *body) chunkLine(in []byte) (int, *fault) {
	n, f := line(in, maxChunkLine)
	if n == 0 || f != nil {
		return 0, f
	}
	text := in[:n-2]
	size, ext, _ := bytes.Cut(text, []byte(";"))
	if len(size) == 0 || len(size) > 15 {
		return 0, faultOf(policy.ReasonBadFraming, "a chunk size is not a hexadecimal number")
	}
	var v int64
	for _, c := range size {
		d, ok := hexDigit(c)
		if !ok {
			return 0, faultOf(policy.ReasonBadFraming, "a chunk size is not a hexadecimal number")
		}
		v = v<<4 | d
	}
	for _, c := range ext {
		if c < ' ' && c != '\t' || c == 0x7f {
			return 0, faultOf(policy.ReasonBadFraming, "a chunk extension has a control byte")
		}
	}
	// Chunk extensions could carry data past everybody: like net/http, allow 16
	// bytes for each chunk and two for each byte of content.
	b.excess = max(b.excess+int64(n)-16-2*min(v, maxExcess), 0)
	if b.excess > maxExcess {
		return 0, faultOf(policy.ReasonBadFraming, "the chunked body is mostly chunk extensions")
	}
	b.left, b.state = v, bodyChunkData
	if v == 0 {
		b.state = bodyTrailer
	}
	return n, nil
}

func (b *body) trailer(in []byte) (int, *fault) {
	n, f := line(in, maxTrailer)
	if n == 0 || f != nil {
		return 0, f
	}
	if b.used+n > maxTrailer {
		return 0, faultOf(policy.ReasonTooLarge, "the trailer section is too large")
	}
	b.used += n
	if n == 2 {
		b.state = bodyNone
		return n, nil
	}
	if _, _, f := splitField(in[:n-2]); f != nil {
		return 0, f
	}
	return n, nil
}

func hexDigit(c byte) (int64, bool) {
	switch {
	case c >= '0' && c <= '9':
		return int64(c - '0'), true
	case c >= 'a' && c <= 'f':
		return int64(c-'a') + 10, true
	case c >= 'A' && c <= 'F':
		return int64(c-'A') + 10, true
	default:
		return 0, false
	}
}
