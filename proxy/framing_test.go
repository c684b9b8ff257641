package proxy

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sluicegate/policy"
)

// follow feeds segments to a body and returns how many bytes are its own, and
// whether its end was seen.
func follow(b body, segments ...string) (n int, done bool, f *fault) {
	var in []byte
	for _, s := range segments {
		in = append(in, s...)
		for !b.done() {
			step, f := b.advance(in)
			if f != nil && step == 0 {
				return n, false, f
			}
			n += step
			if in = in[step:]; step == 0 {
				break
			}
		}
	}
	return n, b.done(), nil
}

var chunked = body{state: bodyChunkLine}

func TestBodyAccepts(t *testing.T) {
	long := strings.Repeat("x", maxChunkLine-len("1;\r"))
	for name, tt := range map[string]struct {
		b  body
		in string
	}{
		"none":                     {bodyOf(&head{length: -1}), ""},
		"length 0":                 {bodyOf(&head{length: 0}), ""},
		"length":                   {bodyOf(&head{length: 4}), "body"},
		"length, any bytes":        {bodyOf(&head{length: 4}), "\r\n\r\n"},
		"chunked, empty":           {chunked, "0\r\n\r\n"},
		"several chunks":           {chunked, "4\r\nbody\r\n1\r\nx\r\n0\r\n\r\n"},
		"hexadecimal, either case": {chunked, "a\r\n0123456789\r\nA\r\n0123456789\r\n0\r\n\r\n"},
		"leading zeros":            {chunked, "004\r\nbody\r\n00\r\n\r\n"},
		"content like framing":     {chunked, "7\r\n\r\n0\r\n\r\n\r\n0\r\n\r\n"},
		"extension":                {chunked, "4;a=b;c=\"d\"\r\nbody\r\n0;x\r\n\r\n"},
		"longest extension":        {chunked, "1;" + long + "\r\nx\r\n0\r\n\r\n"},
		"trailer":                  {chunked, "0\r\nX-Sum: 1\r\nY:\r\n\r\n"},
		"longest trailer":          {chunked, "0\r\nX: " + strings.Repeat("x", maxTrailer-len("X: \r\n\r\n")) + "\r\n\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			n, done, f := follow(tt.b, tt.in+"GET ")
			require.Nil(t, f)
			assert.True(t, done)
			assert.Equal(t, len(tt.in), n)
		})
	}
}

var bodyFaults = map[string]string{
	"size empty":                 "\r\n",
	"size 0x":                    "0x3\r\nabc\r\n0\r\n\r\n",
	"size minus":                 "-3\r\nabc\r\n0\r\n\r\n",
	"size plus":                  "+3\r\nabc\r\n0\r\n\r\n",
	"size with underscore":       "0_3\r\nabc\r\n0\r\n\r\n",
	"size with a space":          "3 \r\nabc\r\n0\r\n\r\n",
	"size behind a space":        " 3\r\nabc\r\n0\r\n\r\n",
	"size too long":              "ffffffffffffffff\r\nabc",
	"size not hexadecimal":       "g\r\nabc",
	"bare LF behind the size":    "3\nabc\r\n0\r\n\r\n",
	"bare LF in an extension":    "3;\nxx\r\nabc\r\n0\r\n\r\n",
	"bare CR in an extension":    "3;a\rb\r\nabc\r\n0\r\n\r\n",
	"NUL in an extension":        "3;\x00\r\nabc\r\n0\r\n\r\n",
	"extension too long":         "3;" + strings.Repeat("x", maxChunkLine) + "\r\nabc\r\n0\r\n\r\n",
	"chunk too short":            "4\r\nabc\r\n0\r\n\r\n",
	"chunk too long":             "2\r\nabc\r\n0\r\n\r\n",
	"bare LF behind a chunk":     "3\r\nabc\n0\r\n\r\n",
	"nothing behind a chunk":     "3\r\nabc0\r\n\r\n",
	"bare LF at the end":         "0\r\n\n",
	"trailer without colon":      "0\r\nX\r\n\r\n",
	"trailer folded":             "0\r\nX: 1\r\n 2\r\n\r\n",
	"trailer with a space":       "0\r\nX : 1\r\n\r\n",
	"trailer with NUL":           "0\r\nX: \x00\r\n\r\n",
	"trailer with bare LF":       "0\r\nX: 1\nY: 2\r\n\r\n",
	"trailer too large":          "0\r\n" + strings.Repeat("X: 1\r\n", maxTrailer/6+1) + "\r\n",
	"trailer line too long":      "0\r\nX: " + strings.Repeat("x", maxTrailer) + "\r\n\r\n",
	"trailer line without end":   "0\r\nX: " + strings.Repeat("x", maxTrailer),
	"size line without end":      strings.Repeat("0", maxChunkLine+1),
	"nothing but extensions":     strings.Repeat("1;"+strings.Repeat("x", 200)+"\r\nx\r\n", 60) + "0\r\n\r\n",
	"another request in a chunk": "3\r\nabcGET http://a.test/ HTTP/1.1\r\n\r\n",
}

func TestBodyFaults(t *testing.T) {
	for name, in := range bodyFaults {
		t.Run(name, func(t *testing.T) {
			n, done, f := follow(chunked, in)
			require.NotNil(t, f)
			assert.False(t, done)
			want := policy.ReasonBadFraming
			switch {
			case name == "trailer too large":
				want = policy.ReasonTooLarge
			case strings.HasPrefix(name, "trailer with") || name == "trailer folded":
				want = policy.ReasonBadHeader
			}
			if name == "trailer with bare LF" {
				want = policy.ReasonBadFraming
			}
			assert.Equal(t, want, f.reason, f.detail)

			bn, bdone, bf := follow(chunked, strings.Split(in, "")...)
			assert.Equal(t, n, bn)
			assert.False(t, bdone)
			assert.Equal(t, f, bf)
		})
	}
}

// The end is found at the same byte wherever the stream is cut.
func TestBodyCutAnywhere(t *testing.T) {
	in := "4;x\r\nbody\r\n7\r\n\r\n0\r\n\r\n\r\n0\r\nX: 1\r\n\r\n"
	for i := range in {
		for j := i; j < len(in); j++ {
			n, done, f := follow(chunked, in[:i], in[i:j], in[j:]+"GET ")
			require.Nil(t, f)
			require.True(t, done)
			require.Equal(t, len(in), n)
		}
	}
}

// No chunk size overflows.
func TestChunkSizes(t *testing.T) {
	b := chunked
	n, f := b.advance(fmt.Appendf(nil, "%015x\r\n", int64(1)<<60-1))
	require.Nil(t, f)
	assert.Equal(t, 17, n)
	assert.Equal(t, int64(1)<<60-1, b.left)
	n, f = b.advance(make([]byte, 1000))
	require.Nil(t, f)
	assert.Equal(t, 1000, n)
	assert.Less(t, b.left, int64(math.MaxInt64))
}
