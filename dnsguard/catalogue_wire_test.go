package dnsguard

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/miekg/dns"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Rows about packets. The question is api.anthropic.com A unless the row has
// another one; only what is answered reaches the upstream.
func TestCatalogueWire(t *testing.T) {
	base := hexOf(q("api.anthropic.com", dns.TypeA).msg(), 0x1234)
	opt := "00 0029 04d0 00000000 0000"
	withOPTs := func(n int, opts string) string {
		return base[:20] + "000" + string(rune('0'+n)) + base[24:] + strings.ReplaceAll(opts, " ", "")
	}
	header := func(flags, counts string) string { return "1234" + flags + counts }
	rows := map[string]struct {
		hex    string
		rcode  int
		reason string
		silent bool
	}{
		"as it should be":             {hex: base, rcode: rcodeNoError},
		"48 UPDATE":                   {hex: base[:4] + "2800" + base[8:], rcode: rcodeNotImp, reason: "unsupported"},
		"48 NOTIFY":                   {hex: base[:4] + "2000" + base[8:], rcode: rcodeNotImp, reason: "unsupported"},
		"48 STATUS":                   {hex: base[:4] + "1000" + base[8:], rcode: rcodeNotImp, reason: "unsupported"},
		"49 a response":               {hex: base[:4] + "8180" + base[8:], silent: true},
		"50 header with QDCOUNT 1":    {hex: header("0100", "0001000000000000"), rcode: rcodeFormErr, reason: "malformed"},
		"52 QDCOUNT 0":                {hex: header("0100", "0000000000000000"), rcode: rcodeFormErr, reason: "malformed"},
		"52 QDCOUNT 2":                {hex: base[:8] + "0002" + base[12:] + base[24:], rcode: rcodeFormErr, reason: "malformed"},
		"53 trailing bytes":           {hex: base + "deadbeef", rcode: rcodeNoError},
		"an answer record":            {hex: base[:12] + "0001" + base[16:] + "c00c00010001000000000004 7f000001", rcode: rcodeFormErr, reason: "malformed"},
		"an authority record":         {hex: base[:16] + "0001" + base[20:] + "c00c00010001000000000004 7f000001", rcode: rcodeFormErr, reason: "malformed"},
		"another additional":          {hex: withOPTs(1, "00 0010 0001 00000000 0000"), rcode: rcodeFormErr, reason: "malformed"},
		"55 self-pointer":             {hex: header("0100", "0001000000000000") + "c00c00010001", rcode: rcodeFormErr, reason: "malformed"},
		"55 pointer into the header":  {hex: header("0100", "0001000000000000") + "c00000010001", rcode: rcodeFormErr, reason: "malformed"},
		"55 pointer to a zero":        {hex: header("0100", "0001000000000000") + "0161c00400010001", rcode: rcodeFormErr, reason: "malformed"},
		"reserved label type":         {hex: header("0100", "0001000000000000") + "4161 00 0001 0001", rcode: rcodeFormErr, reason: "malformed"},
		"label over the end":          {hex: header("0100", "0001000000000000") + "3f61", rcode: rcodeFormErr, reason: "malformed"},
		"name without type":           {hex: header("0100", "0001000000000000") + "016100", rcode: rcodeFormErr, reason: "malformed"},
		"name of 256 bytes":           {hex: header("0100", "0001000000000000") + strings.Repeat("3f"+strings.Repeat("61", 63), 4) + "0000010001", rcode: rcodeFormErr, reason: "malformed"},
		"one OPT":                     {hex: withOPTs(1, opt), rcode: rcodeNoError},
		"56 two OPT":                  {hex: withOPTs(2, opt+opt), rcode: rcodeFormErr, reason: "malformed"},
		"OPT with an owner":           {hex: withOPTs(1, "0161"+opt), rcode: rcodeFormErr, reason: "malformed"},
		"OPT with a broken option":    {hex: withOPTs(1, "00 0029 04d0 00000000 0005 000a000261"), rcode: rcodeFormErr, reason: "malformed"},
		"OPT with half an option":     {hex: withOPTs(1, "00 0029 04d0 00000000 0003 000a00"), rcode: rcodeFormErr, reason: "malformed"},
		"OPT that was announced only": {hex: withOPTs(1, ""), rcode: rcodeFormErr, reason: "malformed"},
		"57 EDNS version 1":           {hex: withOPTs(1, "00 0029 04d0 00010000 0000"), rcode: rcodeBadVers, reason: "unsupported"},
		"59 padding":                  {hex: withOPTs(1, "00 0029 04d0 00000000 0268 000c 0264"+strings.Repeat("00", 612)), rcode: rcodeNoError},
		"47 version.bind":             {hex: hexOf(chaos(), 0x1234), rcode: rcodeRefused, reason: "qclass_not_allowed"},
		"class ANY":                   {hex: base[:len(base)-4] + "00ff", rcode: rcodeRefused, reason: "qclass_not_allowed"},
		"a header only, response":     {hex: header("8180", "0000000000000000"), silent: true},
		"eleven bytes":                {hex: base[:22], silent: true, reason: "malformed"},
		"one byte":                    {hex: "12", silent: true, reason: "malformed"},
		"no bytes":                    {hex: "", silent: true, reason: "malformed"},
	}
	for name, r := range rows {
		packet, err := hex.DecodeString(strings.ReplaceAll(r.hex, " ", ""))
		require.NoError(t, err)
		for _, stream := range []bool{false, true} {
			transport := map[bool]string{false: "UDP", true: "TCP"}[stream]
			t.Run(name+" over "+transport, func(t *testing.T) {
				w := newWorld(t)
				if r.silent {
					silent(t, w, packet, stream)
				} else {
					send := map[bool]func(string, []byte) []byte{false: w.send, true: w.sendTCP}[stream]
					checkAnswer(t, send(std, packet), packet, r.rcode)
				}
				if r.reason == "" {
					assert.Empty(t, w.reasonsOfPackets())
				} else {
					assert.Equal(t, []string{r.reason}, w.reasonsOfPackets())
				}
				for _, a := range w.stub.all() {
					assert.Equal(t, "api.anthropic.com. A", a.name())
				}
				assert.Equal(t, r.rcode == rcodeNoError && !r.silent, len(w.stub.all()) > 0)
			})
		}
	}
}

