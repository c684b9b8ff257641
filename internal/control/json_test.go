package control

import (
	"math"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestWriteJSON(t *testing.T) {
	t.Parallel()
	for want, v := range map[string]any{
		"null\n":                      nil,
		`{"a":1}` + "\n":              map[string]int{"a": 1},
		`"\u003cscript\u003e"` + "\n": "<script>",
	} {
		w := httptest.NewRecorder()
		WriteJSON(w, v)
		assert.Equal(t, http.StatusOK, w.Code)
		assert.Equal(t, want, w.Body.String())
		assert.Equal(t, "application/json", w.Header().Get("Content-Type"))
		assert.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"))
		assert.Equal(t, "no-store", w.Header().Get("Cache-Control"))
	}
	w := httptest.NewRecorder()
	WriteJSON(w, math.NaN())
	assert.Equal(t, http.StatusInternalServerError, w.Code)
	assert.Contains(t, w.Body.String(), "encoding the answer")
}

func TestWriteError(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		status        int
		message, hint string
		wantStatus    int
		want          string
	}{
		"plain":           {404, "no such event", "use tail", 404, `{"error":"no such event","hint":"use tail"}`},
		"no hint":         {400, "bad", "", 400, `{"error":"bad"}`},
		"no message":      {409, "", "", 409, `{"error":"Conflict"}`},
		"no error at all": {200, "fine", "", 500, `{"error":"fine"}`},
		"just below":      {399, "x", "", 500, `{"error":"x"}`},
		"zero":            {0, "", "", 500, `{"error":"Internal Server Error"}`},
		"just above":      {600, "x", "", 500, `{"error":"x"}`},
		"hostile":         {400, "\x1b[2J\n\xff", "", 400, `{"error":"\u001b[2J\n\ufffd"}`},
	} {
		w := httptest.NewRecorder()
		WriteError(w, tt.status, tt.message, tt.hint)
		assert.Equal(t, tt.wantStatus, w.Code, name)
		assert.Equal(t, tt.want+"\n", w.Body.String(), name)
		assert.Equal(t, "application/json", w.Header().Get("Content-Type"), name)
	}
}
