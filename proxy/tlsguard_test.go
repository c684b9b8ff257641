package proxy

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sluicegate/audit"
)

// strictWorld is a world in which tunnels must be what they say, as by default.
func strictWorld(t *testing.T, change ...func(*Config)) *world {
	t.Helper()
	w := newWorld(t, change...)
	w.load(strings.ReplaceAll(stdYAML(), ", tls: any", ""))
	return w
}

// alert is what a TLS client is told.
var alert = string(accessDenied)

func TestHelloLetsTunnelPass(t *testing.T) {
	hello := records(message(sni("allowed.test"), ext(extALPN, sized16("\x02h2\x08http/1.1"))), 1<<14)
	for name, tt := range map[string]struct{ request, granted string }{
		"connect": {connectTo("allowed.test:443"), established},
		"socks":   {socksHello + socksTo("allowed.test:443"), "\x05\x00" + socksReplied(0)},
	} {
		for how, early := range map[string]bool{"early": true, "later": false} {
			t.Run(name+" "+how, func(t *testing.T) {
				w := strictWorld(t)
				w.origin(allowedIP+":443", echo)
				c := w.dial(std)
				if early {
					c.send(tt.request + hello)
				} else {
					c.send(tt.request)
				}
				require.Equal(t, tt.granted, c.read(len(tt.granted)))
				if !early {
					c.send(hello)
				}
				assert.Equal(t, hello, c.read(len(hello)), "unchanged")
				c.send(record(recordData, "more"))
				assert.Equal(t, record(recordData, "more"), c.read(9))
				require.NoError(t, c.CloseWrite())
				assert.Empty(t, c.rest())
				w.wantRecords(
					"egress.opened allow rule allowed.test:443 [allowed]",
					"egress.closed allow rule allowed.test:443 [allowed] client|client_closed",
				)
				e := w.only(audit.EgressOpened)
				assert.Equal(t, "allowed.test", e.SNI)
				assert.Equal(t, []string{"h2", "http/1.1"}, e.ALPN)
				assert.False(t, e.ECH)
				assert.Equal(t, int64(len(hello)+9), *w.only(audit.EgressClosed).BytesOut)
			})
		}
	}
}

// R-T01: what names another host ends before the origin has seen a byte, and the
// record has both names.
func TestR_T01_AnotherName(t *testing.T) {
	for name, tt := range map[string]struct{ sent, answer, reason, sni string }{
		"another":          {records(message(sni("denied.example.net")), 1<<14), alert, "sni_mismatch", "denied.example.net"},
		"another allowed":  {records(message(sni("other.test")), 1<<14), alert, "sni_mismatch", "other.test"},
		"in pieces":        {records(message(sni("denied.example.net")), 10), alert, "sni_mismatch", "denied.example.net"},
		"none":             {records(message(), 1<<14), alert, "sni_missing", ""},
		"NUL":              {records(message(sni("allowed.test\x00.evil.test")), 1<<14), alert, "sni_invalid", `allowed.test\x00.evil.test`},
		"two":              {records(message(sni("allowed.test", "evil.test")), 1<<14), alert, "sni_invalid", "allowed.test"},
		"SSH":              {"SSH-2.0-OpenSSH_9.6\r\n", "", "protocol_mismatch", ""},
		"HTTP":             {"GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n", "", "protocol_mismatch", ""},
		"broken":           {records("\x02\x00\x00\x01x", 1<<14), alert, "tls_malformed", ""},
		"endless":          {records("\x01\xff\xff\xff"+strings.Repeat("x", 70<<10), 1<<14), alert, "too_large", ""},
		"case and dot":     {records(message(sni("Allowed.TEST.")), 1<<14), "", "", "Allowed.TEST."},
		"ECH, same":        {records(message(sni("allowed.test"), ext(extECH, "\x00\x01")), 1<<14), "", "", "allowed.test"},
		"ECH, outer other": {records(message(sni("public.test"), ext(extECH, "\x00\x01")), 1<<14), alert, "sni_mismatch", "public.test"},
	} {
		t.Run(name, func(t *testing.T) {
			w := strictWorld(t)
			o := w.origin(allowedIP+":443", echo)
			c := w.tunnelTo(std, "allowed.test:443")
			c.send(tt.sent)
			if tt.reason == "" {
				assert.Equal(t, tt.sent, c.read(len(tt.sent)))
				require.NoError(t, c.CloseWrite())
				assert.Empty(t, c.rest())
				w.finish()
				assert.Equal(t, tt.sni, w.only(audit.EgressClosed).SNI)
				assert.Equal(t, strings.HasPrefix(name, "ECH"), w.only(audit.EgressClosed).ECH)
				return
			}
			assert.Equal(t, tt.answer, c.rest())
			w.wantRecords("egress.denied deny " + tt.reason + " allowed.test:443 [allowed]")
			e := w.only(audit.EgressDenied)
			assert.Equal(t, tt.sni, e.SNI)
			assert.Equal(t, "sni", e.Stage)
			assert.Zero(t, o.received(w), "the origin got bytes")
		})
	}
}

