package audit

import (
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"
)

// usual returns a refusal as the proxy makes it.
func usual() Event {
	uid := uint32(1000)
	e := denied("registry.example.com")
	e.Time = time.Date(2026, 11, 30, 10, 0, 0, 123e6, time.UTC)
	e.ID, e.Flow = NewID(), NewID()
	e.Surface, e.User, e.Stage, e.Layer = "local", "jo", "policy", "product"
	e.Request = &Request{Method: "CONNECT", TargetRaw: "registry.example.com:443"}
	e.Rule = &Rule{ID: "default"}
	e.Client = &Client{Address: "127.0.0.1", Port: 50123, UID: &uid, Attribution: "verified"}
	e.HTTPStatus = 403
	e.Policy = &Policy{Version: 1, Digest: "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", Source: "embedded"}
	e.Boot, e.Host, e.Daemon = NewID(), Host{Name: "host.example.com", OS: "linux"}, Daemon{Version: "1.2.3", PID: 4711}

	return e
}

func BenchmarkEncode(b *testing.B) {
	e := usual()
	var enc encoder
	b.ReportAllocs()
	for b.Loop() {
		enc.encode(&e)
	}
	b.SetBytes(int64(len(enc.buf)))
}

func BenchmarkEncodeHostile(b *testing.B) {
	e := worst()
	var enc encoder
	b.ReportAllocs()
	for b.Loop() {
		enc.encode(&e)
	}
}

func BenchmarkSeal(b *testing.B) {
	e := usual()
	var (
		enc  encoder
		line []byte
		link Link
		s    = newSealer()
	)
	enc.encode(&e)
	b.ReportAllocs()
	for b.Loop() {
		line, link = s.seal(line[:0], enc.buf, link)
	}
}

func BenchmarkRecord(b *testing.B) {
	for _, bc := range []struct {
		name    string
		sync    time.Duration
		callers int
	}{
		{"one", 0, 1},
		{"64", 0, 64},
		{"one-sync-always", SyncAlways, 1},
		{"64-sync-always", SyncAlways, 64},
	} {
		b.Run(bc.name, func(b *testing.B) {
			fs := &faultyStorage{}
			l, err := Open(b.Context(), Options{
				File: filepath.Join(b.TempDir(), "audit.jsonl"), Sync: bc.sync, storage: fs,
			})
			if err != nil {
				b.Fatal(err)
			}
			var failed atomic.Int64
			b.ReportAllocs()
			b.SetParallelism(bc.callers)
			if bc.callers == 1 {
				e := usual()
				for b.Loop() {
					if l.Record(b.Context(), e) != nil {
						failed.Add(1)
					}
				}
			} else {
				b.RunParallel(func(pb *testing.PB) {
					e := usual()
					for pb.Next() {
						if l.Record(b.Context(), e) != nil {
							failed.Add(1)
						}
					}
				})
			}
			if failed.Load() > 0 {
				b.Fatal(l.Stats().LastError)
			}
			writes, _, _ := fs.count()
			b.ReportMetric(float64(l.Stats().LastSeq)/float64(max(writes, 1)), "lines/write")
			if err = l.Close(b.Context()); err != nil {
				b.Fatal(err)
			}
		})
	}
}
