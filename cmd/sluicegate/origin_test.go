//go:build unix

package main_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// authority issues the certificate of the secure origin.
type authority struct {
	file string // PEM, for curl and git
	pool *x509.CertPool
	leaf tls.Certificate
}

func newAuthority(t *testing.T, dir string) *authority {
	t.Helper()
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority of a test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, &caKey.PublicKey, caKey)
	require.NoError(t, err)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), DNSNames: []string{"dev.example.com", "api.anthropic.com"},
		NotBefore: ca.NotBefore, NotAfter: ca.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	leafDER, err := x509.CreateCertificate(rand.Reader, leaf, ca, &key.PublicKey, caKey)
	require.NoError(t, err)

	a := &authority{
		file: filepath.Join(dir, "ca.pem"), pool: x509.NewCertPool(),
		leaf: tls.Certificate{Certificate: [][]byte{leafDER}, PrivateKey: key},
	}
	caPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: caDER})
	require.True(t, a.pool.AppendCertsFromPEM(caPEM))
	write(t, a.file, string(caPEM))
	return a
}

// origin is an HTTP server on loopback that clients want to reach.
type origin struct {
	port  int
	conns atomic.Int64 // accepted so far
	mux   *http.ServeMux
	slow  chan struct{} // closed to let /slow finish
}

const greeting = "hello from the origin\n"

// Halves of what /slow sends.
const (
	firstHalf  = "the first half\n"
	secondHalf = "the second half\n"
)

// newOrigin serves https if there is an authority, else http. It answers /hello
// at once and /slow in two halves.
func newOrigin(t *testing.T, ca *authority) *origin {
	t.Helper()
	o := &origin{mux: http.NewServeMux(), slow: make(chan struct{})}
	o.mux.HandleFunc("/hello", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, greeting) })
	o.mux.HandleFunc("/slow", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, firstHalf)
		_ = http.NewResponseController(w).Flush()
		select {
		case <-o.slow:
			_, _ = io.WriteString(w, secondHalf)
		case <-r.Context().Done():
		}
	})
	s := httptest.NewUnstartedServer(o.mux)
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			o.conns.Add(1)
		}
	}
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // of clients that leave early
	if ca != nil {
		s.TLS = &tls.Config{Certificates: []tls.Certificate{ca.leaf}}
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	o.port = s.Listener.Addr().(*net.TCPAddr).Port
	return o
}
