package identity

import (
	"encoding/binary"
	"net/netip"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

const (
	testSeq  = 7
	testPort = 4242
)

// testID is the connection the replies below are about.
var testID = connID{
	src: netip.MustParseAddrPort("127.0.0.1:50000"),
	dst: netip.MustParseAddrPort("127.0.0.1:3128"),
}

// reply builds the kernel's answer; edit changes its bytes before use.
func reply(edit func(b []byte)) []byte {
	b := make([]byte, headerLen+diagMsgLen)
	ne := binary.NativeEndian
	ne.PutUint32(b[0:], uint32(len(b)))
	ne.PutUint16(b[4:], unix.SOCK_DIAG_BY_FAMILY)
	ne.PutUint32(b[8:], testSeq)
	ne.PutUint32(b[12:], testPort)
	body := b[headerLen:]
	body[0] = unix.AF_INET
	body[1] = byte(tcpEstablished)
	binary.BigEndian.PutUint16(body[4:], testID.src.Port())
	binary.BigEndian.PutUint16(body[6:], testID.dst.Port())
	putAddr(body[8:24], testID.src.Addr())
	putAddr(body[24:40], testID.dst.Addr())
	ne.PutUint32(body[64:], 1000)
	ne.PutUint32(body[68:], 99)
	if edit != nil {
		edit(b)
	}
	return b
}

// errorReply builds the kernel's answer with an errno, given as it is sent.
func errorReply(code int32) []byte {
	b := make([]byte, headerLen+4+headerLen)
	ne := binary.NativeEndian
	ne.PutUint32(b[0:], uint32(len(b)))
	ne.PutUint16(b[4:], unix.NLMSG_ERROR)
	ne.PutUint32(b[8:], testSeq)
	ne.PutUint32(b[12:], testPort)
	ne.PutUint32(b[16:], uint32(code))
	return b
}

// shortened cuts a message to n bytes, with a length field that agrees.
func shortened(b []byte, n int) []byte {
	b = b[:n]
	binary.NativeEndian.PutUint32(b, uint32(n))
	return b
}

func TestParseReply(t *testing.T) {
	t.Parallel()
	want := sockInfo{id: testID, state: tcpEstablished, uid: 1000, inode: 99}
	tests := map[string][]byte{
		"plain": reply(nil),
		"with attributes": reply(func(b []byte) {
			binary.NativeEndian.PutUint32(b, uint32(len(b)+8))
		}),
		"mapped addresses": reply(func(b []byte) {
			body := b[headerLen:]
			body[0] = unix.AF_INET6
			src, dst := testID.src.Addr().As16(), testID.dst.Addr().As16()
			copy(body[8:24], src[:])
			copy(body[24:40], dst[:])
		}),
	}
	tests["with attributes"] = append(tests["with attributes"], make([]byte, 8)...)
	for name, b := range tests {
		got, err := parseReply(b, testSeq, testPort)
		require.NoError(t, err, name)
		assert.Equal(t, want, got, name)
		assert.Equal(t, Peer{UID: 1000, Known: true, How: HowSockDiag}, got.peer(testID), name)
	}
}

func TestParseReplyRefuses(t *testing.T) {
	t.Parallel()
	ne := binary.NativeEndian
	length := func(n uint32) []byte { return reply(func(b []byte) { ne.PutUint32(b, n) }) }
	tests := map[string]struct {
		b    []byte
		want error
	}{
		"nothing":               {nil, errReply},
		"short header":          {reply(nil)[:headerLen-1], errReply},
		"header only":           {reply(nil)[:headerLen], errReply},
		"one byte missing":      {reply(nil)[:headerLen+diagMsgLen-1], errReply},
		"length 0":              {length(0), errReply},
		"length of half header": {length(8), errReply},
		"length beyond the end": {length(headerLen + diagMsgLen + 1), errReply},
		"length huge":           {length(0xffffffff), errReply},
		"length short of body":  {length(headerLen + diagMsgLen - 4), errReply},
		"second message":        {append(reply(nil), reply(nil)...), errReply},
		"old sequence number":   {reply(func(b []byte) { ne.PutUint32(b[8:], testSeq-1) }), errReply},
		"for another socket":    {reply(func(b []byte) { ne.PutUint32(b[12:], testPort+1) }), errReply},
		"type done":             {reply(func(b []byte) { ne.PutUint16(b[4:], unix.NLMSG_DONE) }), errReply},
		"type noop":             {reply(func(b []byte) { ne.PutUint16(b[4:], unix.NLMSG_NOOP) }), errReply},
		"family unix":           {reply(func(b []byte) { b[headerLen] = unix.AF_UNIX }), errReply},
		"family 0":              {reply(func(b []byte) { b[headerLen] = 0 }), errReply},
		"no such socket":        {errorReply(-int32(unix.ENOENT)), errNoSocket},
		"not permitted":         {errorReply(-int32(unix.EPERM)), syscall.EPERM},
		"acknowledgement":       {errorReply(0), errReply},
		"positive errno":        {errorReply(2), errReply},
		"errno out of range":    {errorReply(-1 << 31), errReply},
		"socket cut short":      {shortened(reply(nil), headerLen+diagMsgLen-1), errReply},
		"socket cut to nothing": {shortened(reply(nil), headerLen), errReply},
		"socket of 8 bytes":     {shortened(reply(nil), headerLen+8), errReply},
		"short error":           {shortened(errorReply(-2), headerLen+2), errReply},
		"error for another request": {func() []byte {
			b := errorReply(-2)
			ne.PutUint32(b[8:], testSeq+1)
			return b
		}(), errReply},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := parseReply(tt.b, testSeq, testPort)
			require.ErrorIs(t, err, tt.want)
			assert.Equal(t, sockInfo{}, got)
		})
	}
}

