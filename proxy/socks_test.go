package proxy

import (
	"encoding/binary"
	"encoding/hex"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sluicegate/audit"
	"sluicegate/policy"
)

// socksHello offers to go without a password.
const socksHello = "\x05\x01\x00"

// socksTo is a request for a tunnel to a name.
func socksTo(authority string) string {
	host, port, _ := strings.Cut(authority, ":")
	n, _ := strconv.Atoi(port)
	return "\x05\x01\x00\x03" + string([]byte{byte(len(host))}) + host +
		string(binary.BigEndian.AppendUint16(nil, uint16(n)))
}

// socksReplied is a reply of that code.
func socksReplied(code byte) string {
	return string([]byte{5, code, 0, 1, 0, 0, 0, 0, 0, 0})
}

// socksTunnelTo opens a tunnel.
func (w *world) socksTunnelTo(profile, authority string) *client {
	w.t.Helper()
	c := w.dial(profile)
	c.send(socksHello)
	require.Equal(w.t, "\x05\x00", c.read(2))
	c.send(socksTo(authority))
	require.Equal(w.t, socksReplied(0), c.read(10))
	return c
}

func TestSOCKSOpensTunnel(t *testing.T) {
	w := newWorld(t)
	w.origin(allowedIP+":443", echo)
	c := w.socksTunnelTo(std, "allowed.test:443")
	c.silent()
	c.send("hello")
	assert.Equal(t, "hello", c.read(5))
	require.NoError(t, c.CloseWrite())
	assert.Empty(t, c.rest())
	w.wantRecords(
		"egress.opened allow rule allowed.test:443 [allowed]",
		"egress.closed allow rule allowed.test:443 [allowed] client|client_closed",
	)
	w.wantQueries("allowed.test")
	w.wantDials(allowedIP + ":443")
	e := w.only(audit.EgressClosed)
	assert.Equal(t, "socks5", e.Proto)
	assert.Equal(t, &audit.Request{Method: "CONNECT", TargetRaw: "allowed.test:443"}, e.Request)
	assert.Equal(t, "dev", e.User)
	assert.Zero(t, e.HTTPStatus, "there is no HTTP in it")
	assert.Equal(t, int64(5), *e.BytesOut)
}

// However the bytes are cut, and when all come at once with those of the tunnel.
func TestSOCKSSegments(t *testing.T) {
	all := socksHello + socksTo("allowed.test:443") + "early"
	for name, step := range map[string]int{"at once": len(all), "byte by byte": 1, "by threes": 3} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.origin(allowedIP+":443", echo)
			c := w.dial(std)
			require.NoError(t, c.SetNoDelay(true))
			for i := 0; i < len(all); i += step {
				c.send(all[i:min(i+step, len(all))])
			}
			assert.Equal(t, "\x05\x00"+socksReplied(0)+"early", c.read(17))
			require.NoError(t, c.CloseWrite())
			assert.Empty(t, c.rest())
			w.finish()
		})
	}
}

// Addresses as bytes are judged like those written out.
func TestSOCKSAddresses(t *testing.T) {
	allow := strings.ReplaceAll(stdYAML(), "      - {host: other.test, id: other, tls: any}\n",
		"      - {ip: 93.184.216.34, id: four, tls: any}\n      - {ip: '2606:4700::1111', id: six, tls: any}\n")
	for name, tt := range map[string]struct{ request, dial, dest string }{
		"IPv4":              {"\x01\x5d\xb8\xd8\x22\x01\xbb", "93.184.216.34:443", "93.184.216.34"},
		"IPv4 as a name":    {"\x03\x0d93.184.216.34\x01\xbb", "93.184.216.34:443", "93.184.216.34"},
		"IPv6":              {"\x04\x26\x06\x47\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x11\x11\x01\xbb", "[2606:4700::1111]:443", "2606:4700::1111"},
		"IPv4 inside IPv6":  {"\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\x5d\xb8\xd8\x22\x01\xbb", "93.184.216.34:443", "93.184.216.34"},
		"IPv4 by a literal": {"\x01\x5d\xb8\xd8\x22\x01\xbb", "93.184.216.34:443", "93.184.216.34"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.load(allow)
			w.origin(tt.dial, echo)
			c := w.dial(std)
			c.send(socksHello + "\x05\x01\x00" + tt.request)
			assert.Equal(t, "\x05\x00"+socksReplied(0), c.read(12))
			require.NoError(t, c.CloseWrite())
			c.rest()
			w.finish()
			w.wantQueries()
			w.wantDials(tt.dial)
			assert.Equal(t, tt.dest, w.only(audit.EgressClosed).Dest)
		})
	}
}