// The refusal's record stands before the alert.
func TestHelloRefusalIsRecordedFirst(t *testing.T) {
	w := strictWorld(t)
	w.origin(allowedIP+":443", echo)
	recording, release := make(chan struct{}), make(chan struct{})
	w.rec.before(func(audit.Event) {
		close(recording)
		<-release
	})
	c := w.tunnelTo(std, "allowed.test:443")
	c.send(records(message(sni("evil.test")), 1<<14))
	<-recording
	c.silent()
	close(release)
	assert.Equal(t, alert, c.rest())
	w.finish()
}

// The record of an opened tunnel stands before the hello goes on, and without it
// nothing does.
func TestHelloOpenedIsRecordedFirst(t *testing.T) {
	hello := records(message(sni("allowed.test")), 1<<14)
	t.Run("order", func(t *testing.T) {
		w := strictWorld(t)
		accepted := make(chan *originConn, 1)
		w.origin(allowedIP+":443", func(c *originConn) {
			accepted <- c
			echo(c)
		})
		recording, release := make(chan struct{}), make(chan struct{})
		w.rec.before(func(e audit.Event) {
			if e.Event == audit.EgressOpened {
				close(recording)
				<-release
			}
		})
		c := w.tunnelTo(std, "allowed.test:443")
		c.send(hello)
		<-recording
		o := <-accepted
		c.silent()
		assert.Zero(t, o.raw.Len(), "the origin got bytes before the record")
		close(release)
		assert.Equal(t, hello, c.read(len(hello)))
	})
	t.Run("log broken", func(t *testing.T) {
		w := strictWorld(t)
		o := w.origin(allowedIP+":443", echo)
		c := w.tunnelTo(std, "allowed.test:443")
		w.rec.FailWith(errDisk)
		c.send(hello)
		assert.Empty(t, c.rest(), "without a record nobody is told that he was refused")
		w.wantRecords()
		assert.Zero(t, o.received(w))
	})
}

