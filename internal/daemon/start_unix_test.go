//go:build unix

package daemon

import (
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// The last step is the first record: a gate that can't write it does not serve.
// Files of this process can't grow for a moment, which is what a full disk looks
// like.
//
// It runs in a process of its own: the limit would also stop what go test writes
// beside the test.
func TestStartUndoesWhenTheFirstRecordFails(t *testing.T) {
	const child = "SLUICEGATE_TEST_NO_GROWTH"
	if os.Getenv(child) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), child+"=1")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Contains(t, string(out), "--- PASS: "+t.Name())
		return
	}
	quiet := goleak.IgnoreCurrent()
	o := newOptions(t)
	var before syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &before))
	// The system also sends a signal that would end the test.
	signal.Ignore(syscall.SIGXFSZ)
	defer signal.Reset(syscall.SIGXFSZ)
	none := before
	none.Cur = 0
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &none))
	d, err := Start(t.Context(), o)
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &before))

	require.ErrorContains(t, err, "writing the first audit record")
	assert.Nil(t, d)
	goleak.VerifyNone(t, quiet)
	assert.Empty(t, story(t, o.Settings.AuditFile))
	assertNothingRuns(t, o)
}