// R-P26: each outcome has its reply, of the right length, and its record.
func TestR_P26_SOCKSReplies(t *testing.T) {
	connect := "\x05\x01\x00"
	name := "\x03\x0callowed.test\x01\xbb"
	for what, tt := range map[string]struct {
		request string
		prepare func(*world)
		reply   byte
		record  string
	}{
		"denied":        {connect + "\x03\x12denied.example.net\x01\xbb", nil, 2, "egress.denied deny not_listed denied.example.net:443"},
		"port":          {connect + "\x03\x0callowed.test\x00\x16", nil, 2, "egress.denied deny port_not_listed allowed.test:22 [allowed]"},
		"private":       {connect + "\x01\x0a\x00\x00\x01\x01\xbb", nil, 2, "egress.denied deny dest_private 10.0.0.1:443"},
		"leads inside":  {connect + name, func(w *world) { w.names.set("allowed.test", "10.0.0.1") }, 2, "egress.denied deny dest_private allowed.test:443"},
		"no such name":  {connect + name, func(w *world) { w.names.fail("allowed.test", &net.DNSError{IsNotFound: true}) }, 4, "egress.closed error dns_error allowed.test:443 [allowed] server|dns_error"},
		"refused":       {connect + name, func(w *world) { w.net.at(allowedIP+":443", refuse) }, 5, "egress.closed error upstream_refused allowed.test:443 [allowed] server|upstream_refused"},
		"bind":          {"\x05\x02\x00" + name, nil, 7, "egress.denied error unsupported allowed.test:443"},
		"associate":     {"\x05\x03\x00" + name, nil, 7, "egress.denied error unsupported allowed.test:443"},
		"no command":    {"\x05\x09\x00" + name, nil, 7, "egress.denied error unsupported allowed.test:443"},
		"address type":  {connect + "\x02aaaa\x01\xbb", nil, 8, "egress.denied error unsupported -"},
		"empty name":    {connect + "\x03\x00\x01\xbb", nil, 1, "egress.denied error malformed_host -"},
		"NUL":           {connect + "\x03\x12evil.test\x00\x00.a.test\x01\xbb", nil, 1, "egress.denied error malformed_host -"},
		"port 0":        {connect + "\x03\x0callowed.test\x00\x00", nil, 1, "egress.denied error bad_port -"},
		"other version": {"\x04\x01\x00" + name, nil, 1, "egress.denied error bad_version -"},
		"log broken":    {connect + "\x03\x09evil.test\x01\xbb", func(w *world) { w.rec.FailWith(errDisk) }, 1, ""},
		"unknown":       {connect + name, func(w *world) { w.load("version: 1\nproduct: x\nprofiles: {y: {listen: {port: 1}}}\n") }, 2, "egress.denied deny unknown_profile allowed.test:443"},
		"other user":    {connect + name, func(w *world) { w.peer.Store(&Peer{UID: 7, UIDKnown: true}) }, 2, "egress.denied deny bad_identity allowed.test:443"},
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t)
			if tt.prepare != nil {
				tt.prepare(w)
			}
			c := w.dial(std)
			c.send(socksHello)
			require.Equal(t, "\x05\x00", c.read(2))
			c.send(tt.request)
			assert.Equal(t, hex.EncodeToString([]byte(socksReplied(tt.reply))), hex.EncodeToString([]byte(c.rest())))
			if tt.record == "" {
				w.wantRecords()
				return
			}
			w.wantRecords(tt.record)
			assert.Equal(t, "socks5", w.rec.Events()[0].Proto)
		})
	}
}

