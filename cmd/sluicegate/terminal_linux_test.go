package main

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A real terminal, for which the environment decides.
func TestColoursOnATerminal(t *testing.T) {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("this system lends no terminal: %v", err)
	}
	defer master.Close()
	require.NoError(t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	terminal, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	defer terminal.Close()

	for _, tc := range []struct {
		noColor, term string
		want          bool
	}{{"", "xterm", true}, {"", "", true}, {"1", "xterm", false}, {"", "dumb", false}} {
		got := wantsColour(terminal, func(name string) string {
			return map[string]string{"NO_COLOR": tc.noColor, "TERM": tc.term}[name]
		})
		assert.Equal(t, tc.want, got, tc)
	}
}
