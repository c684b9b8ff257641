package proxy

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sluicegate/audit"
)

// Real TLS through the gate, with servers and clients of the standard library.

// tlsOrigin is a server with a certificate of its own.
func tlsOrigin(t *testing.T, w *world, addr, name string, change func(*tls.Config)) (*x509.CertPool, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	leaf, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	config := &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, NextProtos: []string{"h2", "http/1.1"},
	}
	if change != nil {
		change(config)
	}
	w.origin(addr, func(c *originConn) {
		s := tls.Server(c.TCPConn, config)
		_, _ = io.Copy(s, s)
		_ = s.Close()
	})
	return pool, der
}

// shakeHands speaks TLS through a tunnel and back.
func shakeHands(t *testing.T, w *world, config *tls.Config) tls.ConnectionState {
	t.Helper()
	c := w.tunnelTo(std, "allowed.test:443")
	s := tls.Client(c.TCPConn, config)
	_, err := io.WriteString(s, "hello")
	require.NoError(t, err)
	b := make([]byte, 5)
	_, err = io.ReadFull(s, b)
	require.NoError(t, err)
	assert.Equal(t, "hello", string(b))
	_ = s.Close()
	_, _ = io.Copy(io.Discard, c)
	return s.ConnectionState()
}

// R-T03: the certificate and the protocol are the origin's, and sessions resume.
func TestR_T03_NoInterception(t *testing.T) {
	for name, version := range map[string]uint16{"TLS 1.2": tls.VersionTLS12, "TLS 1.3": tls.VersionTLS13} {
		t.Run(name, func(t *testing.T) {
			w := strictWorld(t)
			pool, der := tlsOrigin(t, w, allowedIP+":443", "allowed.test", nil)
			config := &tls.Config{
				ServerName: "allowed.test", RootCAs: pool, MinVersion: version, MaxVersion: version,
				NextProtos: []string{"h2"}, ClientSessionCache: tls.NewLRUClientSessionCache(1),
			}
			first := shakeHands(t, w, config)
			assert.Equal(t, der, first.PeerCertificates[0].Raw)
			assert.Equal(t, "h2", first.NegotiatedProtocol)
			assert.False(t, first.DidResume)
			assert.True(t, shakeHands(t, w, config).DidResume)
			w.finish()
		})
	}
}

// R-T02: a hello of any size, cut anywhere, with a retry or without.
func TestR_T02_LargeAndSplitHello(t *testing.T) {
	t.Run("post-quantum", func(t *testing.T) {
		w := strictWorld(t)
		pool, _ := tlsOrigin(t, w, allowedIP+":443", "allowed.test", nil)
		shakeHands(t, w, &tls.Config{ServerName: "allowed.test", RootCAs: pool})
		w.finish()
	})
	t.Run("retry", func(t *testing.T) {
		w := strictWorld(t)
		pool, _ := tlsOrigin(t, w, allowedIP+":443", "allowed.test", func(c *tls.Config) {
			c.CurvePreferences = []tls.CurveID{tls.CurveP384}
		})
		state := shakeHands(t, w, &tls.Config{ServerName: "allowed.test", RootCAs: pool, CurvePreferences: []tls.CurveID{tls.X25519, tls.CurveP384}})
		assert.True(t, state.HelloRetryRequest, "this test shows nothing without a retry")
		w.finish()
	})
	hello := message(sni("allowed.test"), ext(21, strings.Repeat("\x00", 3800)))
	for name, tt := range map[string]struct{ size, step int }{
		"three records": {1500, 1 << 20}, "two writes": {1 << 14, 1900}, "byte by byte": {1 << 14, 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := strictWorld(t)
			w.origin(allowedIP+":443", echo)
			c := w.tunnelTo(std, "allowed.test:443")
			require.NoError(t, c.SetNoDelay(true))
			in := records(hello, tt.size)
			for i := 0; i < len(in); i += tt.step {
				c.send(in[i:min(i+tt.step, len(in))])
			}
			assert.Equal(t, in, c.read(len(in)))
			require.NoError(t, c.CloseWrite())
			assert.Empty(t, c.rest())
			w.finish()
		})
	}
}

// tls-sni-038: what is inside TLS is not seen. It is documented, and this test
// is here to fail when that changes.
func TestFrontingIsNotSeen(t *testing.T) {
	w := strictWorld(t)
	pool, _ := tlsOrigin(t, w, allowedIP+":443", "allowed.test", nil)
	c := w.tunnelTo(std, "allowed.test:443")
	s := tls.Client(c.TCPConn, &tls.Config{ServerName: "allowed.test", RootCAs: pool})
	const inside = "GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n"
	_, err := io.WriteString(s, inside)
	require.NoError(t, err)
	b := make([]byte, len(inside))
	_, err = io.ReadFull(s, b)
	require.NoError(t, err)
	_ = s.Close()
	w.finish()
	w.only(audit.EgressOpened)
}
