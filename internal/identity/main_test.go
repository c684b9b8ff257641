package identity

import (
	"fmt"
	"net"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// helperEnv makes the test binary run as the child named in it instead of
// running tests, and helperAddr tells the child where to connect.
const (
	helperEnv  = "SLUICEGATE_IDENTITY_HELPER"
	helperAddr = "SLUICEGATE_IDENTITY_ADDR"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(helperEnv); role != "" {
		if err := runHelper(role, os.Getenv(helperAddr)); err != nil {
			fmt.Fprintln(os.Stderr, "helper:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// strayConnections is how many connections the role "stray" makes.
const strayConnections = 200

// runHelper is the child process: a client of another user.
func runHelper(role, addr string) error {
	switch role {
	case "hold": // connect and stay until the server closes
		c, err := net.Dial("tcp", addr)
		if err != nil {
			return err
		}
		defer c.Close()
		_, _ = c.Read(make([]byte, 1))
		return nil
	case "stray", "stray-multipath": // connect, send and be gone, again and again
		var d net.Dialer
		d.SetMultipathTCP(role == "stray-multipath")
		for range strayConnections {
			c, err := d.Dial("tcp", addr)
			if err != nil {
				return err
			}
			_, _ = c.Write([]byte("CONNECT example.com:443 HTTP/1.1\r\n\r\n"))
			_ = c.Close()
		}
		return nil
	default:
		return fmt.Errorf("unknown role %q", role)
	}
}
