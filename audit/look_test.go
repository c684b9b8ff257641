//go:build unix

package audit

import (
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A file that another program took away is missed although nothing is written:
// within a second, or at once when the log is asked to look.
func TestFileTakenAwayWhileIdle(t *testing.T) {
	for name, asked := range map[string]bool{"by itself": false, "asked": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				path := logPath(t)
				l := openLog(t, Options{File: path})
				record(t, l, denied("a.example.com"))
				time.Sleep(checkEvery / 3)
				require.NoError(t, os.Rename(path, path+".1"))
				if asked {
					l.Reopen()
					l.Reopen()
				} else {
					time.Sleep(checkEvery)
				}
				synctest.Wait()
				got := parseAll(t, path)
				require.Len(t, got, 1)
				assert.Equal(t, AuditRotated, got[0].Event)
				assert.Empty(t, got[0].Rotated.File)
				assert.Equal(t, uint64(1), got[0].Rotated.LastSeq)
				record(t, l, denied("b.example.com"))
				closeLog(t, l)
				assert.Len(t, parseAll(t, path), 2)
				assert.Len(t, parseAll(t, path+".1"), 1)
			})
		})
	}
}

// A folder that is gone makes the log unhealthy although nothing is written, and
// it recovers by itself.
func TestFolderRemovedWhileIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir() + "/log"
		require.NoError(t, os.Mkdir(dir, 0o700))
		path := dir + "/audit.jsonl"
		l := openLog(t, Options{File: path})
		record(t, l, denied("a.example.com"))
		require.NoError(t, os.RemoveAll(dir))
		time.Sleep(checkEvery)
		synctest.Wait()
		assert.False(t, l.Healthy())
		require.NoError(t, os.Mkdir(dir, 0o700))
		time.Sleep(2 * retryMin)
		synctest.Wait()
		assert.True(t, l.Healthy())
		record(t, l, denied("b.example.com"))
		closeLog(t, l)
	})
}
