package audit

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// anyString draws short, long, usual and hostile strings; tameString those that
// no field cuts.
var (
	anyString = rapid.OneOf(
		rapid.StringMatching(`[a-z0-9.-]{0,40}`),
		rapid.String(),
		rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 300), func(b []byte) string { return string(b) }),
		rapid.Map(rapid.IntRange(0, 3000), func(n int) string { return strings.Repeat("\x1b", n) }),
	)
	tameString = rapid.OneOf(
		rapid.StringMatching(`[a-z0-9.-]{0,20}`),
		rapid.StringN(0, 4, 16),
		rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 8), func(b []byte) string { return string(b) }),
	)
)

// draw sets everything in v to a drawn value.
func draw(t *rapid.T, v reflect.Value, text *rapid.Generator[string], label string) {
	if _, ok := v.Interface().(time.Time); ok {
		ms := rapid.Int64Range(-62167219200000, 253402300799999).Draw(t, label)
		v.Set(reflect.ValueOf(time.UnixMilli(ms).UTC()))

		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(text.Draw(t, label))
	case reflect.Bool:
		v.SetBool(rapid.Bool().Draw(t, label))
	case reflect.Int, reflect.Int64:
		v.SetInt(rapid.Int64().Draw(t, label))
	case reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(rapid.Uint64Max(math.MaxUint64>>(64-v.Type().Bits())).Draw(t, label))
	case reflect.Float64:
		v.SetFloat(rapid.Float64().Draw(t, label))
	case reflect.Pointer:
		if rapid.Bool().Draw(t, label+" there") {
			v.Set(reflect.New(v.Type().Elem()))
			draw(t, v.Elem(), text, label)
		}
	case reflect.Slice:
		if n := rapid.IntRange(0, 12).Draw(t, label+" length"); n > 0 {
			v.Set(reflect.MakeSlice(v.Type(), n, n))
			for i := range n {
				draw(t, v.Index(i), text, label)
			}
		}
	case reflect.Map:
		if n := rapid.IntRange(0, 12).Draw(t, label+" length"); n > 0 {
			v.Set(reflect.MakeMap(v.Type()))
			for i := range n {
				key := fmt.Sprint(i) + text.Draw(t, label)
				v.SetMapIndex(reflect.ValueOf(key), reflect.ValueOf(i))
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			draw(t, v.Field(i), text, v.Type().Field(i).Name)
		}
	}
}

// clean makes of v what a reader must get back: valid UTF-8.
func clean(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(string([]rune(v.String())))
	case reflect.Pointer:
		if !v.IsNil() {
			clean(v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			clean(v.Index(i))
		}
	case reflect.Map:
		m := map[string]int{}
		for _, k := range v.MapKeys() {
			m[string([]rune(k.String()))] = int(v.MapIndex(k).Int())
		}
		if v.Len() > 0 {
			v.Set(reflect.ValueOf(m))
		}
	case reflect.Struct:
		if _, ok := v.Interface().(time.Time); ok {
			return
		}
		for i := range v.NumField() {
			clean(v.Field(i))
		}
	}
}

func TestEncodeAnyEvent(t *testing.T) {
	whole := 0
	rapid.Check(t, func(t *rapid.T) {
		var e Event
		if rapid.Bool().Draw(t, "tame") {
			draw(t, reflect.ValueOf(&e).Elem(), tameString, "event")
			e.Truncated = nil
			e.Resolved = e.Resolved[:min(len(e.Resolved), capRes)]
		} else {
			draw(t, reflect.ValueOf(&e).Elem(), anyString, "event")
		}
		line := sealed(&e)

		require.LessOrEqual(t, len(line), MaxRecord)
		require.Equal(t, byte('\n'), line[len(line)-1])
		assertASCII(t, line[:len(line)-1])
		link, err := CheckLine(line, Link{})
		require.NoError(t, err)
		require.Equal(t, uint64(1), link.Seq)
		got, err := Parse(line)
		require.NoError(t, err)

		if len(e.Truncated) > 0 || len(got.Truncated) > 0 {
			return // something was cut, so it isn't equal
		}
		whole++
		clean(reflect.ValueOf(&e).Elem())
		e.Schema, e.Seq, e.Prev = Schema, 1, strings.Repeat("0", hexLen)
		require.Equal(t, e, got)
	})
	assert.Positive(t, whole, "no drawn event was short enough to compare")
}
