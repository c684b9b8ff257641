package control

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"sluicegate/internal/identity"
)

// idleTimeout is how long a kept-alive connection may hold its slot unused.
const idleTimeout = 10 * time.Second

// Server is the listening control API. Get one from [Listen]; the zero value is
// not usable. Its methods are safe for concurrent use.
type Server struct {
	socket *socket
	gate   *gate
	http   *http.Server
	log    *slog.Logger
	done   chan struct{} // closed when serving has ended: by serve, or by stop if it never began

	mu       sync.Mutex
	started  bool
	stopping bool

	release func() error // gives the lock up, once
}

// Listen makes the control socket and returns the server for it, which answers
// nothing until [Server.Start]. ctx bounds Listen itself, not the server.
//
// The caller must call [Server.Shutdown] or [Server.Close]. If Listen fails,
// nothing is left behind but the folder and the lock file. Errors that wrap
// [ErrRunning], [ErrUntrustedPath] and [ErrPath] are one line each that names
// the path and says what to do.
func Listen(ctx context.Context, o Options) (*Server, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	sock, err := claim(ctx, o.Path)
	if err != nil {
		return nil, err
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &Server{
		socket: sock,
		gate: &gate{
			socket:   sock,
			own:      identity.Self(),
			identify: o.testOnlyIdentify,
			log:      o.Logger,
			slots:    make(chan struct{}, o.testOnlyMaxConns),
			closing:  make(chan struct{}),
		},
		http: &http.Server{
			Handler:                      guard(o.Handler, o.Logger),
			Protocols:                    protocols,
			DisableGeneralOptionsHandler: true, // OPTIONS * is judged like the rest
			ReadHeaderTimeout:            o.testOnlyReadHeaderTimeout,
			ReadTimeout:                  WriteTimeout,
			WriteTimeout:                 WriteTimeout,
			IdleTimeout:                  idleTimeout,
			MaxHeaderBytes:               MaxHeaderBytes,
			ErrorLog:                     slog.NewLogLogger(o.Logger.Handler(), slog.LevelWarn),
		},
		log:     o.Logger,
		done:    make(chan struct{}),
		release: sync.OnceValue(sock.lock.release),
	}, nil
}

// Path returns the path of the control socket.
func (s *Server) Path() string { return s.socket.path }

// Done returns a channel that is closed when no more connections are accepted:
// after Shutdown or Close, or because accepting failed for good, which is logged.
func (s *Server) Done() <-chan struct{} { return s.done }

// Start begins to answer and returns at once. Calling it again, or after
// Shutdown or Close, does nothing.
func (s *Server) Start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started || s.stopping {
		return
	}
	s.started = true
	go s.serve()
}

// serve runs until the gate is closed.
func (s *Server) serve() {
	defer close(s.done)
	err := s.http.Serve(s.gate)
	if errors.Is(err, http.ErrServerClosed) || errors.Is(err, net.ErrClosed) {
		return
	}
	s.log.LogAttrs(context.Background(), slog.LevelError, "control server stopped",
		slog.String("path", s.socket.path), slog.String("err", err.Error()))
}

// Shutdown stops accepting, removes the socket, waits for the requests that are
// being answered and gives the lock up, in this order: a daemon that starts
// meanwhile is told that this one still runs.
//
// If ctx ends first, the remaining connections are cut as by Close, and ctx's
// error is returned; a handler that ignores its request's context may then
// still run. Calling it again, or after Close, returns nil.
func (s *Server) Shutdown(ctx context.Context) error {
	err := s.stop()
	if waitErr := s.http.Shutdown(ctx); waitErr != nil {
		err = errors.Join(err, waitErr, s.http.Close())
	}
	<-s.done
	return errors.Join(err, s.release())
}

// Close stops at once: open connections are cut, which cancels the contexts of
// their requests; handlers are not waited for, nor is net/http, which lingers
// half a second over a connection that broke a limit. Calling it again, or after
// Shutdown, returns nil.
func (s *Server) Close() error {
	err := errors.Join(s.stop(), s.http.Close())
	<-s.done
	return errors.Join(err, s.release())
}

// stop closes the gate and removes the socket, the first time it is called.
func (s *Server) stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return nil
	}
	s.stopping = true
	if !s.started {
		close(s.done)
	}
	// Removed before it is closed: a client finds a live socket or none.
	return errors.Join(s.socket.unlink(), s.gate.Close())
}
