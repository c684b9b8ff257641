package proxy

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sluicegate/policy"
)

// helloOf is what Go's client sends first.
func helloOf(t testing.TB, c *tls.Config) []byte {
	t.Helper()
	ours, theirs := net.Pipe()
	defer func() { _ = ours.Close() }()
	c.InsecureSkipVerify = true // nobody answers
	go func() { _ = tls.Client(theirs, c).HandshakeContext(context.Background()) }()
	head := make([]byte, recordHeader)
	_, err := io.ReadFull(ours, head)
	require.NoError(t, err)
	body := make([]byte, binary.BigEndian.Uint16(head[3:]))
	_, err = io.ReadFull(ours, body)
	require.NoError(t, err)
	return append(head, body...)
}

// ext is an extension of a ClientHello.
func ext(kind uint16, data string) string {
	return string(binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, kind), uint16(len(data)))) + data
}

func sized16(s string) string {
	return string(binary.BigEndian.AppendUint16(nil, uint16(len(s)))) + s
}

// sni is a server_name extension.
func sni(names ...string) string {
	var list string
	for _, n := range names {
		list += "\x00" + sized16(n)
	}
	return ext(extServerName, sized16(list))
}

// message is a ClientHello with these extensions.
func message(extensions ...string) string {
	body := "\x03\x03" + strings.Repeat("r", 32) + "\x00" + sized16("\x13\x01") + "\x01\x00" + sized16(strings.Join(extensions, ""))
	return string([]byte{clientHelloType, 0, byte(len(body) >> 8), byte(len(body))}) + body
}

// records cuts a message into records of at most n bytes.
func records(msg string, n int) string {
	var out strings.Builder
	for len(msg) > 0 {
		k := min(n, len(msg))
		out.WriteString("\x16\x03\x01" + sized16(msg[:k]))
		msg = msg[k:]
	}
	return out.String()
}

// record is one record of that type.
func record(kind byte, payload string) string { return string([]byte{kind, 3, 3}) + sized16(payload) }

// sniffed is what a sniffer makes of a client's bytes, all let pass: the hellos
// by their names, how it ended, and the bytes it let go on. server is what the
// server has said by the time of the second hello.
func sniffed(t testing.TB, in string, step int, server int32, lenient bool) (names []string, end finding, out string) {
	t.Helper()
	var s sniffer
	s.lenient = lenient
	s.server.Store(server)
	feed := func() (finding, bool) {
		for {
			f, h := s.scan()
			switch f {
			case needMore:
				out += string(s.released())
				return f, true
			case foundHello:
				names = append(names, string(h.name)+string("!"[:map[bool]int{true: 1}[h.fault != ""]]))
			default:
				return f, false
			}
		}
	}
	for i := 0; i < len(in); i += step {
		s.push([]byte(in[i:min(i+step, len(in))]))
		var more bool
		if end, more = feed(); !more {
			return names, end, out + string(s.held) + in[min(i+step, len(in)):]
		}
	}
	return names, end, out
}

