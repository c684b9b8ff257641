package control

import (
	"errors"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"sluicegate/internal/identity"
)

// Limits of the server. A client that reaches one loses its own connection or
// waits; the daemon never does.
const (
	// MaxConns is how many connections are served at a time. More wait in the
	// kernel's queue.
	MaxConns = 32
	// MaxHeaderBytes bounds the head of a request; net/http adds 4 KiB of slack.
	MaxHeaderBytes = 8 << 10
	// MaxRequestBody bounds the body of a request.
	MaxRequestBody = 64 << 10
	// ReadHeaderTimeout is how long a client may take to send a head.
	ReadHeaderTimeout = 5 * time.Second
	// WriteTimeout is how long one request may take from its head to the end of
	// its answer. It bounds the reading of the body too, and net/http cancels
	// the request's context when it is over.
	WriteTimeout = 30 * time.Second
)

// host is the only Host header that is served, and the one [Client] sends.
const host = "sluicegate"

// Options says what [Listen] serves and where.
type Options struct {
	// Path is the socket. It must be absolute and short enough for the operating
	// system (107 bytes on Linux, 103 on macOS). The daemon also keeps Path.lock.
	Path string

	// Logger gets refused connections, panics and faults of the server. If nil,
	// they are discarded.
	Logger *slog.Logger

	// Handler answers the requests that passed the guards; it must not be nil. It
	// is called concurrently. Reading a body beyond [MaxRequestBody] gives it an
	// *http.MaxBytesError; a panic is logged and answered with 500.
	Handler http.Handler

	// Test seams; the zero values mean the real thing.
	testOnlyIdentify          func(*net.UnixConn) (identity.Peer, error)
	testOnlyReadHeaderTimeout time.Duration
	testOnlyMaxConns          int
}

// validate fills in defaults and reports everything that is wrong.
func (o *Options) validate() error {
	var problems []error
	if o.Handler == nil {
		problems = append(problems, errors.New("control server without a handler"))
	}
	if err := checkPath(o.Path); err != nil {
		problems = append(problems, err)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.testOnlyIdentify == nil {
		o.testOnlyIdentify = identity.Unix
	}
	if o.testOnlyReadHeaderTimeout == 0 {
		o.testOnlyReadHeaderTimeout = ReadHeaderTimeout
	}
	if o.testOnlyMaxConns == 0 {
		o.testOnlyMaxConns = MaxConns
	}
	return errors.Join(problems...)
}

// checkPath says why path can't name a socket. A relative path would mean
// another socket in each working folder; one that is too long fails in the
// kernel with nothing but "invalid argument".
func checkPath(path string) error {
	switch {
	case path == "":
		return failf(ErrPath, nil, "no control socket path is set")
	case strings.ContainsAny(path, "\x00\n\r"):
		return failf(ErrPath, nil, "control socket path %q contains control characters: choose another path", path)
	case !filepath.IsAbs(path):
		return failf(ErrPath, nil, "control socket path %q is not absolute: write it from the root folder on", path)
	case filepath.Clean(path) != path:
		return failf(ErrPath, nil, "control socket path %q is not in its shortest form: write %s", path, filepath.Clean(path))
	case len(path) > maxPath:
		return failf(ErrPath, nil,
			"control socket path %s is %d bytes long, this system allows %d: choose a shorter folder, for example under $XDG_RUNTIME_DIR",
			path, len(path), maxPath)
	}
	return nil
}
