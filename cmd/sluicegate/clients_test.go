//go:build unix

package main_test

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// newClient is an HTTP client behind a proxy.
func newClient(proxy string, ca *authority) *http.Client {
	return &http.Client{
		Timeout: patience,
		Transport: &http.Transport{
			Proxy:           func(*http.Request) (*url.URL, error) { return url.Parse(proxy) },
			TLSClientConfig: &tls.Config{RootCAs: ca.pool},
		},
	}
}

// answer is what a gate said to a request.
type answer struct {
	status  int
	event   string // the header field
	problem problem
}

// ask sends one request by hand, as clients do not send every target: a CONNECT
// for an https URL, else a GET, and wants a refusal.
func ask(proxy, target string) (answer, error) {
	conn, resp, err := dialThrough(strings.TrimPrefix(proxy, "http://"), target)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = conn.Close() }()
	defer func() { _ = resp.Body.Close() }()
	a := answer{status: resp.StatusCode, event: resp.Header.Get("X-Sluicegate-Event")}
	if resp.StatusCode == http.StatusOK {
		return a, nil
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return a, err
	}
	if err := json.Unmarshal(body, &a.problem); err != nil {
		return a, fmt.Errorf("the refusal's body is %q: %w", body, err)
	}
	return a, nil
}

// dialThrough sends a request and returns the connection with the head of the
// answer. Without a port a CONNECT goes to 443.
func dialThrough(gate, target string) (net.Conn, *http.Response, error) {
	request := "GET " + target + " HTTP/1.1\r\nHost: example.com\r\n\r\n"
	method := http.MethodGet
	if authority, secure := strings.CutPrefix(target, "https://"); secure {
		if !strings.Contains(authority, ":") {
			authority += ":443"
		}
		method, request = http.MethodConnect, "CONNECT "+authority+" HTTP/1.1\r\nHost: "+authority+"\r\n\r\n"
	}
	conn, err := net.Dial("tcp", gate)
	if err != nil {
		return nil, nil, err
	}
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, nil, err
	}
	if _, err := io.WriteString(conn, request); err != nil {
		return nil, nil, err
	}
	// Behind the head of an accepted CONNECT nothing comes before the client
	// has sent something, so the reader holds back no byte of a tunnel.
	resp, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	if err != nil {
		_ = conn.Close()
		return nil, nil, err
	}
	return conn, resp, nil
}

// tunnel opens a tunnel to the plain origin, as a raw connection: the policy of
// a new world allows CONNECT to its port too.
func (w *world) tunnel(gate string) net.Conn {
	w.t.Helper()
	conn, resp, err := dialThrough(gate, w.plainTunnel())
	require.NoError(w.t, err)
	w.t.Cleanup(func() { _ = conn.Close() })
	require.Equal(w.t, http.StatusOK, resp.StatusCode)
	return conn
}

// get asks for a path of the plain origin and returns a reader of its answer.
func get(t *testing.T, conn net.Conn, path string) io.Reader {
	t.Helper()
	_, err := io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: plain.example.com\r\nConnection: close\r\n\r\n")
	require.NoError(t, err)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	return resp.Body
}