// The refusal's record stands before its reply.
func TestSOCKSRefusalIsRecordedFirst(t *testing.T) {
	w := newWorld(t)
	recording, release := make(chan struct{}), make(chan struct{})
	w.rec.before(func(audit.Event) {
		close(recording)
		<-release
	})
	c := w.dial(std)
	c.send(socksHello + socksTo("evil.test:443"))
	require.Equal(t, "\x05\x00", c.read(2))
	<-recording
	c.silent()
	close(release)
	assert.Equal(t, socksReplied(2), c.rest())
	w.finish()
}

// R-U02: nobody is asked for a password, and nobody gets in by one.
func TestR_U02_SOCKSWithoutPassword(t *testing.T) {
	for name, tt := range map[string]struct{ greeting, answer, record string }{
		"none":             {"\x05\x01\x00", "\x05\x00", ""},
		"none among three": {"\x05\x03\x01\x02\x00", "\x05\x00", ""},
		"password only":    {"\x05\x01\x02", "\x05\xff", "egress.denied error bad_auth -"},
		"no method":        {"\x05\x00", "\x05\xff", "egress.denied error bad_auth -"},
		"all but none":     {"\x05\xfe" + strings.Repeat("\x02", 254), "\x05\xff", "egress.denied error bad_auth -"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			c := w.dial(std)
			c.send(tt.greeting)
			assert.Equal(t, tt.answer, c.read(2))
			if tt.record != "" {
				assert.Empty(t, c.rest())
				w.wantRecords(tt.record)
				return
			}
			require.NoError(t, c.Close())
			w.wait("the record", func() bool { return len(w.rec.Events()) == 1 })
			w.wantRecords("egress.denied error malformed -")
		})
	}
}

// R-P27: clients that leave or speak something else cost themselves only.
func TestR_P27_SOCKSEarlyEnd(t *testing.T) {
	for name, tt := range map[string]struct{ sent, answer, record string }{
		"after a byte":         {"\x05", "", "egress.denied error malformed -"},
		"inside the methods":   {"\x05\x03\x00", "", "egress.denied error malformed -"},
		"after the greeting":   {socksHello, "\x05\x00" + socksReplied(1), "egress.denied error malformed -"},
		"inside the request":   {socksHello + "\x05\x01\x00\x03\x0callo", "\x05\x00" + socksReplied(1), "egress.denied error malformed -"},
		"unknown address type": {socksHello + "\x05\x01\x00\x07", "\x05\x00" + socksReplied(8), "egress.denied error unsupported -"},
		"bare HTTP/0.9":        {"GET /\n\n", "HTTP/1.1 400 ", "egress.denied error bad_header -"},
		"SOCKS 4":              {"\x04\x01\x01\xbb\x5d\xb8\xd8\x22\x00", "\x00\x5b\x00\x00\x00\x00\x00\x00", "egress.denied deny ip_literal_not_listed 93.184.216.34:443"},
		"SOCKS 4, cut":         {"\x04\x01\x01\xbb\x5d", "\x00\x5b\x00\x00\x00\x00\x00\x00", "egress.denied error malformed -"},
		"SOCKS 4A, denied":     {"\x04\x01\x01\xbb\x00\x00\x00\x01me\x00evil.test\x00", "\x00\x5b\x00\x00\x00\x00\x00\x00", "egress.denied deny not_listed evil.test:443"},
		"SOCKS 4A, allowed":    {"\x04\x01\x01\xbb\x00\x00\x00\x01me\x00allowed.test\x00", "\x00\x5b\x00\x00\x00\x00\x00\x00", "egress.denied error unsupported allowed.test:443"},
		"SOCKS 4A, malformed":  {"\x04\x01\x01\xbb\x00\x00\x00\x01\x00evil test\x00", "\x00\x5b\x00\x00\x00\x00\x00\x00", "egress.denied error malformed_host -"},
		"SOCKS 4, endless":     {"\x04\x01\x01\xbb\x5d\xb8\xd8\x22" + strings.Repeat("x", 300), "\x00\x5b\x00\x00\x00\x00\x00\x00", "egress.denied error malformed -"},
		"SOCKS 4A, endless":    {"\x04\x01\x01\xbb\x00\x00\x00\x01\x00" + strings.Repeat("x", 300), "\x00\x5b\x00\x00\x00\x00\x00\x00", "egress.denied error malformed -"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			c := w.dial(std)
			c.send(tt.sent)
			require.NoError(t, c.CloseWrite())
			got := c.rest()
			if strings.HasPrefix(tt.answer, "HTTP") {
				assert.Contains(t, got, tt.answer)
			} else {
				assert.Equal(t, tt.answer, got)
			}
			w.wantRefused(tt.record)
		})
	}
	t.Run("reset", func(t *testing.T) {
		w := newWorld(t)
		c := w.dial(std)
		c.send(socksHello)
		require.Equal(t, "\x05\x00", c.read(2))
		require.NoError(t, c.SetLinger(0))
		require.NoError(t, c.Close())
		w.wait("the record", func() bool { return len(w.rec.Events()) == 1 })
		w.wantRefused("egress.denied error malformed -")
	})
}

