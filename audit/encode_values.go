package audit

import (
	"math"
	"slices"
	"strconv"
	"time"
)

// timeLayout is RFC 3339 in UTC with fixed milliseconds, so that lines sort and
// columns align.
const timeLayout = "2006-01-02T15:04:05.000Z"

// note remembers that the value of a key was cut.
func (enc *encoder) note(name string) {
	if !slices.Contains(enc.cut, name) {
		enc.cut = append(enc.cut, name)
	}
}

// comma writes a comma unless an object or list has just begun. No value ends
// in one of the two opening brackets: strings end in a quote.
func (enc *encoder) comma() {
	if last := enc.buf[len(enc.buf)-1]; last != '{' && last != '[' {
		enc.buf = append(enc.buf, ',')
	}
}

// key writes a key, which must be plain ASCII.
func (enc *encoder) key(key string) {
	enc.comma()
	enc.buf = append(enc.buf, '"')
	enc.buf = append(enc.buf, key...)
	enc.buf = append(enc.buf, '"', ':')
}

func (enc *encoder) open(key string) {
	enc.key(key)
	enc.buf = append(enc.buf, '{')
	enc.group = key
}

func (enc *encoder) list(key string) {
	enc.key(key)
	enc.buf = append(enc.buf, '[')
}

// element begins an object in the list called name.
func (enc *encoder) element(name string) {
	enc.comma()
	enc.buf = append(enc.buf, '{')
	enc.group = name
}

func (enc *encoder) close() {
	enc.buf = append(enc.buf, '}')
	enc.group = ""
}

// str writes a string unless it is empty.
func (enc *encoder) str(key, s string, limit int) {
	if s != "" {
		enc.must(key, s, limit)
	}
}

// must writes a string, also an empty one.
func (enc *encoder) must(key, s string, limit int) {
	enc.key(key)
	enc.quote(key, s, limit)
}

// quote writes a string value and notes it under its key if it was cut.
func (enc *encoder) quote(key, s string, limit int) {
	var cut bool
	enc.buf, cut = appendQuoted(enc.buf, s, limit, enc.lim.str)
	if !cut {
		return
	}

	if enc.group != "" {
		key = enc.group + "." + key
	}
	enc.note(key)
}

// num writes an integer unless it is zero.
func (enc *encoder) num(key string, n int64) {
	if n != 0 {
		enc.numZero(key, n)
	}
}

func (enc *encoder) numZero(key string, n int64) {
	enc.key(key)
	enc.buf = strconv.AppendInt(enc.buf, n, 10)
}

func (enc *encoder) uint(key string, n uint64) {
	enc.key(key)
	enc.buf = strconv.AppendUint(enc.buf, n, 10)
}

// float writes a number as encoding/json does. JSON has no NaN and no infinity:
// they are left out.
func (enc *encoder) float(key string, f float64) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return
	}

	enc.key(key)
	format := byte('f')
	if abs := math.Abs(f); abs != 0 && (abs < 1e-6 || abs >= 1e21) {
		format = 'e'
	}
	enc.buf = strconv.AppendFloat(enc.buf, f, format, -1, 64)
}

func (enc *encoder) flag(key string, on bool) {
	if on {
		enc.key(key)
		enc.buf = append(enc.buf, "true"...)
	}
}

// time writes t in UTC. RFC 3339 has four digits for the year, so a time outside
// them becomes the nearest one inside.
func (enc *encoder) time(key string, t time.Time) {
	t = t.UTC()
	switch year := t.Year(); {
	case year < 0:
		t = time.Date(0, time.January, 1, 0, 0, 0, 0, time.UTC)
	case year > 9999:
		t = time.Date(9999, time.December, 31, 23, 59, 59, 999e6, time.UTC)
	}

	enc.key(key)
	enc.buf = append(enc.buf, '"')
	enc.buf = t.AppendFormat(enc.buf, timeLayout)
	enc.buf = append(enc.buf, '"')
}