func TestSniffer(t *testing.T) {
	a, b := message(sni("a.test")), message(sni("b.test"))
	early := message(sni("a.test"), ext(extEarlyData, ""))
	ccs := record(recordChangeCipherSpec, "\x01")
	finished := record(recordHandshake, "\x01\xff"+strings.Repeat("x", 38))
	went, retry := serverWent, serverRetry
	for name, tt := range map[string]struct {
		in     string
		server int32
		names  []string
		end    finding
	}{
		"one":                     {records(a, 1<<14), 0, []string{"a.test"}, needMore},
		"in pieces":               {records(a, 7), 0, []string{"a.test"}, needMore},
		"in single bytes":         {records(a, 1), 0, []string{"a.test"}, needMore},
		"cut":                     {records(a, 1<<14)[:50], 0, nil, needMore},
		"SSH":                     {"SSH-2.0-x\r\n", 0, nil, foundOther},
		"not TLS":                 {"\x16\x02\x00\x00\x05\x07", 0, nil, foundOther},
		"any version":             {"\x16\x02\x01" + records(a, 1<<14)[3:], 0, []string{"a.test"}, needMore},
		"SSL 2":                   {"\x80\x2e\x01\x03\x01", 0, nil, foundOther},
		"an alert first":          {"\x15\x03\x01\x00\x02\x01\x5a" + records(a, 1<<14), 0, nil, foundFault},
		"a change of spec first":  {ccs + records(a, 1<<14), 0, nil, foundFault},
		"like an alert":           {"\x15hello", 0, nil, foundOther},
		"data follows":            {records(a, 99) + ccs + record(recordData, "xyz") + "rest", went, []string{"a.test"}, foundEnd},
		"data too early":          {records(a, 99) + record(recordData, "xyz"), 0, []string{"a.test"}, foundFault},
		"TLS 1.2":                 {records(a, 99) + record(recordHandshake, "\x10\x00\x00\x01x") + ccs, went, []string{"a.test"}, foundEnd},
		"TLS 1.2 resumed":         {records(a, 99) + ccs + finished, went, []string{"a.test"}, foundEnd},
		"TLS 1.2 resumed, luck":   {records(a, 99) + ccs + record(recordHandshake, "\x01\x00\x00\x24\x03"+strings.Repeat("x", 35)), went, []string{"a.test"}, foundEnd},
		"retry":                   {records(a, 99) + ccs + records(b, 1<<14), retry, []string{"a.test", "b.test"}, foundEnd},
		"retry, then data":        {records(a, 99) + ccs + records(b, 1<<14) + record(recordData, "x"), retry, []string{"a.test", "b.test"}, foundEnd},
		"retry in pieces":         {records(a, 99) + ccs + records(b, 3), retry, []string{"a.test", "b.test"}, foundEnd},
		"retry in 50 bytes":       {records(a, 99) + records(b, 50), retry, []string{"a.test", "b.test"}, foundEnd},
		"retry, odd version":      {records(a, 99) + records(b[:4]+"\x04"+b[5:], 50), retry, []string{"a.test"}, foundFault},
		"retry, too long":         {records(a, 99) + records("\x01\x02\x00\x00\x03\x03"+strings.Repeat("x", 90), 50), retry, []string{"a.test"}, foundFault},
		"retry after early data":  {records(early, 99) + record(recordData, strings.Repeat("d", 9000)) + records(b, 1<<14), retry, []string{"a.test", "b.test"}, foundEnd},
		"retry after an alert":    {records(a, 99) + record(recordAlert, "\x01\x5a") + records(b, 1<<14), retry, []string{"a.test", "b.test"}, foundEnd},
		"retry, an empty record":  {records(a, 99) + record(recordHandshake, "") + records(b, 1<<14), retry, []string{"a.test"}, foundFault},
		"retry, data":             {records(a, 99) + record(recordData, "x") + records(b, 1<<14), retry, []string{"a.test"}, foundFault},
		"retry, glued":            {records(a, 99) + records(b+"\x01", 1<<14), retry, []string{"a.test"}, foundFault},
		"a second one, too early": {records(a, 99) + records(b, 1<<14), 0, []string{"a.test"}, foundFault},
		"glued":                   {records(a+"\x01\x00", 1<<14), 0, nil, foundFault},
		"empty record":            {record(recordHandshake, ""), 0, nil, foundFault},
		"large record":            {"\x16\x03\x01\x40\x01", 0, nil, foundFault},
		"another record between":  {records(a, 60)[:65] + ccs, 0, nil, foundFault},
		"message too long":        {records("\x01\xff\xff\xff"+strings.Repeat("x", 100), 1<<14), 0, nil, foundFault},
		"many small records":      {records("\x01\x00\xff\x00"+strings.Repeat("x", 65000), 1), 0, nil, foundFault},
		"padded to 12 kB":         {records(message(sni("a.test"), ext(21, strings.Repeat("\x00", 12000))), 1<<14), 0, []string{"a.test"}, needMore},
	} {
		t.Run(name, func(t *testing.T) {
			for _, step := range []int{1, 3, 1 << 20} {
				names, end, out := sniffed(t, tt.in, step, tt.server, true)
				assert.Equal(t, tt.names, names, "step %d", step)
				assert.Equal(t, tt.end, end, "step %d", step)
				assert.True(t, strings.HasPrefix(tt.in, out), "step %d: the bytes were changed", step)
				if tt.end == foundEnd {
					assert.Equal(t, tt.in, out, "step %d", step)
				}
			}
		})
	}
	// Where TLS is a must, a handshake record without a hello is a fault of TLS.
	_, end, _ := sniffed(t, records("\x02"+a[1:], 1<<14), 1, 0, false)
	assert.Equal(t, foundFault, end)
	_, end, _ = sniffed(t, records("\x02"+a[1:], 1<<14), 1, 0, true)
	assert.Equal(t, foundOther, end)
}

