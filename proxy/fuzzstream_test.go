package proxy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sluicegate/audit"
)

// unreachable resolves nothing.
type unreachable struct{}

func (unreachable) Resolve(context.Context, Query) (Answer, error) {
	return Answer{}, errors.New("no such host")
}

// ids is a log that keeps the ids of its records until they are taken.
type ids struct {
	mu   sync.Mutex
	seen map[string]bool
}

func (r *ids) Record(_ context.Context, e audit.Event) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen[e.ID] = true
	return nil
}

func (*ids) Healthy() bool { return true }

func (r *ids) take() map[string]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := r.seen
	r.seen = map[string]bool{}
	return seen
}

var (
	statusLine  = regexp.MustCompile(`(?m)^HTTP/1\.[01] [2-9]\d\d `)
	eventHeader = regexp.MustCompile(`(?m)^X-Sluicegate-Event: ([0-9a-f-]{36})\r$`)
)

// Whatever a client sends, every answer it gets is one of the gate's own that
// stands in the log: none is net/http's, and net/http never serves a request
// that was not validated.
func FuzzStream(f *testing.F) {
	for _, tt := range headFaults {
		f.Add([]byte(tt.in))
		f.Add([]byte(get("http://allowed.test/") + tt.in))
	}
	// Few of them: net/http waits half a second after each.
	for _, name := range []string{"chunk too short", "trailer folded", "another request in a chunk"} {
		f.Add([]byte(postChunked("http://allowed.test/", bodyFaults[name])))
		f.Add([]byte(postChunked("http://evil.test/", bodyFaults[name])))
	}
	for _, in := range []string{
		get("http://allowed.test/") + get("http://evil.test/"), connectTo("allowed.test:443") + "early", webSocketTo("allowed.test") + "early",
		post("http://evil.test/", get("http://allowed.test/")) + get("http://evil.test/"), "GET http://a.test/ HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
		"POST http://evil.test/ HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nabcde", "\r\n\r\n",
	} {
		f.Add([]byte(in))
	}
	var operator bytes.Buffer
	rec := &ids{seen: map[string]bool{}}
	w := newWorld(f, func(c *Config) {
		c.Resolver = unreachable{}
		c.Recorder = rec
		c.Logger = slog.New(slog.NewTextHandler(&operator, &slog.HandlerOptions{Level: slog.LevelError}))
	})
	f.Fuzz(func(t *testing.T, in []byte) {
		conn, err := net.Dial("tcp", w.addr[std].String())
		require.NoError(t, err)
		c := newClient(t, conn.(*net.TCPConn))
		go func() {
			_, _ = c.Write(in)
			_ = c.CloseWrite()
		}()
		out, _ := io.ReadAll(c.br)
		_ = c.Close()
		require.Eventually(t, func() bool { return w.Stats().Connections == 0 }, patience, time.Millisecond)
		recorded := rec.take()
		events := eventHeader.FindAllSubmatch(out, -1)
		if n := len(statusLine.FindAll(out, -1)); n != len(events) {
			t.Fatalf("%d answers, %d with a record\n%q\n%s", n, len(events), in, out)
		}
		for _, m := range events {
			if !recorded[string(m[1])] {
				t.Fatalf("no record %s\n%q", m[1], in)
			}
		}
		if operator.Len() > 0 {
			t.Fatalf("%s\n%q", operator.String(), in)
		}
	})
}
