package audit

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestQuotedEscapesAreFixedLength(t *testing.T) {
	got, cut := appendQuoted(nil, "a\n\x1b\u202e\U0001f512\xff\"\\z", 100, 100)
	assert.False(t, cut)
	assert.Equal(t, `"a\u000a\u001b\u202e\ud83d\udd12\ufffd\"\\z"`, string(got))
}

func TestQuotedCutsBetweenRunes(t *testing.T) {
	for _, tc := range []struct {
		in        string
		maxIn     int
		maxOut    int
		want      string
		wantIsCut bool
	}{
		{"abc", 3, 99, `"abc"`, false},
		{"abcd", 3, 99, `"abc"`, true},
		{"abé", 3, 99, `"ab"`, true},
		{"abé", 4, 99, `"ab\u00e9"`, false},
		{"ab\n", 99, 7, `"ab"`, true},
		{"ab\n", 99, 8, `"ab\u000a"`, false},
		{"\U0001f512", 99, 11, `""`, true},
		{"\U0001f512", 99, 12, `"\ud83d\udd12"`, false},
		{"a\"", 99, 2, `"a"`, true},
		{"", 0, 0, `""`, false},
		{"a", 0, 0, `""`, true},
	} {
		got, cut := appendQuoted(nil, tc.in, tc.maxIn, tc.maxOut)
		assert.Equal(t, tc.want, string(got), "%q %d %d", tc.in, tc.maxIn, tc.maxOut)
		assert.Equal(t, tc.wantIsCut, cut, "%q %d %d", tc.in, tc.maxIn, tc.maxOut)
	}
}

func TestEscapeRaw(t *testing.T) {
	for _, tc := range []struct {
		name  string
		in    string
		limit int
		want  string
		cut   bool
	}{
		{"plain", "GET /a b~", 99, "GET /a b~", false},
		{"control", "a\x00\r\n\x1b\x7f", 99, `a\x00\x0d\x0a\x1b\x7f`, false},
		{"not ascii", "é\xff", 99, `\xc3\xa9\xff`, false},
		{"backslash", `\x41`, 99, `\\x41`, false},
		{"at the limit", "abc\xff", 7, `abc\xff`, false},
		{"within an escape", "abc\xff", 6, "abc", true},
		{"within a backslash", `ab\`, 3, "ab", true},
		{"nothing fits", "a", 0, "", true},
		{"negative limit", "a", -1, "", true},
		{"empty", "", 0, "", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, cut := EscapeRaw([]byte(tc.in), tc.limit)
			assert.Equal(t, tc.want, got)
			assert.Equal(t, tc.cut, cut)
		})
	}
}

func TestNewIDIsOrdered(t *testing.T) {
	prev := ""
	for range 1000 {
		id := NewID()
		require.Len(t, id, 36)
		require.Equal(t, byte('7'), id[14], "version")
		require.Greater(t, id, prev)
		prev = id
	}
}