// checkAnswer reads the header by itself: the library refuses some of these.
func checkAnswer(t *testing.T, got, packet []byte, rcode int) {
	t.Helper()
	h, ok := parseHeader(got)
	require.True(t, ok)
	assert.Equal(t, uint16(0x1234), h.id)
	assert.NotZero(t, h.flags&flagQR)
	sent, _ := parseHeader(packet)
	assert.Equal(t, sent.opcode(), h.opcode())
	assert.Equal(t, rcodeName(rcode&0xf), rcodeName(h.rcode()))
	if rcode == rcodeBadVers {
		m := new(dns.Msg)
		require.NoError(t, m.Unpack(got))
		assert.Equal(t, rcodeBadVers, m.Rcode)
		assert.Len(t, m.Question, 1, "the question is kept")
		assert.NotNil(t, m.IsEdns0())
	}
}

// silent sends a packet that must not be answered, then a query that is.
func silent(t *testing.T, w *world, packet []byte, stream bool) {
	t.Helper()
	network := map[bool]string{false: "udp", true: "tcp"}[stream]
	c := w.dial(network, std)
	defer func() { _ = c.Close() }()
	if stream {
		packet = frame(packet)
	}
	_, err := c.Write(packet)
	require.NoError(t, err)
	buf := make([]byte, 4096)
	if stream {
		n, err := c.Read(buf)
		assert.Zero(t, n)
		assert.Error(t, err, "the connection ends")
		return
	}
	after := qe(sentinel, dns.TypeTXT).msg()
	_, err = c.Write(pack1(after))
	require.NoError(t, err)
	n, err := c.Read(buf)
	require.NoError(t, err)
	h, _ := parseHeader(buf[:n])
	assert.Equal(t, after.Id, h.id)
}

// sentinel is a denied name that tests ask for to learn that a packet before it
// was not answered. Its record is not the packet's.
const sentinel = "sentinel.test"

func (w *world) reasonsOfPackets() []string {
	var out []string
	for _, e := range w.rec.Events() {
		if e.Dest != sentinel {
			out = append(out, e.Reason)
		}
	}
	return out
}

// hexOf is a query in hex, with an id.
func hexOf(m *dns.Msg, id uint16) string {
	m.Id = id
	return hex.EncodeToString(pack1(m))
}

func chaos() *dns.Msg {
	m := q("version.bind", dns.TypeTXT).msg()
	m.Question[0].Qclass = dns.ClassCHAOS
	return m
}
