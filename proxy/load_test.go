package proxy

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
)

// R-P28: many tunnels, one after the other and at once, all work.
func TestManyTunnels(t *testing.T) {
	w := newWorld(t)
	w.origin(allowedIP+":443", echo)
	one := func() error {
		conn, err := net.Dial("tcp", w.addr[std].String())
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		hello := fmt.Sprintf("%1000d", 1)
		if _, err := io.WriteString(conn, connectTo("allowed.test:443")+hello); err != nil {
			return err
		}
		_ = conn.(*net.TCPConn).CloseWrite()
		got, err := io.ReadAll(conn)
		if err == nil && string(got) != established+hello {
			err = fmt.Errorf("got %q", got)
		}
		return err
	}
	for range 100 {
		assert.NoError(t, one())
	}
	var all sync.WaitGroup
	for range 60 {
		all.Go(func() { assert.NoError(t, one()) })
	}
	all.Wait()
	w.finish()
	assert.Len(t, w.rec.Events(), 2*160)
}

// Many clients and a policy that keeps changing: nothing fails, nothing is
// counted wrong, no connection outlives its policy.
func TestReloadUnderLoad(t *testing.T) {
	w := newWorld(t)
	w.numbered()
	stop := make(chan struct{})
	var reloads sync.WaitGroup
	reloads.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				w.load(fmt.Sprintf("%s# %d\n", stdYAML(), i))
			}
		}
	})
	var all sync.WaitGroup
	const clients, each = 8, 25
	for n := range clients {
		c := w.dial(std)
		all.Go(func() {
			for i := range each {
				want, request := 200, get(fmt.Sprintf("http://allowed.test/%d/%d", n, i))
				switch i % 5 {
				case 3:
					want, request = 403, get("http://evil.test/")
				case 4:
					request = post(fmt.Sprintf("http://allowed.test/%d/%d", n, i), "body")
				}
				if _, err := io.WriteString(c, request); !assert.NoError(t, err) {
					return
				}
				r, err := http.ReadResponse(c.br, nil)
				if !assert.NoError(t, err) {
					return
				}
				body, err := io.ReadAll(r.Body)
				assert.NoError(t, err)
				assert.Equal(t, want, r.StatusCode)
				if want == 200 {
					assert.Equal(t, fmt.Sprintf("/%d/%d", n, i), string(body))
				}
			}
		})
	}
	all.Wait()
	close(stop)
	reloads.Wait()
	w.finish()
	assert.Len(t, w.rec.Events(), clients*each)
	stats := w.Stats()
	assert.Equal(t, int64(clients*each/5), stats.Refused)
	assert.Equal(t, int64(clients*each*4/5), stats.Opened)
}
