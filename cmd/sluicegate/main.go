// Command sluicegate is the gate and the tools around it. Every command is a
// file of its own that reads flags, asks the daemon or the policy, and prints;
// exit codes are in exit.go.
package main

import (
	"context"
	"os"
)

// version is set by the linker.
var version = "dev"

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}
