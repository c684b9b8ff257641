//go:build unix

package main_test

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What happens to live tunnels when the gate is told to stop. The tunnels carry
// a transfer of which the test decides when it ends.

// openedLine is the record of a tunnel to the plain origin.
func (w *world) openedLine() string {
	return fmt.Sprintf("egress.opened allow rule connect plain.example.com:%d rule=plain", w.plain.port)
}

func (w *world) closedLine(end string) string {
	return fmt.Sprintf("egress.closed allow rule connect plain.example.com:%d rule=plain http=200 end=%s", w.plain.port, end)
}

// transfer is a tunnel through which the first half of something has come.
type transfer struct {
	conn net.Conn
	body io.Reader
}

func (w *world) transfer(gate string) transfer {
	w.t.Helper()
	conn := w.tunnel(gate)
	tr := transfer{conn, get(w.t, conn, "/slow")}
	half := make([]byte, len(firstHalf))
	_, err := io.ReadFull(tr.body, half)
	require.NoError(w.t, err)
	require.Equal(w.t, firstHalf, string(half))
	return tr
}

// rest reads to the end and leaves, as a client does that has all it wants.
func (tr transfer) rest() (string, error) {
	b, err := io.ReadAll(tr.body)
	_ = tr.conn.Close()
	return string(b), err
}

// draining waits until the gate accepts nothing any more.
func (g *gate) draining(addr string) {
	g.w.t.Helper()
	eventually(g.w.t, "the listener to close", func() bool {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	})
}

func TestStopLetsTransfersEnd(t *testing.T) {
	for _, stop := range []os.Signal{syscall.SIGTERM, os.Interrupt} {
		t.Run(stop.String(), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			g := w.start()
			addr := g.addr(commands)
			tr := w.transfer(addr)

			g.signal(stop)
			g.draining(addr)
			close(w.plain.slow)
			rest, err := tr.rest()
			require.NoError(t, err)
			assert.Equal(t, secondHalf, rest, "the transfer was not cut")

			assert.Zero(t, g.wait())
			assert.Equal(t, []string{
				"service.started previous=unknown", w.openedLine(), w.closedLine("orderly"), "service.stopped cause=signal",
			}, w.story())
			w.verifyChain()
		})
	}
}

// timeout(1) and some supervisors signal the process and then its whole group:
// that is one wish to stop, not two.
func TestStopSignalledTwiceAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.start()
	addr := g.addr(commands)
	tr := w.transfer(addr)

	g.signal(syscall.SIGTERM)
	g.signal(syscall.SIGTERM)
	g.draining(addr)
	close(w.plain.slow)
	rest, err := tr.rest()
	require.NoError(t, err)
	assert.Equal(t, secondHalf, rest)
	assert.Zero(t, g.wait(), g.err.String())
	assert.Equal(t, "service.stopped cause=signal", w.story()[3])
}

func TestStopCutsWhatStaysOpen(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.start()
	addr := g.addr(commands)
	first, second := w.transfer(addr), w.transfer(addr)

	g.signal(syscall.SIGTERM)
	for _, tr := range []transfer{first, second} {
		_, err := tr.rest()
		assert.Error(t, err, "the transfer must not look complete")
	}
	assert.Zero(t, g.wait(), "a tunnel that stays open does not make the stop a failure")
	assert.Equal(t, []string{
		"service.started previous=unknown", w.openedLine(), w.openedLine(),
		w.closedLine("gate/shutdown"), w.closedLine("gate/shutdown"), "service.stopped cause=signal cut=2",
	}, w.story())
	w.verifyChain()
}

func TestSecondSignalStopsAtOnce(t *testing.T) {
	for _, stop := range []os.Signal{syscall.SIGTERM, os.Interrupt} {
		t.Run(stop.String(), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			g := w.start()
			addr := g.addr(commands)
			tr := w.transfer(addr)

			g.signal(stop)
			g.draining(addr)
			// Again and again, since one that comes too soon does not count.
			eventually(t, "the end of the gate", func() bool {
				_ = g.cmd.Process.Signal(stop)
				select {
				case <-g.ended:
					return true
				default:
					return false
				}
			})
			assert.Equal(t, 1, g.wait())
			assert.Contains(t, oneLine(t, g.err.String()), "stopped at once by a second signal")
			_, err := tr.rest()
			assert.Error(t, err)
			// Had it waited for the tunnel, its end would be in the log.
			assert.Equal(t, []string{"service.started previous=unknown", w.openedLine()}, w.story())

			w.start().stop()
			assert.Equal(t, "service.started previous=unclean", w.story()[2])
			w.verifyChain()
		})
	}
}

// A client that has connected and asked nothing does not hold up the stop.
func TestStopDoesNotWaitForSilentClients(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.start()
	conn, err := net.Dial("tcp", g.addr(commands))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	g.stop()
	assert.Equal(t, []string{"service.started previous=unknown", "service.stopped cause=signal"}, w.story(), "nothing was cut")
}

// The gate does not go down with whoever read its output.
func TestOutputThatNobodyReads(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	read, written, err := os.Pipe()
	require.NoError(t, err)
	g := w.launch(func(cmd *exec.Cmd) {
		cmd.Stdout, cmd.Stderr = written, written
	})
	require.NoError(t, written.Close())
	require.NoError(t, read.Close())
	eventually(t, "an answer of the gate", func() bool {
		select {
		case <-g.ended:
			require.FailNow(t, "the gate ended", "%s", g.cmd.ProcessState)
		default:
		}
		return w.sluicegate("status").code == 0
	})
	told, err := ask("http://"+g.addr(commands), "https://forbidden.example.net")
	require.NoError(t, err)
	assert.Equal(t, 403, told.status)
}