func TestSockInfoPeer(t *testing.T) {
	t.Parallel()
	good := sockInfo{id: testID, state: tcpEstablished, uid: 1000, inode: 99}
	tests := map[string]struct {
		edit func(*sockInfo)
		how  string
	}{
		"orphan of root":      {func(s *sockInfo) { s.inode, s.uid = 0, 0 }, HowOrphaned},
		"orphan with its uid": {func(s *sockInfo) { s.inode = 0 }, HowOrphaned},
		"reversed":            {func(s *sockInfo) { s.id = connID{testID.dst, testID.src} }, HowNoSocket},
		"other source port":   {func(s *sockInfo) { s.id.src = netip.MustParseAddrPort("127.0.0.1:50001") }, HowNoSocket},
		"other source":        {func(s *sockInfo) { s.id.src = netip.MustParseAddrPort("127.0.0.2:50000") }, HowNoSocket},
		"other target port":   {func(s *sockInfo) { s.id.dst = netip.MustParseAddrPort("127.0.0.1:3129") }, HowNoSocket},
		"other target":        {func(s *sockInfo) { s.id.dst = netip.MustParseAddrPort("127.0.0.2:3128") }, HowNoSocket},
		"listener": {func(s *sockInfo) {
			s.state, s.id.dst = 10, netip.MustParseAddrPort("0.0.0.0:0")
		}, HowNoSocket},
	}
	for name, tt := range tests {
		s := good
		tt.edit(&s)
		assert.Equal(t, Peer{How: tt.how}, s.peer(testID), name)
	}
	owned := map[tcpState]bool{1: true, 4: true, 5: true, 8: true, 9: true, 11: true}
	for state := range tcpState(255) {
		s := good
		s.state = state
		assert.Equal(t, owned[state], s.peer(testID).Known, "state %d", state)
	}
}

// TestPutRequest pins the layout of struct nlmsghdr and inet_diag_req_v2.
func TestPutRequest(t *testing.T) {
	t.Parallel()
	id := connID{src: netip.MustParseAddrPort("[2001:db8::1]:4660"), dst: netip.MustParseAddrPort("[2001:db8::2]:22136")}
	var b [requestLen]byte
	putRequest(&b, id, 9)
	require.Len(t, b, 72)
	ne := binary.NativeEndian
	assert.Equal(t, uint32(72), ne.Uint32(b[0:]))
	assert.Equal(t, uint16(20), ne.Uint16(b[4:]))
	assert.Equal(t, uint16(1), ne.Uint16(b[6:]), "a request, not a dump")
	assert.Equal(t, uint32(9), ne.Uint32(b[8:]))
	assert.Equal(t, []byte{10, 6, 0, 0}, b[16:20])
	assert.Equal(t, []byte{0x12, 0x34, 0x56, 0x78}, b[24:28])
	assert.Equal(t, id.src.Addr().AsSlice(), b[28:44])
	assert.Equal(t, id.dst.Addr().AsSlice(), b[44:60])
	assert.Equal(t, make([]byte, 4), b[60:64], "any interface")
	assert.Equal(t, []byte{255, 255, 255, 255, 255, 255, 255, 255}, b[64:72], "no cookie")

	putRequest(&b, testID, 10)
	assert.Equal(t, byte(2), b[16])
	assert.Equal(t, make([]byte, 12), b[32:44], "nothing left of the request before")
}

// FuzzParseReply: whatever arrives, the parser doesn't panic, and a known peer
// comes only out of a reply that names the connection, an owner and our request.
func FuzzParseReply(f *testing.F) {
	f.Add(reply(nil), uint32(testSeq), uint32(testPort))
	f.Add(reply(func(b []byte) { b[headerLen] = unix.AF_INET6 }), uint32(testSeq), uint32(testPort))
	f.Add(reply(func(b []byte) { clear(b[headerLen+64:]) }), uint32(testSeq), uint32(testPort))
	f.Add(errorReply(-int32(unix.ENOENT)), uint32(testSeq), uint32(testPort))
	f.Add(shortened(reply(nil), headerLen+diagMsgLen-1), uint32(testSeq), uint32(testPort))
	f.Add([]byte{}, uint32(0), uint32(0))
	f.Fuzz(func(t *testing.T, b []byte, seq, port uint32) {
		info, err := parseReply(b, seq, port)
		if err != nil {
			require.Equal(t, sockInfo{}, info)
			return
		}
		ne := binary.NativeEndian
		require.GreaterOrEqual(t, len(b), headerLen+diagMsgLen)
		require.Equal(t, seq, ne.Uint32(b[8:]))
		require.Equal(t, port, ne.Uint32(b[12:]))
		if p := info.peer(testID); p.Known {
			require.Equal(t, testID, info.id)
			require.NotZero(t, info.inode)
			require.Equal(t, ne.Uint32(b[headerLen+64:]), p.UID)
			require.Equal(t, binary.BigEndian.Uint16(b[headerLen+4:]), testID.src.Port())
		} else {
			require.Zero(t, p.UID)
		}
	})
}