// A client that says nothing is ended and told of; one that leaves is no refusal.
func TestHelloThatDoesNotCome(t *testing.T) {
	soon := func(c *Config) { c.Limits.Hello = 200 * time.Millisecond }
	half := records(message(sni("allowed.test")), 1<<14)[:40]
	for name, tt := range map[string]struct {
		sent   string
		leave  bool
		answer string
		record string
	}{
		"silent":      {"", false, "", "egress.denied deny timeout allowed.test:443 [allowed]"},
		"half":        {half, false, alert, "egress.denied deny timeout allowed.test:443 [allowed]"},
		"leaves":      {"", true, "", "egress.closed allow rule allowed.test:443 [allowed] client|client_closed"},
		"leaves half": {half, true, alert, "egress.denied deny tls_malformed allowed.test:443 [allowed]"},
	} {
		t.Run(name, func(t *testing.T) {
			w := strictWorld(t, soon)
			o := w.origin(allowedIP+":443", echo)
			c := w.tunnelTo(std, "allowed.test:443")
			c.send(tt.sent)
			if tt.leave {
				require.NoError(t, c.CloseWrite())
			}
			assert.Equal(t, tt.answer, c.rest())
			w.wantRecords(tt.record)
			assert.Zero(t, o.received(w))
		})
	}
	t.Run("revoked", func(t *testing.T) {
		w := strictWorld(t)
		w.origin(allowedIP+":443", echo)
		c := w.tunnelTo(std, "allowed.test:443")
		w.load(strings.ReplaceAll(without("allowed.test"), ", tls: any", ""))
		require.Equal(t, 1, w.Rejudge())
		assert.Empty(t, c.rest())
		w.wantRecords("egress.closed allow rule allowed.test:443 [allowed] gate|revoked")
	})
	t.Run("shutdown", func(t *testing.T) {
		w := strictWorld(t)
		w.origin(allowedIP+":443", echo)
		c := w.tunnelTo(std, "allowed.test:443")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		assert.Equal(t, 1, w.Shutdown(ctx))
		w.stopped = true
		c.ended()
		assert.Equal(t, []string{"egress.closed allow rule allowed.test:443 [allowed] gate|shutdown"}, w.rec.briefs())
	})
}

// A policy that comes between the tunnel and its hello counts.
func TestHelloAfterPolicyChange(t *testing.T) {
	w := strictWorld(t)
	w.load("version: 1\nproduct: agent\nprofiles:\n  std:\n    listen: {port: 18001}\n    allow:\n      - {ip: 93.184.216.34}\n      - {host: allowed.test}\n")
	w.origin(allowedIP+":443", echo)
	c := w.tunnelTo(std, allowedIP+":443")
	hello := records(message(sni("allowed.test")), 1<<14)
	c.send(hello)
	assert.Equal(t, hello, c.read(len(hello)), "an address, and a name that is allowed")
	w.load("version: 1\nproduct: agent\nprofiles:\n  std:\n    listen: {port: 18001}\n    allow:\n      - {ip: 93.184.216.34}\n")
	require.Equal(t, 1, w.Rejudge(), "the name is not allowed any more")
	assert.Empty(t, c.rest())
	w.finish()
}

// On other ports the server may speak first, anything may be spoken, and TLS
// must still name the host.
func TestHelloOnOtherPorts(t *testing.T) {
	greets := func(c *originConn) {
		c.write("220 hello\r\n")
		echo(c)
	}
	open := func(t *testing.T) (*world, *client, *origin) {
		w := strictWorld(t)
		o := w.origin(allowedIP+":8080", greets)
		c := w.tunnelTo(std, "ports.test:8080")
		require.Equal(t, "220 hello\r\n", c.read(11), "the server's words are not held up")
		return w, c, o
	}
	opened := "egress.opened allow rule ports.test:8080 [ports]"
	for name, sent := range map[string]string{
		"text": "EHLO\r\n", "like a record of TLS": "\x16\x00\x01\x00\x05hello", "a byte of TLS": "\x16\x20", "TLS": records(message(sni("ports.test")), 1<<14),
	} {
		t.Run(name, func(t *testing.T) {
			w, c, _ := open(t)
			c.send(sent)
			assert.Equal(t, sent, c.read(len(sent)))
			require.NoError(t, c.CloseWrite())
			assert.Empty(t, c.rest())
			w.wantRecords(opened, "egress.closed allow rule ports.test:8080 [ports] client|client_closed")
		})
	}
	for name, tt := range map[string]struct{ sent, reason string }{
		"another name": {records(message(sni("evil.test")), 1<<14), "sni_mismatch"},
		"cut":          {records(message(sni("ports.test")), 1<<14)[:20], "tls_malformed"},
	} {
		t.Run(name, func(t *testing.T) {
			w, c, o := open(t)
			c.send(tt.sent)
			require.NoError(t, c.CloseWrite())
			assert.Equal(t, alert, c.rest())
			w.wantRecords(opened, "egress.denied deny "+tt.reason+" ports.test:8080 [ports]",
				"egress.closed allow rule ports.test:8080 [ports] gate|"+tt.reason)
			assert.Zero(t, o.received(w))
		})
	}
}

