//go:build unix

package main_test

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What keeps a gate from starting is told in one line that says what to do, and
// leaves nothing behind that keeps the next start from succeeding.

// fails runs the daemon, which must end at once, and returns its line.
func (w *world) fails() string {
	w.t.Helper()
	g := w.launch()
	assert.Equal(w.t, 1, g.wait())
	assert.Empty(w.t, g.out.String(), "nothing looks as if it ran")
	return oneLine(w.t, g.err.String())
}

func TestSecondInstance(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.start()
	assert.Equal(t,
		fmt.Sprintf("another sluicegate daemon is running (control socket %s)", filepath.Join(w.state, "control.sock")), w.fails())
	assert.Equal(t, g.cmd.Process.Pid, g.status(0).PID, "the first one is not disturbed")
	g.stop()
	assert.Equal(t, []string{"service.started previous=unknown", "service.stopped cause=signal"}, w.story())
}

// Two gates with folders of their own must not write one log.
func TestSecondInstanceOnTheSameLog(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.start()
	other := *w
	other.state = filepath.Join(w.dir, "other")
	w.settings("dns: {upstreams: [\"" + w.dns.addr + "\"]}\naudit: {file: " + w.audit + "}\n")
	line := other.fails()
	assert.Contains(t, line, w.audit)
	assert.Contains(t, line, "another")
	assert.Equal(t, "ok", g.status(0).Health)
}

// freePorts returns ports that are free on both loopback addresses, from a range
// out of which no system gives ports to clients.
func freePorts(t *testing.T, n int) []int {
	t.Helper()
	var ports []int
	for range 1000 {
		port := 20000 + rand.IntN(10000)
		four, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			continue
		}
		require.NoError(t, four.Close())
		if hasIPv6() {
			six, err := net.Listen("tcp6", net.JoinHostPort("::1", strconv.Itoa(port)))
			if err != nil {
				continue
			}
			require.NoError(t, six.Close())
		}
		if ports = append(ports, port); len(ports) == n {
			return ports
		}
	}
	require.FailNow(t, "no free port")
	return nil
}

func hasIPv6() bool {
	l, err := net.Listen("tcp6", "[::1]:0")
	if err == nil {
		_ = l.Close()
	}
	return err == nil
}

func TestPortInUse(t *testing.T) {
	for name, host := range map[string]string{"IPv4": "127.0.0.1", "IPv6": "::1", "every address": "0.0.0.0"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if host == "::1" && !hasIPv6() {
				t.Skip("this host has no IPv6 loopback")
			}
			w := newWorld(t)
			ports := freePorts(t, 2)
			// Profiles are bound in the order of their names: when the second
			// one fails the first one listens.
			w.policy(fmt.Sprintf(`
version: 1
product: claude-code
profiles:
  commands:
    listen: {port: %d}
  process:
    listen: {port: %d}
`, ports[0], ports[1]))
			taken, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(ports[1])))
			require.NoError(t, err)
			t.Cleanup(func() { _ = taken.Close() })
			failedOn := net.JoinHostPort(host, strconv.Itoa(ports[1]))
			if host == "0.0.0.0" {
				failedOn = net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[1]))
			}
			assert.Equal(t, "listening on "+failedOn+" for claude-code/process: the port is in use; stop the program that has it, "+
				"or set profiles.process.listen.port of product claude-code to another one", w.fails())

			l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[0])))
			require.NoError(t, err, "something still listens")
			require.NoError(t, l.Close())
			_, err = os.Lstat(filepath.Join(w.state, "control.sock"))
			assert.ErrorIs(t, err, os.ErrNotExist)
			assert.Empty(t, w.story(), "a gate that did not start records no start")

			require.NoError(t, taken.Close())
			g := w.start()
			assert.Equal(t, net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[1])), g.addr("claude-code/process"))
			g.stop()
			assert.Equal(t, "service.started previous=unknown", w.story()[0])
		})
	}
}

func TestUnusablePaths(t *testing.T) {
	for name, tc := range map[string]struct {
		prepare func(*testing.T, *world)
		says    []string
	}{
		"state folder below a file": {
			func(t *testing.T, w *world) {
				write(t, filepath.Join(w.dir, "file"), "")
				w.state = filepath.Join(w.dir, "file", "state")
			},
			[]string{"/file", "not a directory", "--state-dir"},
		},
		"state folder is a file": {
			func(t *testing.T, w *world) { write(t, w.state, "") },
			[]string{"/state", "not a directory", "--state-dir"},
		},
		"state folder that others may write to": {
			func(t *testing.T, w *world) {
				require.NoError(t, os.Mkdir(w.state, 0o700))
				require.NoError(t, os.Chmod(w.state, 0o777))
			},
			[]string{"/state", "writable by other users", "chmod go-w"},
		},
		"audit log is a folder": {
			func(t *testing.T, w *world) { require.NoError(t, os.MkdirAll(w.audit, 0o700)) },
			[]string{"/audit.jsonl", "is a folder", "set audit.file to"},
		},
		"audit log is a link": {
			func(t *testing.T, w *world) {
				require.NoError(t, os.Mkdir(w.state, 0o700))
				write(t, filepath.Join(w.dir, "elsewhere"), "")
				require.NoError(t, os.Symlink(filepath.Join(w.dir, "elsewhere"), w.audit))
			},
			[]string{"/audit.jsonl", "is a symbolic link", "remove the link"},
		},
		"audit log is a pipe": {
			func(t *testing.T, w *world) {
				require.NoError(t, os.Mkdir(w.state, 0o700))
				require.NoError(t, syscall.Mkfifo(w.audit, 0o600))
			},
			[]string{"/audit.jsonl", "is not a regular file", "remove it"},
		},
		"audit log below a file": {
			func(t *testing.T, w *world) {
				write(t, filepath.Join(w.dir, "file"), "")
				w.settings("audit: {file: ../file/audit.jsonl}\n")
			},
			[]string{"/file", "not a directory", "audit.file"},
		},
		"control socket is a file": {
			func(t *testing.T, w *world) {
				require.NoError(t, os.Mkdir(w.state, 0o700))
				write(t, filepath.Join(w.state, "control.sock"), "")
			},
			[]string{"/control.sock", "is not a socket", "move it away"},
		},
		"settings are a pipe": {
			func(t *testing.T, w *world) {
				require.NoError(t, os.Remove(w.config))
				require.NoError(t, syscall.Mkfifo(w.config, 0o600))
			},
			[]string{"/sluicegate.yaml", "is not a regular file"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			tc.prepare(t, w)
			line := w.fails()
			for _, part := range tc.says {
				assert.Contains(t, line, part)
			}
		})
	}
}