func TestServerWords(t *testing.T) {
	hello := func(random string) string {
		return "\x02\x00\x00\x30\x03\x03" + random + "\x00\x13\x01\x00\x00\x06more.."
	}
	retry := hello(string(retryRandom[:]))
	for name, tt := range map[string]struct {
		in   string
		want int32
	}{
		"retry":               {record(recordHandshake, retry), serverRetry},
		"retry in pieces":     {records(retry, 5), serverRetry},
		"retry and more":      {record(recordHandshake, retry) + record(recordChangeCipherSpec, "\x01"), serverRetry},
		"retry among much":    {record(recordHandshake, retry+strings.Repeat("x", 4000)), serverRetry},
		"hello":               {record(recordHandshake, hello(strings.Repeat("r", 32))), serverWent},
		"another message":     {record(recordHandshake, "\x00"+retry[1:]), serverWent},
		"alert":               {record(recordAlert, "\x02\x28"), serverWent},
		"text":                {"220 hello\r\n", serverWent},
		"cut":                 {record(recordHandshake, retry)[:40], serverSilent},
		"records of no bytes": {strings.Repeat(record(recordHandshake, ""), 300), serverWent},
	} {
		for _, step := range []int{1, 7, 1 << 20} {
			var w serverWords
			got := serverSilent
			for i := 0; i < len(tt.in) && got == serverSilent; i += step {
				got = w.read([]byte(tt.in[i:min(i+step, len(tt.in))]))
			}
			assert.Equal(t, tt.want, got, "%s, step %d", name, step)
		}
	}
}

func TestParseHello(t *testing.T) {
	hello := func(extensions ...string) string { return message(extensions...)[handshakeHead:] }
	for name, tt := range map[string]struct {
		body  string
		name  string
		fault policy.Reason
	}{
		"name":                {hello(sni("a.test")), "a.test", ""},
		"case and dot":        {hello(sni("A.Test.")), "a.test", ""},
		"no name":             {hello(ext(10, "\x00\x02\x00\x1d")), "", ""},
		"no extensions":       {hello()[:len(hello())-2], "", ""},
		"GREASE":              {hello(ext(0x0a0a, ""), sni("a.test"), ext(0xfafa, "\x00")), "a.test", ""},
		"empty name":          {hello(sni("")), "", policy.ReasonSNIInvalid},
		"NUL":                 {hello(sni("a.test\x00.b.test")), "", policy.ReasonSNIInvalid},
		"address":             {hello(sni("192.0.2.1")), "", policy.ReasonSNIInvalid},
		"IPv6":                {hello(sni("2001:db8::1")), "", policy.ReasonSNIInvalid},
		"two names":           {hello(sni("a.test", "b.test")), "", policy.ReasonSNIInvalid},
		"twice":               {hello(sni("a.test"), sni("a.test")), "a.test", policy.ReasonSNIInvalid},
		"another type":        {hello(ext(extServerName, sized16("\x01"+sized16("a.test")))), "", policy.ReasonSNIInvalid},
		"no list":             {hello(ext(extServerName, "")), "", policy.ReasonSNIInvalid},
		"list and more":       {hello(ext(extServerName, sized16("\x00"+sized16("a.test"))+"x")), "", policy.ReasonSNIInvalid},
		"empty":               {"", "", policy.ReasonTLSMalformed},
		"cut":                 {hello(sni("a.test"))[:50], "", policy.ReasonTLSMalformed},
		"and more":            {hello(sni("a.test")) + "x", "", policy.ReasonTLSMalformed},
		"an extension is cut": {hello(ext(5, "abc")[:6]), "", policy.ReasonTLSMalformed},
		"no suites":           {"\x03\x03" + strings.Repeat("r", 32) + "\x00\x00\x00\x01\x00", "", policy.ReasonTLSMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			h := parseHello([]byte(tt.body))
			assert.Equal(t, tt.fault, h.fault)
			if tt.name != "" || tt.fault == "" {
				assert.Equal(t, tt.name, h.canonical)
			}
		})
	}
	h := parseHello([]byte(hello(ext(extALPN, sized16("\x02h2\x08http/1.1")), ext(extECH, "\x00"), ext(extEarlyData, ""))))
	assert.Equal(t, []string{"h2", "http/1.1"}, h.alpn)
	assert.True(t, h.ech)
	assert.True(t, h.early)
}

