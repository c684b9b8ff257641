package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// seal returns the first line of a log that holds just e.
func sealed(e *Event) []byte {
	var enc encoder
	enc.encode(e)
	line, _ := newSealer().seal(nil, enc.buf, Link{})

	return line
}

// fill sets everything in v to a value that is not zero.
func fill(v reflect.Value, n *int) {
	*n++
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(time.Date(2026, 11, 30, 10, 0, *n%60, 123e6, time.UTC)))

		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(fmt.Sprintf("value %d <&> \"q\" \\ é\n", *n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(*n))
	case reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(*n))
	case reflect.Float64:
		v.SetFloat(float64(*n) + 0.25)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(0), n)
		fill(v.Index(1), n)
	case reflect.Map:
		v.Set(reflect.ValueOf(map[string]int{"z.last": 1, "a.first": 2}))
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), n)
		}
	default:
		panic("the test doesn't know " + v.Type().String())
	}
}

// tokens returns the JSON tokens of b in order, so also the order of keys.
func tokens(t *testing.T, b []byte) (all []json.Token) {
	t.Helper()

	dec := json.NewDecoder(bytes.NewReader(b))
	for {
		tok, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		all = append(all, tok)
	}
}

// A field that is added to Event and forgotten in the encoder fails here.
func TestEncodeAgreesWithEncodingJSON(t *testing.T) {
	var full Event
	n := 0
	fill(reflect.ValueOf(&full).Elem(), &n)
	full.Schema = Schema
	full.Seq, full.Prev = 1, strings.Repeat("0", hexLen)

	zero := Event{Schema: Schema, Seq: 1, Prev: full.Prev, BytesIn: new(int64), DurationMS: new(float64)}
	uid := uint32(0)
	zero.Client = &Client{UID: &uid}
	small := zero
	for i, f := range []float64{1e-7, 1e21, 1234567.125, -3} {
		small.DurationMS = &f
		small.HTTPStatus = i
		testAgrees(t, fmt.Sprintf("float %v", f), small)
	}
	testAgrees(t, "full", full)
	testAgrees(t, "zero", zero)
}

func testAgrees(t *testing.T, name string, e Event) {
	t.Run(name, func(t *testing.T) {
		want, err := json.Marshal(e)
		require.NoError(t, err)

		line := sealed(&e)
		got, ok := cutHex(bytes.TrimSuffix(line, []byte("\n")), hashKey, hashEnd, new([32]byte))
		require.True(t, ok)
		got = append(bytes.Clone(got), '}')

		// Fixed milliseconds are the one intended difference.
		want = bytes.ReplaceAll(want, []byte(`"0001-01-01T00:00:00Z"`), []byte(`"0001-01-01T00:00:00.000Z"`))
		assert.Equal(t, tokens(t, want), tokens(t, got))
	})
}

func TestEncodeTime(t *testing.T) {
	zone := time.FixedZone("", 2*60*60)
	for _, tc := range []struct {
		name string
		in   time.Time
		want string
	}{
		{"fixed decimals", time.Date(2026, 11, 30, 10, 0, 0, 100e6, time.UTC), "2026-11-30T10:00:00.100Z"},
		{"no decimals", time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC), "2026-11-30T10:00:00.000Z"},
		{"cut, not rounded", time.Date(2026, 11, 30, 10, 0, 0, 999_999_999, time.UTC), "2026-11-30T10:00:00.999Z"},
		{"zone", time.Date(2026, 11, 30, 1, 0, 0, 0, zone), "2026-11-29T23:00:00.000Z"},
		{"year too late", time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC), "9999-12-31T23:59:59.999Z"},
		{"year too early", time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC), "0000-01-01T00:00:00.000Z"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			line := sealed(&Event{Time: tc.in})
			assert.Contains(t, string(line), `{"time":"`+tc.want+`",`)
			_, err := Parse(line)
			require.NoError(t, err)
		})
	}
}

func TestEncodeNotANumber(t *testing.T) {
	for _, f := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		e, err := Parse(sealed(&Event{DurationMS: &f}))
		require.NoError(t, err)
		assert.Nil(t, e.DurationMS)
	}
}

