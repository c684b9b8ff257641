package control

import (
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// helperEnv makes the test binary connect to the socket named in it instead of
// running tests: a client of another user.
const helperEnv = "SLUICEGATE_CONTROL_HELPER"

func TestMain(m *testing.M) {
	if path := os.Getenv(helperEnv); path != "" {
		if err := runHelper(path); err != nil {
			fmt.Fprintln(os.Stderr, "helper:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// runHelper asks like a client and prints what comes back; nothing, if the
// server closes the connection.
func runHelper(path string) error {
	c, err := net.Dial("unix", path)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		return err
	}
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: sluicegate\r\n\r\n"); err != nil {
		return nil // closed before the request was out
	}
	b, err := io.ReadAll(c)
	if ne, ok := err.(net.Error); ok && ne.Timeout() {
		return err
	}
	_, err = os.Stdout.Write(b)
	return err
}
