package audit

import (
	"bytes"
	"crypto/sha256"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// bigLog writes a sound log of one file with about size bytes.
func bigLog(tb testing.TB, path string, size int) {
	tb.Helper()

	var (
		enc  encoder
		link Link
		line []byte
		s    = newSealer()
		buf  bytes.Buffer
	)
	e := usual()
	enc.encode(&e)
	for buf.Len() < size {
		line, link = s.seal(line[:0], enc.buf, link)
		buf.Write(line)
	}
	require.NoError(tb, os.WriteFile(path, buf.Bytes(), 0o600))
}

func TestVerifyMemory(t *testing.T) {
	path := logPath(t)
	bigLog(t, path, 20<<20)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	r := verified(t, path)
	runtime.ReadMemStats(&after)
	require.True(t, r.OK())
	require.Greater(t, r.Records, uint64(15_000))
	assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20), "of all allocations, freed or not")
}

func BenchmarkVerify(b *testing.B) {
	path := filepath.Join(b.TempDir(), "audit.jsonl")
	bigLog(b, path, 32<<20)
	info, err := os.Stat(path)
	require.NoError(b, err)

	b.Run("verify", func(b *testing.B) {
		b.SetBytes(info.Size())
		b.ReportAllocs()
		for b.Loop() {
			if r, err := Verify(b.Context(), path); err != nil || !r.OK() {
				b.Fatal(r, err)
			}
		}
	})
	b.Run("sha256", func(b *testing.B) {
		b.SetBytes(info.Size())
		b.ReportAllocs()
		buf := make([]byte, readBlock)
		for b.Loop() {
			f, err := os.Open(path)
			require.NoError(b, err)
			_, err = io.CopyBuffer(sha256.New(), f, buf)
			require.NoError(b, err)
			require.NoError(b, f.Close())
		}
	})
}
