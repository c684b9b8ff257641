package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"sluicegate/internal/identity"
)

const (
	// DefaultTimeout bounds [Client.Get] if its context has no deadline.
	DefaultTimeout = 5 * time.Second
	// MaxResponseBody bounds an answer that [Client.Get] accepts.
	MaxResponseBody = 16 << 20
)

// Client asks the daemon over its control socket. Get one from [NewClient]; the
// zero value is not usable. It keeps no connection between calls, needs no
// closing and is safe for concurrent use.
type Client struct {
	path     string
	http     *http.Client
	identify func(*net.UnixConn) (identity.Peer, error) // a field for tests
}

// NewClient returns a client for the socket at path. It doesn't look whether
// anything is there: [Client.Get] says that.
func NewClient(path string) *Client {
	c := &Client{path: path, identify: identity.Unix}
	c.http = &http.Client{
		Transport: &http.Transport{
			Proxy:                  nil, // the environment has no say here
			DialContext:            c.dial,
			DisableKeepAlives:      true,
			DisableCompression:     true,
			MaxResponseHeaderBytes: 64 << 10,
		},
		// The daemon never redirects; following would leave the path asked for.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c
}

// Get asks for urlPath, which begins with a slash and is not escaped, with the
// parameters of query, which may be nil, and decodes the JSON answer into out.
// If out is nil, the answer's value is dropped.
//
// It gives up at ctx's deadline, or after [DefaultTimeout] if there is none.
// Errors: [ErrUnreachable] if no daemon listens; [ErrForeign] if the daemon
// there is another user's; [ErrPath] if the path can't name a socket; an
// [*APIError] if the daemon answered with a refusal; the context's error if
// there was no answer in time; others if the answer is unusable.
func (c *Client) Get(ctx context.Context, urlPath string, query url.Values, out any) error {
	return c.ask(ctx, http.MethodGet, urlPath, query, out)
}

// Post asks the daemon to do something; otherwise it is like [Client.Get].
func (c *Client) Post(ctx context.Context, urlPath string, query url.Values, out any) error {
	return c.ask(ctx, http.MethodPost, urlPath, query, out)
}

func (c *Client) ask(ctx context.Context, method, urlPath string, query url.Values, out any) error {
	if !strings.HasPrefix(urlPath, "/") {
		return fmt.Errorf("asking the daemon for %q: the path must begin with a slash", urlPath)
	}
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, DefaultTimeout)
		defer cancel()
	}
	u := url.URL{Scheme: "http", Host: host, Path: urlPath, RawQuery: query.Encode()}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), nil)
	if err != nil {
		return fmt.Errorf("asking the daemon for %q: %w", urlPath, err)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return c.explain(err)
	}
	defer resp.Body.Close()

	body, err := io.ReadAll(io.LimitReader(resp.Body, MaxResponseBody+1))
	if err != nil {
		return c.explain(err)
	}
	if len(body) > MaxResponseBody {
		return fmt.Errorf("the daemon's answer to %s is larger than %d bytes", urlPath, MaxResponseBody)
	}
	if resp.StatusCode != http.StatusOK {
		return apiError(resp, body)
	}
	if !isJSON(resp.Header) {
		return fmt.Errorf("the answer to %s is not JSON: does something else listen on %s?", urlPath, c.path)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(body, out); err != nil {
		return fmt.Errorf("decoding the daemon's answer to %s: %w", urlPath, err)
	}
	return nil
}

// dial connects to the daemon and makes sure that it is the own user's: what an
// impostor says about the policy would be believed.
func (c *Client) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	if err := checkPath(c.path); err != nil {
		return nil, err
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", c.path)
	switch {
	case err == nil:
	case isAbsent(err) || isRefused(err):
		return nil, failf(ErrUnreachable, err, "no daemon at %s: start it with \"sluicegate run\"", c.path)
	case errors.Is(err, fs.ErrPermission):
		return nil, failf(ErrForeign, err,
			"the control socket %s is closed to uid %d: run this command as the user who runs the daemon", c.path, os.Geteuid())
	default:
		return nil, err
	}
	if err := c.judge(conn); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// judge checks who listens at the other end of conn.
func (c *Client) judge(conn net.Conn) error {
	uc, ok := conn.(*net.UnixConn)
	if !ok {
		return fmt.Errorf("the control socket is a %T", conn)
	}
	peer, err := c.identify(uc)
	switch {
	case err != nil:
		return err
	case identity.Self().Entitled(peer):
		return nil
	case peer.Known:
		return failf(ErrForeign, nil,
			"the daemon at %s runs as uid %d and you are uid %d: run this command as that user", c.path, peer.UID, os.Geteuid())
	default:
		return failf(ErrForeign, nil, "who runs the daemon at %s is not known (%s)", c.path, peer.How)
	}
}

// explain turns an error of the transport into one for people: the URL in it
// means nothing to them.
func (c *Client) explain(err error) error {
	if ours := (*kindError)(nil); errors.As(err, &ours) {
		return ours
	}
	if urlErr := (*url.Error)(nil); errors.As(err, &urlErr) {
		err = urlErr.Err
	}
	return fmt.Errorf("the daemon at %s did not answer: %w", c.path, err)
}

// apiError reads an error answer. One that isn't ours (a route that doesn't
// exist, a limit of net/http) has only its status to tell.
func apiError(resp *http.Response, body []byte) error {
	e := &APIError{Status: resp.StatusCode}
	var b errorBody
	if isJSON(resp.Header) && json.Unmarshal(body, &b) == nil {
		e.Message, e.Hint = b.Error, b.Hint
	}
	if e.Message == "" {
		e.Message = http.StatusText(e.Status)
	}
	if e.Message == "" {
		e.Message = "unknown status"
	}
	return e
}

func isJSON(h http.Header) bool {
	kind, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	return err == nil && kind == "application/json"
}