// Observe mode lets another name pass and says so at once.
func TestHelloObserved(t *testing.T) {
	w := newWorld(t)
	w.load("version: 1\nproduct: agent\nprofiles:\n  std:\n    listen: {port: 18001}\n    mode: observe\n    allow: [{host: allowed.test, id: allowed}]\n")
	w.origin(allowedIP+":443", echo)
	for i, sent := range []string{records(message(sni("evil.test")), 1<<14), "SSH-2.0-x\r\n"} {
		c := w.tunnelTo(std, "allowed.test:443")
		c.send(sent)
		assert.Equal(t, sent, c.read(len(sent)))
		require.NoError(t, c.CloseWrite())
		assert.Empty(t, c.rest())
		w.wait("its records", func() bool { return len(w.rec.Events()) == 2*(i+1) })
	}
	w.wantRecords(
		"egress.observed would_deny observe would=sni_mismatch allowed.test:443 [allowed]",
		"egress.closed would_deny observe would=sni_mismatch allowed.test:443 [allowed] client|client_closed",
		"egress.observed would_deny observe would=protocol_mismatch allowed.test:443 [allowed]",
		"egress.closed would_deny observe would=protocol_mismatch allowed.test:443 [allowed] client|client_closed",
	)
}

// tls-sni-037: after a retry the second hello must name the same host.
func TestHelloAfterRetry(t *testing.T) {
	w := strictWorld(t)
	first := records(message(sni("allowed.test")), 1<<14)
	second := records(message(sni("evil.test"), ext(21, strings.Repeat("\x00", 100))), 1<<14)
	retry := "\x02\x00\x00\x30\x03\x03" + string(retryRandom[:]) + strings.Repeat("x", 14)
	got := make(chan string, 1)
	w.origin(allowedIP+":443", func(c *originConn) {
		c.read(len(first))
		c.write(record(recordHandshake, retry))
		b, _ := io.ReadAll(c.br)
		got <- string(b)
	})
	c := w.tunnelTo(std, "allowed.test:443")
	c.send(first)
	c.read(recordHeader + len(retry))
	ccs := record(recordChangeCipherSpec, "\x01")
	c.send(ccs + second)
	assert.Equal(t, alert, c.rest())
	assert.NotContains(t, <-got, second[:5], "the second hello went on")
	w.wantRecords(
		"egress.opened allow rule allowed.test:443 [allowed]",
		"egress.denied deny sni_mismatch allowed.test:443 [allowed]",
		"egress.closed allow rule allowed.test:443 [allowed] gate|sni_mismatch",
	)
	assert.Equal(t, "evil.test", w.only(audit.EgressDenied).SNI)
}

// What an attacker of the check may try once the first hello has passed, or
// before it on a port where anything may be spoken: nothing of it gets through.
func TestHelloTricks(t *testing.T) {
	evil := message(sni("evil.test"), ext(21, strings.Repeat("\x00", 200)))
	first := records(message(sni("allowed.test")), 1<<14)
	for name, second := range map[string]string{
		"two at once":               records(evil, 1<<14),
		"two at once, 50 bytes":     records(evil, 50),
		"two at once, version 0403": records(evil[:4]+"\x04"+evil[5:], 50),
		"two at once, too long":     records("\x01\x02\x00\x00\x03\x03"+strings.Repeat("x", 200), 50),
		"after data":                record(recordData, "x") + records(evil, 1<<14),
	} {
		t.Run(name, func(t *testing.T) {
			w := strictWorld(t)
			o := w.origin(allowedIP+":443", func(c *originConn) { _, _ = io.Copy(io.Discard, c.br) })
			c := w.tunnelTo(std, "allowed.test:443")
			c.send(first + second)
			assert.Equal(t, alert, c.rest())
			w.finish()
			assert.Equal(t, "tls_malformed", w.only(audit.EgressDenied).Reason)
			assert.LessOrEqual(t, o.received(w), len(first), "the second hello went on")
		})
	}
	for name, tt := range map[string]struct{ sent, reason string }{
		"an alert first":         {record(recordAlert, "\x01\x5a") + records(evil, 1<<14), "tls_malformed"},
		"a change of spec first": {record(recordChangeCipherSpec, "\x01") + records(evil, 1<<14), "tls_malformed"},
		"another version":        {"\x16\x02\x01" + records(evil, 1<<14)[3:], "sni_mismatch"},
	} {
		t.Run("other port, "+name, func(t *testing.T) {
			w := strictWorld(t)
			o := w.origin(allowedIP+":8080", func(c *originConn) { _, _ = io.Copy(io.Discard, c.br) })
			c := w.tunnelTo(std, "ports.test:8080")
			c.send(tt.sent)
			c.rest()
			w.finish()
			assert.Equal(t, tt.reason, w.only(audit.EgressDenied).Reason)
			assert.Zero(t, o.received(w))
		})
	}
}

