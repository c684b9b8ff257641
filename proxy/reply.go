package proxy

import (
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"sluicegate/policy"
)

// maxDrain is how much of a refused request's body net/http passes over to keep
// the connection, in bytes.
const maxDrain = 256 << 10

// reply writes one answer and hides what net/http would add to it.
type reply struct {
	http.ResponseWriter
	accept string
	wrote  bool
	// err is the first error of writing to the client.
	err error
	// in is called with the size of each piece that was written.
	in func(int)
}

// WriteHeader implements http.ResponseWriter. net/http would invent a Date and
// guess a Content-Type; a header that is present with no value stops it. The
// head of a response of unknown length, a stream perhaps, goes out before its
// first byte comes.
func (w *reply) WriteHeader(status int) {
	h := w.Header()
	if !w.wrote {
		for _, name := range []string{"Date", "Content-Type"} {
			if _, ok := h[name]; !ok {
				h[name] = nil
			}
		}
		w.wrote = true
	}
	w.ResponseWriter.WriteHeader(status)
	if len(h["Content-Length"]) == 0 {
		w.Flush()
	}
}

// Write implements http.ResponseWriter. Every piece goes out as it comes: model
// answers are streamed, whatever their Content-Type.
func (w *reply) Write(b []byte) (int, error) {
	if !w.wrote {
		w.WriteHeader(http.StatusOK)
	}
	n, err := w.ResponseWriter.Write(b)
	if err == nil {
		err = http.NewResponseController(w.ResponseWriter).Flush()
	}
	if w.in != nil {
		w.in(n)
	}
	if err != nil && w.err == nil {
		w.err = err
	}
	return n, err
}

var copyPool = sync.Pool{New: func() any {
	b := make([]byte, 32<<10)
	return &b
}}

// ReadFrom implements io.ReaderFrom, piece by piece as well, with a buffer that
// is not made for each response.
func (w *reply) ReadFrom(r io.Reader) (n int64, err error) {
	buf := copyPool.Get().(*[]byte)
	defer copyPool.Put(buf)
	return io.CopyBuffer(struct{ io.Writer }{w}, r, *buf)
}

// Flush implements http.Flusher.
func (w *reply) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

// Unwrap lets http.ResponseController find the rest.
func (w *reply) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// refuse answers with a refusal. last says that no other request can follow on
// the connection.
func (w *reply) refuse(r *refusal, last bool) {
	r.preferHTML(w.accept)
	r.fill(w.Header(), last)
	w.WriteHeader(r.status)
	_, _ = w.ResponseWriter.Write(r.body)
}

// fill sets the fields of a refusal that is sent as a response of net/http.
func (r *refusal) fill(h http.Header, last bool) {
	for _, kv := range r.header {
		h.Set(kv[0], kv[1])
	}
	h.Set("Content-Length", strconv.Itoa(len(r.body)))
	h.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	if last || r.reason.Info().Class == policy.ClassMalformed {
		h.Set("Connection", "close")
	}
}