// Go's own client, with the key shares of today.
func TestSnifferTakesRealHellos(t *testing.T) {
	for name, c := range map[string]*tls.Config{
		"post-quantum": {ServerName: "a.test", NextProtos: []string{"h2", "http/1.1"}},
		"TLS 1.2":      {ServerName: "a.test", MaxVersion: tls.VersionTLS12},
		"classic":      {ServerName: "a.test", CurvePreferences: []tls.CurveID{tls.X25519}},
	} {
		in := helloOf(t, c)
		names, end, out := sniffed(t, string(in), 11, 0, false)
		assert.Equal(t, []string{"a.test"}, names, name)
		assert.Equal(t, needMore, end)
		assert.Equal(t, string(in), out)
	}
}

// What crypto/tls reads as a ClientHello is read here with the same name, or
// refused; what is accepted here crypto/tls does not read as another name.
func FuzzHello(f *testing.F) {
	f.Add(helloOf(f, &tls.Config{ServerName: "a.test", NextProtos: []string{"h2"}}))
	f.Add([]byte(records(message(sni("a.test"), ext(extECH, "\x00")), 50)))
	f.Add([]byte(records(message(sni("a.test", "b.test")), 1<<14)))
	f.Fuzz(func(t *testing.T, in []byte) {
		for _, server := range []int32{serverSilent, serverWent, serverRetry} {
			whole, _, out := sniffed(t, string(in), len(in)+1, server, false)
			bytewise, _, outwise := sniffed(t, string(in), 1, server, false)
			if len(whole) != len(bytewise) || out != outwise {
				t.Fatalf("at once %q %q, byte by byte %q %q", whole, out, bytewise, outwise)
			}
			if !bytes.HasPrefix(in, []byte(out)) {
				t.Fatalf("%q went on as %q", in, out)
			}
		}
		var s sniffer
		s.push(in)
		found, h := s.scan()
		theirs, ok := theirName(in)
		if ok && found == foundHello && h.fault == "" && h.canonical != strings.ToLower(theirs) {
			t.Fatalf("crypto/tls reads %q, not %q", theirs, h.canonical)
		}
	})
}

// theirName is the server name that Go's server reads.
func theirName(in []byte) (name string, ok bool) {
	c := tls.Server(&oneWay{Reader: bytes.NewReader(in)}, &tls.Config{
		GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			name, ok = h.ServerName, true
			return nil, io.EOF
		},
	})
	_ = c.Handshake()
	return name, ok
}

// oneWay is a connection that only gives.
type oneWay struct {
	net.Conn
	io.Reader
}

func (c *oneWay) Read(b []byte) (int, error)  { return c.Reader.Read(b) }
func (c *oneWay) Write(b []byte) (int, error) { return len(b), nil }
func (c *oneWay) Close() error                { return nil }
