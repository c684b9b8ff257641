package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"strconv"
)

// How a line is built and hashed:
//
//	{"time":…,"seq":7,"prev":"<64 hex>"        the bytes that are hashed
//	,"hash":"<64 hex>"}\n                      appended afterwards
//
//	hash = SHA-256(domainTag ‖ prev, 32 raw bytes ‖ the hashed bytes)
//
// The bytes in the file are the bytes that were hashed. A checker cuts the last
// field off as text; it never parses and prints again, so there is no canonical
// form to disagree about.
const (
	domainTag = Schema + "\x00"

	seqKey  = `,"seq":`
	prevKey = `,"prev":"`
	hashKey = `,"hash":"`
	hashEnd = `"}`

	hexLen    = 2 * sha256.Size
	hashField = len(hashKey) + hexLen + len(hashEnd)
	prevField = len(prevKey) + hexLen + len(`"`)
	// sealMax is the most that sealing adds to a body, with the newline.
	sealMax = len(seqKey) + 20 + prevField + hashField + 1
)

// Link is a point in the chain: the number and the hash of a line. The zero
// Link is the point before the first line.
type Link struct {
	Seq  uint64
	Hash [sha256.Size]byte
}

// HashString returns the hash as it is written: 64 lower-case hex digits.
func (l Link) HashString() string { return hex.EncodeToString(l.Hash[:]) }

// CheckLine checks that line, with or without its newline, is unaltered and
// follows prev. It returns the line's own Link, which is the prev of the next
// line.
//
// The error wraps ErrNotRecord (with the zero Link), ErrAltered or ErrChain. In
// the last two cases the Link is what the line says of itself, so that a caller
// can go on behind the first fault.
func CheckLine(line []byte, prev Link) (Link, error) {
	p, ok := splitLine(line)
	if !ok {
		return Link{}, ErrNotRecord
	}

	switch {
	case !p.intact():
		return p.link, fmt.Errorf("%w: line with seq %d", ErrAltered, p.link.Seq)
	case p.link.Seq != prev.Seq+1:
		return p.link, fmt.Errorf("%w: seq %d after seq %d", ErrChain, p.link.Seq, prev.Seq)
	case p.prev != prev.Hash:
		return p.link, fmt.Errorf("%w: seq %d was written after another seq %d",
			ErrChain, p.link.Seq, prev.Seq)
	}

	return p.link, nil
}

// lineParts is a line taken apart at its chain fields.
type lineParts struct {
	hashed []byte
	link   Link
	prev   [sha256.Size]byte
}

// intact reports whether the bytes of the line are those that were hashed,
// taking its own word for the line before.
func (p *lineParts) intact() bool {
	return newSealer().sum(p.prev, p.hashed) == p.link.Hash
}

// splitLine takes line apart by text. ok is false if it doesn't end exactly as
// a sealed line does.
func splitLine(line []byte) (p lineParts, ok bool) {
	line = bytes.TrimSuffix(line, []byte("\n"))
	if len(line) == 0 || line[0] != '{' || bytes.IndexByte(line, '\n') >= 0 {
		return p, false
	}

	rest, ok := cutHex(line, hashKey, hashEnd, &p.link.Hash)
	if !ok {
		return p, false
	}
	p.hashed = rest

	rest, ok = cutHex(rest, prevKey, `"`, &p.prev)
	if !ok {
		return p, false
	}

	at := bytes.LastIndex(rest, []byte(seqKey))
	if at < 0 {
		return p, false
	}
	digits := rest[at+len(seqKey):]
	seq, err := strconv.ParseUint(string(digits), 10, 64)
	// Only the form that is written: no sign, no leading zero, and no 0, since
	// the first line is 1.
	if err != nil || digits[0] < '1' || digits[0] > '9' {
		return p, false
	}
	p.link.Seq = seq

	return p, true
}

// cutHex cuts key, 64 lower-case hex digits and end off the end of line.
func cutHex(line []byte, key, end string, sum *[sha256.Size]byte) (rest []byte, ok bool) {
	at := len(line) - len(key) - hexLen - len(end)
	if at < 0 || !bytes.HasPrefix(line[at:], []byte(key)) || !bytes.HasSuffix(line, []byte(end)) {
		return nil, false
	}

	digits := line[at+len(key):][:hexLen]
	if bytes.ContainsAny(digits, "ABCDEF") {
		return nil, false
	}
	if _, err := hex.Decode(sum[:], digits); err != nil {
		return nil, false
	}

	return line[:at], true
}

// sealer computes chain hashes without allocating. It is not safe for
// concurrent use.
type sealer struct {
	hash hash.Hash
	out  [sha256.Size]byte
	tag  []byte
}

// newSealer returns a sealer that is ready to use.
func newSealer() *sealer {
	return &sealer{hash: sha256.New(), tag: []byte(domainTag)}
}

// sum returns the chain hash of a line's hashed bytes.
func (s *sealer) sum(prev [sha256.Size]byte, hashed []byte) [sha256.Size]byte {
	s.hash.Reset()
	s.hash.Write(s.tag)
	s.out = prev
	s.hash.Write(s.out[:])
	s.hash.Write(hashed)
	s.hash.Sum(s.out[:0])

	return s.out
}

// seal appends to dst the line that body (an object without its closing brace)
// becomes after prev, with its newline, and returns the line's Link.
func (s *sealer) seal(dst, body []byte, prev Link) ([]byte, Link) {
	start := len(dst)
	link := Link{Seq: prev.Seq + 1}

	dst = append(dst, body...)
	dst = append(dst, seqKey...)
	dst = strconv.AppendUint(dst, link.Seq, 10)
	dst = append(dst, prevKey...)
	dst = hex.AppendEncode(dst, prev.Hash[:])
	dst = append(dst, '"')

	link.Hash = s.sum(prev.Hash, dst[start:])

	dst = append(dst, hashKey...)
	dst = hex.AppendEncode(dst, link.Hash[:])
	dst = append(dst, hashEnd...)

	return append(dst, '\n'), link
}
