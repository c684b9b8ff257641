package identity

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

// Sizes of linux/netlink.h and linux/inet_diag.h, and where the fields are.
// Header: len 4, type 2, flags 2, seq 4, pid 4. Both diag structs share struct
// inet_diag_sockid: sport 2, dport 2, src 16, dst 16, if 4, cookie 8.
const (
	headerLen  = 16
	sockIDLen  = 48
	requestLen = headerLen + 8 + sockIDLen // struct inet_diag_req_v2
	diagMsgLen = 4 + sockIDLen + 20        // struct inet_diag_msg
)

var (
	errNoSocket = errors.New("no such socket")
	errReply    = errors.New("unusable netlink reply")
)

// tcpState is a state of linux/tcp_states.h.
type tcpState uint8

const (
	tcpEstablished tcpState = 1
	tcpFinWait1    tcpState = 4
	tcpFinWait2    tcpState = 5
	tcpCloseWait   tcpState = 8
	tcpLastAck     tcpState = 9
	tcpClosing     tcpState = 11
)

// owned says whether a connection in this state can have an owner. A state the
// list doesn't know has none.
func (s tcpState) owned() bool {
	switch s {
	case tcpEstablished, tcpFinWait1, tcpFinWait2, tcpCloseWait, tcpLastAck, tcpClosing:
		return true
	}
	return false
}

// connID is one TCP connection as the socket at one end sees it. Addresses are
// unmapped and without zone, so that two of them compare with ==.
type connID struct{ src, dst netip.AddrPort }

// newConnID returns the canonical connID or says why there is none.
func newConnID(src, dst netip.AddrPort) (connID, error) {
	if !src.IsValid() || !dst.IsValid() {
		return connID{}, errors.New("address is not valid")
	}
	if src.Addr().Zone() != "" || dst.Addr().Zone() != "" {
		return connID{}, errors.New("addresses with a zone are not looked up")
	}
	id := connID{unmap(src), unmap(dst)}
	if id.src.Addr().Is4() != id.dst.Addr().Is4() {
		return connID{}, errors.New("addresses are of two families")
	}
	if id.src.Port() == 0 || id.dst.Port() == 0 {
		return connID{}, errors.New("port is 0")
	}
	return id, nil
}

func unmap(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}

// putRequest fills b, which is requestLen long, with the question for one
// socket. Without NLM_F_DUMP the kernel looks only at id and answers once.
func putRequest(b *[requestLen]byte, id connID, seq uint32) {
	clear(b[:])
	ne := binary.NativeEndian
	ne.PutUint32(b[0:], requestLen)
	ne.PutUint16(b[4:], unix.SOCK_DIAG_BY_FAMILY)
	ne.PutUint16(b[6:], unix.NLM_F_REQUEST)
	ne.PutUint32(b[8:], seq)
	// b[12:16], the port id of the sender, is filled in by the kernel.

	body := b[headerLen:]
	body[0] = unix.AF_INET
	if id.src.Addr().Is6() {
		body[0] = unix.AF_INET6
	}
	body[1] = unix.IPPROTO_TCP
	ne.PutUint32(body[4:], 0xffffffff) // every state

	sock := body[8:]
	binary.BigEndian.PutUint16(sock[0:], id.src.Port())
	binary.BigEndian.PutUint16(sock[2:], id.dst.Port())
	putAddr(sock[4:20], id.src.Addr())
	putAddr(sock[20:36], id.dst.Addr())
	ne.PutUint64(sock[40:], 0xffffffffffffffff) // INET_DIAG_NOCOOKIE
}

// putAddr writes a in network order to the front of b.
func putAddr(b []byte, a netip.Addr) {
	if a.Is4() {
		v4 := a.As4()
		copy(b, v4[:])
		return
	}
	v6 := a.As16()
	copy(b, v6[:])
}

// sockInfo is what the kernel said about one socket.
type sockInfo struct {
	id    connID
	state tcpState
	uid   uint32
	inode uint32 // 0: no process holds the socket
}

// parseReply reads the kernel's answer to the request with this seq, sent by
// the netlink socket with this port id. It returns errNoSocket if the kernel
// knows no such socket, the kernel's errno, or an error that wraps errReply.
// Whether the answer is about the right socket is for the caller to judge.
func parseReply(b []byte, seq, port uint32) (sockInfo, error) {
	if len(b) < headerLen {
		return sockInfo{}, fmt.Errorf("%w: %d bytes", errReply, len(b))
	}
	ne := binary.NativeEndian
	length := uint64(ne.Uint32(b[0:]))
	// One message and no other behind it; netlink pads to 4 bytes.
	if length < headerLen || length > uint64(len(b)) || (length+3)&^3 < uint64(len(b)) {
		return sockInfo{}, fmt.Errorf("%w: message of %d bytes in %d", errReply, length, len(b))
	}
	if got := ne.Uint32(b[8:]); got != seq {
		return sockInfo{}, fmt.Errorf("%w: sequence number %d, asked %d", errReply, got, seq)
	}
	if got := ne.Uint32(b[12:]); got != port {
		return sockInfo{}, fmt.Errorf("%w: for port id %d, ours is %d", errReply, got, port)
	}
	body := b[headerLen:length]
	switch kind := ne.Uint16(b[4:]); kind {
	case unix.SOCK_DIAG_BY_FAMILY:
		return parseDiagMsg(body)
	case unix.NLMSG_ERROR:
		return sockInfo{}, parseError(body)
	default:
		return sockInfo{}, fmt.Errorf("%w: type %d", errReply, kind)
	}
}

// parseError reads the errno of a struct nlmsgerr. It never returns nil.
func parseError(body []byte) error {
	if len(body) < 4 {
		return fmt.Errorf("%w: error of %d bytes", errReply, len(body))
	}
	code := int32(binary.NativeEndian.Uint32(body))
	switch {
	case code == -int32(unix.ENOENT):
		return errNoSocket
	case code < 0 && code > -4096: // MAX_ERRNO
		return syscall.Errno(-code)
	default: // 0 would be an acknowledgement, which was not asked for
		return fmt.Errorf("%w: error code %d", errReply, code)
	}
}

// parseDiagMsg reads a struct inet_diag_msg; attributes behind it are ignored.
func parseDiagMsg(body []byte) (sockInfo, error) {
	if len(body) < diagMsgLen {
		return sockInfo{}, fmt.Errorf("%w: socket of %d bytes", errReply, len(body))
	}
	var src, dst netip.Addr
	switch family := body[0]; family {
	case unix.AF_INET:
		src = netip.AddrFrom4([4]byte(body[8:12]))
		dst = netip.AddrFrom4([4]byte(body[24:28]))
	case unix.AF_INET6:
		// An IPv6 socket that speaks IPv4 has mapped addresses here.
		src = netip.AddrFrom16([16]byte(body[8:24])).Unmap()
		dst = netip.AddrFrom16([16]byte(body[24:40])).Unmap()
	default:
		return sockInfo{}, fmt.Errorf("%w: address family %d", errReply, family)
	}
	return sockInfo{
		id: connID{
			src: netip.AddrPortFrom(src, binary.BigEndian.Uint16(body[4:])),
			dst: netip.AddrPortFrom(dst, binary.BigEndian.Uint16(body[6:])),
		},
		state: tcpState(body[1]),
		uid:   binary.NativeEndian.Uint32(body[64:]),
		inode: binary.NativeEndian.Uint32(body[68:]),
	}, nil
}
