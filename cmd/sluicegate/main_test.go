//go:build unix

package main_test

// These tests drive the built binary as its user does: with arguments, files,
// environment variables, signals and clients of its listeners. They look at
// exit codes, output, answers on the wire and the audit log, and import nothing
// of the program. Nothing leaves loopback.
//
//	world_test.go      folders, settings and policy of one gate; running commands
//	gate_test.go       one running daemon
//	auditlog_test.go   the audit log as an investigator reads it
//	dns_test.go        the DNS server that the gate asks
//	origin_test.go     the servers that clients want to reach
//
// They need signals, so they are for Unix; nothing here says anything about
// Windows.

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

// binary is the program under test, of version testVersion.
var binary string

const testVersion = "v0.0.0-test"

func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

func buildAndRun(m *testing.M) int {
	if url := os.Getenv(fetchVariable); url != "" {
		return fetch(url)
	}
	dir, err := os.MkdirTemp("", "sg")
	if err != nil {
		return fail(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	// One test runs the program as another user.
	if err := os.Chmod(dir, 0o755); err != nil {
		return fail(err)
	}
	if binary = os.Getenv("SLUICEGATE_TEST_BINARY"); binary != "" {
		return m.Run()
	}
	binary = filepath.Join(dir, "sluicegate")
	build := exec.Command("go", "build", "-buildvcs=false", "-trimpath",
		"-ldflags", "-X main.version="+testVersion, "-o", binary, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fail(fmt.Errorf("building the program: %w\n%s", err, out))
	}
	code := m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		return fail(err)
	}
	return code
}

func fail(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}