func TestEncodeHostileStrings(t *testing.T) {
	for name, s := range map[string]string{
		"newline":        "a\nb\r\nc",
		"quotes":         `a"b\"c\`,
		"escape":         "\x1b[2J\x1b]0;title\x07",
		"nul":            "a\x00b",
		"del and c1":     "\x7f\u0080\u009b31m",
		"bidi":           "\u202egnp.exe\u2066\u2069",
		"separators":     "a\u2028b\u2029c\u0085d",
		"astral":         "\U0001f512 and \U0010ffff",
		"bom":            "\ufeffa",
		"invalid":        "a\xff\xc3(\xed\xa0\x80z",
		"duplicate keys": `x","decision":"allow","dest":"y`,
		"second record":  "x\"}\n{\"time\":\"2026-01-01T00:00:00.000Z\"}",
		"fake chain":     `x","seq":9,"prev":"` + strings.Repeat("0", 64) + `","hash":"` + strings.Repeat("1", 64) + `"}`,
	} {
		t.Run(name, func(t *testing.T) {
			e := denied(s)
			e.Msg, e.User, e.Request = s, s, &Request{Method: s}
			line := sealed(&e)

			assertASCII(t, bytes.TrimSuffix(line, []byte("\n")))
			link, err := CheckLine(line, Link{})
			require.NoError(t, err)
			assert.Equal(t, uint64(1), link.Seq)

			var keys map[string]any
			require.NoError(t, json.Unmarshal(line, &keys))
			assert.Equal(t, DecisionDeny, keys["decision"])
			got, err := Parse(line)
			require.NoError(t, err)
			want := string([]rune(s)) // each invalid byte as U+FFFD
			assert.Equal(t, want, got.Dest)
			assert.Equal(t, want, got.Msg)
			assert.Equal(t, want, got.User)
			assert.Equal(t, want[:min(len(want), capWord)], got.Request.Method)
		})
	}
}

func TestEncodeCutsStrings(t *testing.T) {
	long := strings.Repeat("x", 5000)
	e := denied(long)
	e.Msg = long
	e.Request = &Request{TargetRaw: strings.Repeat("x", 512), Method: long}
	e.Rule = &Rule{File: long}
	e.Truncated = []string{"sni"}

	got, err := Parse(sealed(&e))
	require.NoError(t, err)
	assert.Len(t, got.Dest, 255)
	assert.Len(t, got.Msg, 1024)
	assert.Len(t, got.Request.TargetRaw, 512, "exactly at the cap is not cut")
	assert.Len(t, got.Request.Method, 64)
	assert.Equal(t, []string{"msg", "dest", "request.method", "rule.file", "sni"}, got.Truncated)
}

func TestEncodeCutsLists(t *testing.T) {
	e := denied("example.com")
	for range 9 {
		e.Resolved = append(e.Resolved, Address{IP: "192.0.2.1", Class: "documentation"})
	}
	e.Service = &Service{Listeners: make([]Listener, 33)}
	e.Gap = &Gap{Cause: CauseDiskFull, Dropped: map[string]int{}}
	for i := range 40 {
		e.Gap.Dropped[fmt.Sprintf("event.%02d", i)] = 10
	}

	got, err := Parse(sealed(&e))
	require.NoError(t, err)
	assert.Len(t, got.Resolved, 8)
	assert.Equal(t, 9, got.ResolvedTotal)
	assert.Len(t, got.Service.Listeners, 32)
	assert.Equal(t, 33, got.Service.ListenersTotal)
	assert.Len(t, got.Gap.Dropped, 33)
	assert.Equal(t, 80, got.Gap.Dropped["other"], "the total stays exact")
	assert.Equal(t, []string{"resolved", "service.listeners"}, got.Truncated)

	e = Event{Resolved: e.Resolved[:8]}
	got, err = Parse(sealed(&e))
	require.NoError(t, err)
	assert.Len(t, got.Resolved, 8)
	assert.Zero(t, got.ResolvedTotal)
	assert.Empty(t, got.Truncated)
}

// worst returns an event that is as long as can be: everything there, and every
// string as expensive as possible.
func worst() Event {
	var e Event
	n := 0
	fill(reflect.ValueOf(&e).Elem(), &n)
	widen(reflect.ValueOf(&e).Elem(), strings.Repeat("\x00", 2000))

	return e
}

func widen(v reflect.Value, s string) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(s)
	case reflect.Int, reflect.Int64:
		v.SetInt(math.MinInt64)
	case reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(math.MaxUint64 >> (64 - v.Type().Bits()))
	case reflect.Float64:
		v.SetFloat(-1.2345678901234567e-300)
	case reflect.Pointer:
		widen(v.Elem(), s)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 100, 100))
		for i := range 100 {
			e := v.Index(i)
			if e.Kind() == reflect.String {
				e.SetString(fmt.Sprint(i) + s)
			} else {
				widen(e, s)
			}
		}
	case reflect.Map:
		for i := range 100 {
			v.SetMapIndex(reflect.ValueOf(fmt.Sprint(i)+s), reflect.ValueOf(math.MinInt64))
		}
	case reflect.Struct:
		if _, ok := v.Interface().(time.Time); ok {
			return
		}
		for i := range v.NumField() {
			widen(v.Field(i), s)
		}
	}
}

func TestEncodeWorstCase(t *testing.T) {
	e := worst()
	var enc encoder
	enc.encode(&e)
	t.Logf("body: %d of %d bytes", len(enc.buf), maxBody)
	require.LessOrEqual(t, len(enc.buf), maxBody)
	require.Equal(t, attempts[len(attempts)-1], enc.lim, "the event is not bad enough")

	line, _ := newSealer().seal(nil, enc.buf, Link{Seq: math.MaxUint64 - 1})
	assert.LessOrEqual(t, len(line), MaxRecord)
	_, err := Parse(line)
	require.NoError(t, err)
}