// R-P25: clients that say nothing hold up nobody, and one deadline, which bytes
// do not extend, is for all that comes before the tunnel.
func TestR_P25_SilentSOCKSClients(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Limits.Handshake = 2 * time.Second })
	w.origin(allowedIP+":443", echo)
	silent := make([]*client, 20)
	for i := range silent {
		silent[i] = w.dial(std)
		switch i % 3 {
		case 0:
			silent[i].send("\x05")
		case 1:
			silent[i].send(socksHello)
		}
	}
	c := w.socksTunnelTo(std, "allowed.test:443")
	c.send("x")
	assert.Equal(t, "x", c.read(1))
	for _, s := range silent {
		s.ended()
	}
	require.NoError(t, c.CloseWrite())
	c.rest()
	w.finish()
	timeouts := 0
	for _, e := range w.rec.Events() {
		if e.Reason == string(policy.ReasonTimeout) {
			timeouts++
		}
	}
	assert.Equal(t, 14, timeouts, "those that said something are recorded")
}

func TestSOCKSSlowClient(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Limits.Handshake = 200 * time.Millisecond })
	c := w.dial(std)
	ended := make(chan string)
	go func() { ended <- c.ended() }()
	drip := time.NewTicker(20 * time.Millisecond)
	defer drip.Stop()
	request := socksHello + "\x05\x01\x00\x03\xff" + strings.Repeat("a", 255)
	for i := 0; ; i++ {
		select {
		case got := <-ended:
			assert.Equal(t, "\x05\x00"+socksReplied(2), got)
			require.Less(t, i, len(request), "the deadline moved with the bytes")
			w.wantRefused("egress.denied deny timeout -")
			return
		case <-drip.C:
			if i < len(request) {
				_, _ = io.WriteString(c, request[i:i+1])
			}
		}
	}
}

// A tunnel by SOCKS ends with its permission, and with the client's while it is
// being opened.
func TestSOCKSTunnelIsLive(t *testing.T) {
	w := newWorld(t)
	w.origin(allowedIP+":443", echo)
	c := w.socksTunnelTo(std, "allowed.test:443")
	w.load(without("allowed.test"))
	require.Equal(t, 1, w.Rejudge())
	assert.Empty(t, c.rest())
	w.finish()
	assert.Equal(t, "revoked", w.only(audit.EgressClosed).End.Why)
}

func TestSOCKSPanic(t *testing.T) {
	w := newWorld(t)
	boom := func() { panic("boom") }
	w.boom.Store(&boom)
	c := w.dial(std)
	c.send(socksHello + socksTo("allowed.test:443"))
	assert.Equal(t, "\x05\x00"+socksReplied(1), c.rest())
	w.finish()
	assert.Equal(t, []string{"egress.closed error internal allowed.test:443 gate|internal"}, w.rec.briefs())
}

