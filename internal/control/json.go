package control

import (
	"encoding/json"
	"net/http"
)

// errorBody is the JSON of an error answer.
type errorBody struct {
	Error string `json:"error"`
	Hint  string `json:"hint,omitempty"`
}

// WriteJSON answers 200 with v as JSON; nil is the JSON value null. If v can't
// be encoded it answers 500 instead, so a client never gets half a value. Fields
// of w's header that the caller set are kept, except Content-Type.
func WriteJSON(w http.ResponseWriter, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		WriteError(w, http.StatusInternalServerError, "encoding the answer: "+err.Error(), "")
		return
	}
	write(w, http.StatusOK, body)
}

// WriteError answers with an error status, what is wrong and what to do about
// it; hint may be "". [Client] turns it into an [APIError]. An empty message
// becomes the status's own words, and a status that is no error becomes 500.
func WriteError(w http.ResponseWriter, status int, message, hint string) {
	if status < 400 || status > 599 {
		status = http.StatusInternalServerError
	}
	if message == "" {
		message = http.StatusText(status)
	}
	body, err := json.Marshal(errorBody{Error: message, Hint: hint})
	if err != nil { // strings always encode
		body = []byte(`{"error":"internal error"}`)
	}
	write(w, status, body)
}

func write(w http.ResponseWriter, status int, body []byte) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // a client that is gone needs no answer
}
