package control

import (
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
)

// guard returns the handler with the checks that every request passes first.
//
//	limitBody    needs the server's own ResponseWriter, so it is the outermost
//	recoverPanic covers everything inside
//	notBrowser   before the routes see anything
func guard(h http.Handler, log *slog.Logger) http.Handler {
	return limitBody(recoverPanic(notBrowser(h), log))
}

// limitBody refuses a body that is declared too large and cuts one that turns
// out to be.
func limitBody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength > MaxRequestBody {
			w.Header().Set("Connection", "close") // the body is not going to be read
			WriteError(w, http.StatusRequestEntityTooLarge,
				fmt.Sprintf("the request is larger than %d bytes", MaxRequestBody), "")
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, MaxRequestBody)
		next.ServeHTTP(w, r)
	})
}

// notBrowser refuses what only a browser, or a relay in front of one, sends. The
// Host check is what stops DNS rebinding and relays that pass requests on as
// they are; Origin is sent with every cross-site write, Sec-Fetch-Site with
// everything else.
func notBrowser(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, origin := r.Header["Origin"]
		_, site := r.Header["Sec-Fetch-Site"]
		switch {
		// In absolute form (and CONNECT) the target replaces the Host header, so
		// that form would let any Host through (RFC 9112 section 3.2.2).
		case r.URL.Host != "" || r.URL.Scheme != "":
			forbid(w, "a proxy request reached the control socket")
		case r.Host != host:
			forbid(w, "the Host header must be "+host)
		case origin || site:
			forbid(w, "requests of web pages are refused")
		default:
			next.ServeHTTP(w, r)
		}
	})
}

func forbid(w http.ResponseWriter, message string) {
	WriteError(w, http.StatusForbidden, message, `use the "sluicegate" command`)
}

// recoverPanic logs a panic of a handler and answers 500, or cuts the connection
// if part of an answer is out: half of one must not look like a whole.
func recoverPanic(next http.Handler, log *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec := &recorder{ResponseWriter: w}
		defer func() {
			p := recover()
			if p == nil {
				return
			}
			if p == http.ErrAbortHandler { //nolint:errorlint // a panic value, compared as net/http does
				panic(p)
			}
			log.LogAttrs(r.Context(), slog.LevelError, "control request panicked",
				slog.String("method", r.Method), slog.String("path", r.URL.Path),
				slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
			if rec.wrote {
				panic(http.ErrAbortHandler)
			}
			WriteError(w, http.StatusInternalServerError, "internal error", "see the daemon's log")
		}()
		next.ServeHTTP(rec, r)
	})
}

// recorder remembers whether an answer was begun.
type recorder struct {
	http.ResponseWriter
	wrote bool
}

func (r *recorder) WriteHeader(status int) {
	r.wrote = r.wrote || status >= http.StatusOK // 1xx is not an answer
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Write(b []byte) (int, error) {
	r.wrote = true
	return r.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController find the server's own writer.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
