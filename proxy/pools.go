package proxy

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"
)

type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// pools keep the upstream connections of one profile. Those that were dialled
// under one policy are never used under another: when the policy changes, a new
// pool takes over, and the old one ends with its last request.
type pools struct {
	dial dialFunc
	idle time.Duration

	mu     sync.Mutex
	now    *pool
	closed bool
}

// pool is the connections of one policy.
type pool struct {
	transport *http.Transport
	digest    string
	users     int
	retired   bool
}

// acquire returns the pool of a policy; the caller releases it.
func (ps *pools) acquire(digest string) *pool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.now == nil || ps.now.digest != digest {
		ps.retireLocked(ps.now)
		ps.now = &pool{transport: newTransport(ps.dial, ps.idle), digest: digest, retired: ps.closed}
	}
	ps.now.users++
	return ps.now
}

func (ps *pools) release(p *pool) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if p.users--; p.users == 0 && p.retired {
		p.transport.CloseIdleConnections()
	}
}

// close ends all pools, each with its last request.
func (ps *pools) close() {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.closed = true
	ps.retireLocked(ps.now)
}

// retireLocked drops the idle connections of a pool; those in use follow.
func (ps *pools) retireLocked(p *pool) {
	if p != nil {
		p.retired = true
		p.transport.CloseIdleConnections()
	}
}

// newTransport makes a transport that reaches only what dial connects to, and
// adds nothing to a request.
func newTransport(dial dialFunc, idle time.Duration) *http.Transport {
	return &http.Transport{
		Proxy:       nil,
		DialContext: dial,
		// A judged request is plain HTTP; nothing here may originate TLS.
		DialTLSContext: func(context.Context, string, string) (net.Conn, error) {
			return nil, errors.New("proxy: TLS is not originated")
		},
		DisableCompression:     true,
		ForceAttemptHTTP2:      false,
		MaxIdleConns:           256,
		MaxIdleConnsPerHost:    32,
		IdleConnTimeout:        30 * time.Second,
		ResponseHeaderTimeout:  idle,
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: maxResponseHeader,
	}
}
