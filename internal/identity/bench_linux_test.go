package identity

import (
	"slices"
	"testing"
	"time"
)

// BenchmarkTCP reports the median and the 99th percentile beside the mean.
func BenchmarkTCP(b *testing.B) {
	l := listen(b, "tcp4", "127.0.0.1:0")
	server, _ := connect(b, l, "tcp4", l.Addr().String())
	local, remote := ends(server)
	b.ReportAllocs()
	took := make([]time.Duration, 0, 1<<16)
	for b.Loop() {
		start := time.Now()
		if p, err := TCP(local, remote); err != nil || !p.Known {
			b.Fatal(p, err)
		}
		if len(took) < cap(took) {
			took = append(took, time.Since(start))
		}
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Nanoseconds()), "p50-ns")
	b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds()), "p99-ns")
}

func BenchmarkTCPParallel(b *testing.B) {
	l := listen(b, "tcp4", "127.0.0.1:0")
	server, _ := connect(b, l, "tcp4", l.Addr().String())
	local, remote := ends(server)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if p, err := TCP(local, remote); err != nil || !p.Known {
				b.Error(p, err)
				return
			}
		}
	})
}
