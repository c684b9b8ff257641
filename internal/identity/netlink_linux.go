package identity

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// poolSize is how many netlink sockets there are at most. The kernel answers
// while it takes the request, so more would only wait for a processor.
const poolSize = 4

// replyTimeout is how long one answer is waited for. The answer is there when
// the request has been sent; the limit is for a kernel that behaves otherwise.
var replyTimeout = unix.Timeval{Usec: 500_000}

// sockets serves TCP. Its descriptors stay open for the life of the process.
var sockets = newPool()

// pool hands out netlink sockets, each to one caller at a time. It bounds the
// number of descriptors, so that a crowd of clients can't use them up.
type pool struct {
	// slots always holds poolSize values when nobody uses the pool; nil stands
	// for a socket that is not open yet or was closed after an error.
	slots chan *netlink
}

func newPool() *pool {
	p := &pool{slots: make(chan *netlink, poolSize)}
	for range poolSize {
		p.slots <- nil
	}
	return p
}

// find asks the kernel for the socket id. It waits while all slots are in use.
func (p *pool) find(id connID) (sockInfo, error) {
	nl := <-p.slots
	if nl == nil {
		var err error
		if nl, err = openNetlink(); err != nil {
			p.slots <- nil
			return sockInfo{}, err
		}
	}
	info, err := nl.ask(id)
	if err != nil && !errors.Is(err, errNoSocket) {
		// What is still on its way must not become the next caller's answer.
		nl.close()
		nl = nil
	}
	p.slots <- nl
	return info, err
}

// close closes the sockets that are open. Callers must not use the pool at the
// same time. Used by tests: the pool of the package lives as long as the process.
func (p *pool) close() {
	for range poolSize {
		if nl := <-p.slots; nl != nil {
			nl.close()
		}
		p.slots <- nil
	}
}

// netlink is one NETLINK_SOCK_DIAG socket with its buffers. It must not be used
// concurrently.
type netlink struct {
	fd   int
	port uint32 // our address, chosen by the kernel
	seq  uint32
	out  [requestLen]byte
	in   [4096]byte // an answer is below 500 bytes
}

// openNetlink returns a socket that is connected to the kernel: from then on
// the kernel refuses messages of other senders for us.
func openNetlink() (*netlink, error) {
	// Blocking on purpose: SO_RCVTIMEO bounds the wait, and a trip through the
	// runtime's poller would cost more than the look-up.
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return nil, fmt.Errorf("opening a netlink socket: %w", err)
	}
	nl := &netlink{fd: fd}
	if err := nl.setup(); err != nil {
		nl.close()
		return nil, fmt.Errorf("setting up a netlink socket: %w", err)
	}
	return nl, nil
}

func (nl *netlink) setup() error {
	if err := unix.SetsockoptTimeval(nl.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &replyTimeout); err != nil {
		return err
	}
	if err := unix.SetsockoptTimeval(nl.fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &replyTimeout); err != nil {
		return err
	}
	if err := unix.Connect(nl.fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	own, err := unix.Getsockname(nl.fd)
	if err != nil {
		return err
	}
	addr, ok := own.(*unix.SockaddrNetlink)
	if !ok || addr.Pid == 0 {
		return errors.New("no port id")
	}
	nl.port = addr.Pid
	return nil
}

// close closes the descriptor. An error would change nothing for the caller:
// the descriptor is gone in any case.
func (nl *netlink) close() { _ = unix.Close(nl.fd) }

// ask sends the question for id and reads the answer. After any error but
// errNoSocket the socket must be closed.
func (nl *netlink) ask(id connID) (sockInfo, error) {
	nl.seq++
	putRequest(&nl.out, id, nl.seq)
	n, err := retry(func() (int, error) { return unix.Write(nl.fd, nl.out[:]) })
	if err != nil {
		return sockInfo{}, fmt.Errorf("asking the kernel: %w", err)
	}
	if n != requestLen {
		return sockInfo{}, fmt.Errorf("asking the kernel: %d of %d bytes sent", n, requestLen)
	}
	return nl.receive()
}

// receive reads one answer to the request sent last.
func (nl *netlink) receive() (sockInfo, error) {
	var from unix.Sockaddr
	n, err := retry(func() (n int, err error) {
		// With MSG_TRUNC n is the true length, also of what didn't fit.
		n, from, err = unix.Recvfrom(nl.fd, nl.in[:], unix.MSG_TRUNC)
		return n, err
	})
	if err != nil {
		return sockInfo{}, fmt.Errorf("waiting for the kernel's answer: %w", err)
	}
	if !fromKernel(from) {
		return sockInfo{}, fmt.Errorf("%w: not sent by the kernel", errReply)
	}
	if n > len(nl.in) {
		return sockInfo{}, fmt.Errorf("%w: %d bytes don't fit", errReply, n)
	}
	return parseReply(nl.in[:n], nl.seq, nl.port)
}

// fromKernel says whether the sender of a netlink message is the kernel, whose
// port id is 0 (netlink(7)).
func fromKernel(from unix.Sockaddr) bool {
	addr, ok := from.(*unix.SockaddrNetlink)
	return ok && addr.Pid == 0
}

// retry calls f again while a signal interrupts it: with SO_RCVTIMEO set,
// SA_RESTART doesn't apply (signal(7)), and the Go runtime sends signals for
// preemption. The bound keeps a storm of signals from extending the time-out
// for ever.
func retry(f func() (int, error)) (n int, err error) {
	for range 16 {
		if n, err = f(); !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
	return n, err
}
