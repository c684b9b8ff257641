package proxy

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// step is one request of a pipeline and what must come of it.
type step struct {
	in     string
	status int
	origin string // the request line that the origin gets, "" for none
	last   bool   // the connection ends with it
}

// drawStep draws a request; n makes its path unique.
func drawStep(t *rapid.T, n int) step {
	hidden := get("http://evil.test/hidden") + "0\r\n\r\n"
	body := rapid.SampledFrom([]string{"", "x", hidden, strings.Repeat(hidden, 100)}).Draw(t, "body")
	chunks := func() string {
		var b strings.Builder
		for rest := body; rest != ""; {
			k := rapid.IntRange(1, len(rest)).Draw(t, "chunk")
			b.WriteString(chunk(rest[:k]))
			rest = rest[k:]
		}
		return b.String() + rapid.SampledFrom([]string{"0\r\n\r\n", "0;x=y\r\n\r\n", "0\r\nX: 1\r\n\r\n"}).Draw(t, "end")
	}
	path := fmt.Sprintf("/%d", n)
	switch kind := rapid.IntRange(0, 9).Draw(t, "kind"); kind {
	case 0, 1:
		return step{in: get("http://allowed.test" + path), status: 200, origin: "GET " + path}
	case 2:
		return step{in: get("http://evil.test" + path), status: 403}
	case 3:
		return step{in: post("http://allowed.test"+path, body), status: 200, origin: "POST " + path}
	case 4:
		return step{in: post("http://evil.test"+path, body), status: 403}
	case 5:
		return step{in: postChunked("http://allowed.test"+path, chunks()), status: 200, origin: "POST " + path}
	case 6:
		return step{in: strings.Replace(get("http://allowed.test"+path), "GET ", "HEAD ", 1), status: 200, origin: "HEAD " + path}
	case 7:
		return step{in: "\r\n" + get("http://allowed.test"+path), status: 200, origin: "GET " + path}
	case 8:
		for _, f := range []string{"two empty lines", "bare LF", "length twice", "folded"} {
			if rapid.Bool().Draw(t, f) {
				return step{in: headFaults[f].in, status: 400, last: true}
			}
		}
		return step{in: headFaults["https"].in, status: 400, last: true}
	default:
		return step{in: connectTo("evil.test:443"), status: 403, last: true}
	}
}

// Whatever requests follow each other on a connection, and wherever the stream
// is cut: each gets its own verdict, in order, the origin gets the allowed ones
// alone, and nothing that stands in a body is a request.
func TestPipelines(t *testing.T) {
	w := newWorld(t)
	o := w.site(allowedIP+":80", func(raw string) string {
		if strings.HasPrefix(raw, "HEAD ") {
			return "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"
		}
		return ok("hello")
	})
	rapid.Check(t, func(rt *rapid.T) {
		var steps []step
		var in strings.Builder
		for n := range rapid.IntRange(1, 6).Draw(rt, "requests") {
			s := drawStep(rt, n)
			steps = append(steps, s)
			in.WriteString(s.in)
			if s.last {
				break
			}
		}
		// What follows the last request that is served is never one itself.
		in.WriteString(get("http://evil.test/behind"))
		steps = append(steps, step{status: 403})
		before, recorded := len(o.requests()), len(w.rec.Events())

		c := w.dial(std)
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			rest := in.String()
			for _, k := range rapid.SliceOfN(rapid.IntRange(1, 200), 0, 8).Draw(rt, "cuts") {
				k = min(k, len(rest))
				_, _ = io.WriteString(c, rest[:k])
				rest = rest[k:]
			}
			_, _ = io.WriteString(c, rest)
		}()
		var origin []string
		records := 0
		for i, s := range steps {
			r, err := http.ReadResponse(c.br, &http.Request{Method: strings.Fields(s.in + " GET")[0]})
			require.NoError(rt, err, "response %d", i)
			_, err = io.Copy(io.Discard, r.Body)
			require.NoError(rt, err)
			require.Equal(rt, s.status, r.StatusCode, "response %d to %.60q", i, s.in)
			if records++; s.origin != "" {
				origin = append(origin, s.origin)
			}
			if r.Close {
				break
			}
			require.False(rt, s.last)
		}
		<-sent
		_ = c.CloseWrite()
		rest, _ := io.ReadAll(c.br)
		require.Empty(rt, string(rest))
		_ = c.Close()
		w.wait("the records", func() bool { return len(w.rec.Events()) >= recorded+records })
		var got []string
		for _, raw := range o.requests()[before:] {
			got = append(got, strings.Join(strings.Fields(firstLine(raw))[:2], " "))
		}
		require.Equal(rt, origin, got)
		require.Len(rt, w.rec.Events(), recorded+records)
	})
	w.finish()
	for _, e := range w.rec.Events() {
		assert.NotContains(t, e.Dest, "hidden")
	}
}
