package daemon

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"sluicegate/audit"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// openTunnel opens a tunnel through a new daemon to a server that says nothing.
func openTunnel(t *testing.T) (d *Daemon, o Options, client net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	_, port, err := net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	o = newOptions(t, "    allow:", "      - {ip: 127.0.0.1, ports: ["+port+"], id: local}")
	d, err = Start(t.Context(), o)
	require.NoError(t, err)
	client, err = net.Dial("tcp", d.bound[0].Addresses[0].String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	require.NoError(t, client.SetDeadline(time.Now().Add(patience)))
	target := net.JoinHostPort("127.0.0.1", port)
	_, err = io.WriteString(client, "CONNECT "+target+" HTTP/1.1\r\nHost: "+target+"\r\n\r\n")
	require.NoError(t, err)
	resp, err := http.ReadResponse(bufio.NewReader(client), &http.Request{Method: http.MethodConnect})
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, resp.StatusCode)
	return d, o, client
}

// A stop that can't wait cuts what is open, and is still recorded.
func TestShutdownAtOnce(t *testing.T) {
	quiet := goleak.IgnoreCurrent()
	d, o, client := openTunnel(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, d.Shutdown(ctx, "error"))
	_, err := client.Read(make([]byte, 1))
	assert.Error(t, err)

	all := events(t, o.Settings.AuditFile)
	require.Len(t, all, 4)
	assert.Equal(t, &audit.End{Who: "gate", Why: "shutdown"}, all[2].End)
	assert.Equal(t, audit.ServiceStopped, all[3].Event)
	assert.Equal(t, &audit.Service{Cause: "error", CutFlows: 1}, all[3].Service)
	goleak.VerifyNone(t, quiet)
}

// A stop waits for a tunnel that ends by itself, and cuts nothing then.
func TestShutdownWaits(t *testing.T) {
	d, o, client := openTunnel(t)
	stopped := make(chan error, 1)
	go func() { stopped <- d.Shutdown(t.Context(), "signal") }()
	eventually(t, "the listener to close", func() bool {
		c, err := net.Dial("tcp", d.bound[0].Addresses[0].String())
		if err == nil {
			_ = c.Close()
		}
		return err != nil
	})
	assert.Equal(t, 1, d.Status().Traffic.Flows, "status answers meanwhile")
	require.NoError(t, client.(*net.TCPConn).SetLinger(0)) // leaves for good, at once
	require.NoError(t, client.Close())
	require.NoError(t, <-stopped)
	all := events(t, o.Settings.AuditFile)
	require.Len(t, all, 4)
	assert.Equal(t, "client", all[2].End.Who)
	assert.Equal(t, &audit.Service{Cause: "signal"}, all[3].Service)
}
