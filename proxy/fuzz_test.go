package proxy

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	"sluicegate/policy"
)

// Whatever parseHead accepts net/http accepts too, and reads as the same
// request: method, target, host, length and end.
func FuzzParseHead(f *testing.F) {
	for _, tt := range headFaults {
		f.Add([]byte(tt.in))
	}
	for _, s := range []string{
		connectTo("a.test:443"), get("http://a.test/x?y"), post("http://a.test:81/", "body"), get("http://[2606::1]/"),
		postChunked("http://a.test/", ""), "\r\n" + get("http://a.test/"), "GET http://a.test/ HTTP/1.0\r\n\r\n",
		lines("GET http://a.test/%41%2f HTTP/1.1", "Host: a.test", "Pragma: no-cache", "Trailer: X", "Connection: close"),
		lines("HEAD http://a.test/ HTTP/1.1", "Host: a", "Content-Length: 5"),
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		n, ft := scanHead(in, 0)
		if ft != nil || n == 0 {
			return
		}
		h, ft := parseHead(in[:n])
		if ft != nil {
			return
		}
		br := bufio.NewReader(bytes.NewReader(in[:n]))
		r, err := http.ReadRequest(br)
		if err != nil {
			t.Fatalf("net/http refuses what was accepted: %v\n%q", err, in[:n])
		}
		if br.Buffered() != 0 {
			t.Fatalf("net/http sees the end of the head %d bytes earlier\n%q", br.Buffered(), in[:n])
		}
		if !h.isConnect() && !h.describes(r) || r.Method != h.method || r.RequestURI != h.target {
			t.Fatalf("net/http reads %s %s length %d, not %+v\n%q", r.Method, r.RequestURI, r.ContentLength, h, in[:n])
		}
		if r.ProtoMajor != 1 || r.ProtoMinor != h.minor {
			t.Fatalf("net/http reads version %s, not 1.%d", r.Proto, h.minor)
		}
		if len(r.TransferEncoding) > 0 != h.chunked {
			t.Fatalf("net/http reads codings %q, not chunked=%v", r.TransferEncoding, h.chunked)
		}
		sameHost(t, h, r)
	})
}

// sameHost wants that both readers would go to the same place.
func sameHost(t *testing.T, h *head, r *http.Request) {
	t.Helper()
	var dest policy.Destination
	var err error
	if h.isConnect() {
		dest, err = policy.ParseAuthority(r.URL.Host)
	} else {
		dest, err = policy.ParseTarget("http://" + r.URL.Host)
	}
	if err != nil || dest != h.dest || r.Host != r.URL.Host || r.URL.User != nil {
		t.Fatalf("net/http goes to %q (%v), not %s\n%+v", r.URL.Host, err, h.dest, h)
	}
}

// Whatever body accepts net/http reads to the end, with the same content, and
// both see the end at the same byte.
func FuzzBody(f *testing.F) {
	for _, s := range bodyFaults {
		f.Add([]byte(s))
	}
	for _, s := range []string{
		"0\r\n\r\nGET ", "4\r\nbody\r\n0\r\n\r\n", "4;x=y\r\nbody\r\n00\r\nX: 1\r\n\r\nmore",
		"1;" + strings.Repeat("x", 200) + "\r\nx\r\n0\r\n\r\n", "0\r\nX: " + strings.Repeat("x", 4000) + "\r\n\r\n",
		strings.Repeat("1;"+strings.Repeat("x", 100)+"\r\nx\r\n", 50) + "0\r\n\r\n",
	} {
		f.Add([]byte(s))
	}
	const head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
	f.Fuzz(func(t *testing.T, in []byte) {
		n, done, ft := follow(chunked, string(in))
		bn, bdone, bft := follow(chunked, strings.Split(string(in), "")...)
		if n != bn || done != bdone || (ft == nil) != (bft == nil) {
			t.Fatalf("cut into bytes it is another body: %d %v %v, %d %v %v", n, done, ft, bn, bdone, bft)
		}
		if ft != nil || !done {
			return
		}
		br := bufio.NewReader(io.MultiReader(strings.NewReader(head), bytes.NewReader(in)))
		r, err := http.ReadRequest(br)
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatalf("net/http refuses what was accepted: %v\n%q", err, in[:n])
		}
		rest, _ := io.ReadAll(br)
		if len(rest) != len(in)-n {
			t.Fatalf("net/http sees the end at %d, not %d\n%q", len(in)-len(rest), n, in)
		}
		if len(content) > n {
			t.Fatalf("more content than body")
		}
	})
}
