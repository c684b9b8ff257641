//go:build unix

package pair

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The product runs as an ordinary user and must be able to read what root wrote,
// even where root's files are closed to others. Not parallel: the umask is that
// of the process.
func TestWriteDespiteUmask(t *testing.T) {
	p := below(t)
	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	_, err := Write(p, content(t))
	require.NoError(t, err)
	for path, want := range map[string]fs.FileMode{p.Own: fileMode, p.DropIns: folderMode, filepath.Dir(p.DropIns): folderMode} {
		info, err := os.Stat(path)
		require.NoError(t, err)
		assert.Equal(t, want, info.Mode().Perm(), path)
	}
}
