package identity

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// opened returns the sockets of p that are open; nobody may use p meanwhile.
func opened(p *pool) (open []*netlink) {
	for range poolSize {
		nl := <-p.slots
		if nl != nil {
			open = append(open, nl)
		}
		p.slots <- nl
	}
	return open
}

func TestPoolKeepsAndDrops(t *testing.T) {
	t.Parallel()
	p := newPool()
	defer p.close()
	_, err := p.find(testID)
	require.ErrorIs(t, err, errNoSocket)
	for range 3 * poolSize {
		_, err = p.find(testID)
		require.ErrorIs(t, err, errNoSocket, "not finding a socket is a good answer")
	}
	kept := opened(p)
	require.Len(t, kept, poolSize)

	// With a wrong port id every reply looks like one for somebody else.
	for _, nl := range kept {
		nl.port++
	}
	for range poolSize {
		_, err = p.find(testID)
		require.ErrorIs(t, err, errReply)
	}
	assert.Empty(t, opened(p), "a socket with an error is closed, not kept")
	_, err = p.find(testID)
	require.ErrorIs(t, err, errNoSocket, "and replaced")
}

func TestNetlinkDoesNotHang(t *testing.T) {
	t.Parallel()
	nl, err := openNetlink()
	require.NoError(t, err)
	defer nl.close()
	require.NoError(t, unix.SetsockoptTimeval(nl.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 10_000}))
	_, err = nl.receive() // nothing was asked
	require.ErrorIs(t, err, unix.EAGAIN)

	fresh, err := openNetlink()
	require.NoError(t, err)
	defer fresh.close()
	for _, opt := range []int{unix.SO_RCVTIMEO, unix.SO_SNDTIMEO} {
		set, err := unix.GetsockoptTimeval(fresh.fd, unix.SOL_SOCKET, opt)
		require.NoError(t, err)
		assert.Equal(t, replyTimeout, *set)
	}
}

// TestNetlinkRefusesOtherSenders: a privileged process could send us a made-up
// answer; the kernel refuses it because the socket is connected to the kernel.
func TestNetlinkRefusesOtherSenders(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root may send netlink messages to other processes")
	}
	nl, err := openNetlink()
	require.NoError(t, err)
	defer nl.close()
	other, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	require.NoError(t, err)
	defer unix.Close(other)
	err = unix.Sendto(other, reply(nil), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Pid: nl.port})
	require.ErrorIs(t, err, unix.ECONNREFUSED)
}

// TestNetlinkChecksSender is the second lock on the same door: without the
// connection, the sender's address gives a made-up answer away.
func TestNetlinkChecksSender(t *testing.T) {
	t.Parallel()
	assert.True(t, fromKernel(&unix.SockaddrNetlink{Family: unix.AF_NETLINK}))
	assert.False(t, fromKernel(&unix.SockaddrNetlink{Family: unix.AF_NETLINK, Pid: 1}))
	assert.False(t, fromKernel(&unix.SockaddrUnix{}))
	assert.False(t, fromKernel(nil))

	if os.Geteuid() != 0 {
		t.Skip("only root may send netlink messages to other processes")
	}
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	require.NoError(t, err)
	nl := &netlink{fd: fd, seq: testSeq}
	defer nl.close()
	require.NoError(t, unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}))
	own, err := unix.Getsockname(fd)
	require.NoError(t, err)
	nl.port = own.(*unix.SockaddrNetlink).Pid
	other, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	require.NoError(t, err)
	defer unix.Close(other)
	require.NoError(t, unix.Sendto(other, reply(nil), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Pid: nl.port}))
	_, err = nl.receive()
	require.ErrorIs(t, err, errReply)
	require.ErrorContains(t, err, "not sent by the kernel")
}