// The cases of the shared catalogue: greeting and request back to back.
func TestAdversarialSOCKS(t *testing.T) {
	// Reasons that say more here than the catalogue's.
	other := map[string]string{
		"socks5-008": "timeout",   // truncated: the rest never came
		"socks5-035": "timeout",   // the same
		"socks5-033": "malformed", // TLS on a port that speaks HTTP and SOCKS
	}
	ran := 0
	for _, tt := range adversarialCases(t) {
		if tt.Surface != "socks5" {
			continue
		}
		ran++
		t.Run(tt.ID, func(t *testing.T) {
			w := newWorld(t, func(c *Config) {
				if other[tt.ID] == "timeout" {
					c.Limits.Handshake = 300 * time.Millisecond
				}
			})
			w.origin(allowedIP+":443", echo)
			sent, err := hex.DecodeString(strings.TrimPrefix(tt.Input, "hex:"))
			require.NoError(t, err)
			c := w.dial(map[string]string{"std": std, "any": any_}[tt.Context])
			if tt.Class != "socks5" {
				c.send(socksHello) // those of other classes are requests alone
			}
			c.send(string(sent))
			if tt.Expect == "allow" {
				assert.Equal(t, "\x05\x00"+socksReplied(0), c.read(12))
				require.NoError(t, c.CloseWrite())
				assert.Empty(t, c.rest())
				w.finish()
				assert.Equal(t, "allowed.test", w.only(audit.EgressClosed).Dest)
				return
			}
			assert.NotContains(t, c.rest(), "\x05\x00\x00\x01", "the tunnel was opened")
			w.finish()
			require.Len(t, w.rec.Events(), 1)
			e := w.rec.Events()[0]
			want, decision := tt.Code, tt.Expect
			if r, ok := other[tt.ID]; ok {
				want = r
				if r == "timeout" {
					decision = "deny"
				}
			}
			assert.Equal(t, want+" "+decision, e.Reason+" "+string(e.Decision), tt.Reason)
			w.wantQueries()
			w.wantDials()
		})
	}
	assert.Equal(t, 23, ran)
}

// One destination has one verdict, whichever way it is asked for.
func TestSOCKSAgreesWithConnect(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"allowed.test", "ports.test", "a.wild.test"} {
		w.net.at(allowedIP+":443", refuse)
		w.names.set(name, allowedIP)
	}
	w.names.set("lan.test", "10.2.3.4")
	w.net.at("10.2.3.4:443", refuse)
	w.net.at("10.2.3.4:80", refuse)
	n := 0
	for _, host := range []string{
		"allowed.test", "ALLOWED.test.", "evil.test", "wild.test", "a.wild.test", "blocked.wild.test", "localhost",
		"10.0.0.1", "169.254.169.254", "1.1.1.1", "0x7f.1", "127.1", "xn--a.test", "metadata.google.internal",
		"-.test", "a..test", ".test", "wpad.allowed.test", "lan.test",
	} {
		for _, port := range []string{"443", "80", "22"} {
			authority := host + ":" + port
			c := w.dial(std)
			c.send(connectTo(authority))
			c.ended()
			c = w.dial(std)
			c.send(socksHello + socksTo(authority))
			c.ended()
			w.wait("the records", func() bool { return len(w.rec.Events()) >= n+2 })
			events := w.rec.Events()[n : n+2]
			n += 2
			assert.Equal(t, brief(events[0]), brief(events[1]), authority)
		}
	}
	w.finish()
}

// However a SOCKS request is cut, it is read the same, and what is accepted has
// a destination.
func FuzzSOCKS(f *testing.F) {
	f.Add([]byte(socksTo("allowed.test:443")))
	f.Add([]byte("\x05\x01\x00\x01\x5d\xb8\xd8\x22\x01\xbb"))
	f.Add([]byte("\x05\x02\x00\x04\x26\x06\x47\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x11\x11\x01\xbb"))
	f.Add([]byte("\x04\x01\x01\xbb\x00\x00\x00\x01me\x00allowed.test\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		one, n, _, ft := scanSOCKS5(b)
		for i := range b {
			_, m, _, early := scanSOCKS5(b[:i])
			if m > 0 && (n != m || i < m) {
				t.Fatalf("%d bytes give a request of %d, all of %d", i, m, n)
			}
			if early != nil && ft == nil {
				t.Fatalf("%d bytes are a fault and all are not", i)
			}
		}
		if ft == nil && n > 0 && (!one.dest.IsValid() || one.command != socksConnect || n > len(b)) {
			t.Fatalf("accepted: %+v, %d of %d bytes", one, n, len(b))
		}
		four, n, ft := scanSOCKS4(b)
		if ft == nil && n > 0 && (!four.dest.IsValid() || n > len(b)) {
			t.Fatalf("accepted: %+v, %d of %d bytes", four, n, len(b))
		}
	})
}