// A client that does not read can't hold up the record of its refusal.
func TestHelloRefusalIsNotHeldUp(t *testing.T) {
	w := strictWorld(t)
	w.origin(allowedIP+":8080", func(c *originConn) {
		for block := strings.Repeat("x", 1<<20); ; {
			if _, err := io.WriteString(c, block); err != nil {
				return
			}
		}
	})
	c := w.tunnelTo(std, "ports.test:8080")
	w.wait("the server to be stuck", func() bool {
		return w.flow().in.Load() > 1<<20
	})
	c.send(records(message(sni("evil.test")), 1<<14))
	w.wait("the record", func() bool { return len(w.rec.Events()) >= 2 })
	c.ended()
	w.finish()
	assert.Equal(t, "sni_mismatch", w.only(audit.EgressDenied).Reason)
}

// A panic while a hello is judged costs one tunnel.
func TestHelloPanic(t *testing.T) {
	w := strictWorld(t)
	w.origin(allowedIP+":8080", echo)
	c := w.tunnelTo(std, "ports.test:8080")
	w.wait("the tunnel", func() bool { return w.Stats().Opened == 1 })
	boom := func() { panic("boom") }
	w.boom.Store(&boom)
	c.send(records(message(sni("ports.test")), 1<<14))
	c.ended()
	w.boom.Store(nil)
	c = w.tunnelTo(std, "ports.test:8080")
	c.send("x")
	assert.Equal(t, "x", c.read(1), "the gate goes on")
	require.NoError(t, c.CloseWrite())
	c.rest()
	w.finish()
}

// A tunnel that carries anything ends with the permission to do so.
func TestTLSAnyRemoved(t *testing.T) {
	w := newWorld(t)
	w.origin(allowedIP+":443", echo)
	c := w.tunnelTo(std, "allowed.test:443")
	c.send("SSH")
	require.Equal(t, "SSH", c.read(3))
	w.load(strings.ReplaceAll(stdYAML(), ", tls: any", ""))
	require.Equal(t, 1, w.Rejudge())
	assert.Empty(t, c.rest())
	w.finish()
}

// tls-sni-036: git over ssh where a rule names port 22.
func TestSSHByRule(t *testing.T) {
	w := newWorld(t)
	w.load("version: 1\nproduct: agent\nprofiles:\n  std:\n    listen: {port: 18001}\n    allow: [{host: allowed.test, ports: [22]}]\n")
	w.origin(allowedIP+":22", func(c *originConn) {
		c.write("SSH-2.0-server\r\n")
		echo(c)
	})
	c := w.socksTunnelTo(std, "allowed.test:22")
	assert.Equal(t, "SSH-2.0-server\r\n", c.read(16))
	c.send("SSH-2.0-client\r\n")
	assert.Equal(t, "SSH-2.0-client\r\n", c.read(16))
	require.NoError(t, c.CloseWrite())
	c.rest()
	w.finish()
}
