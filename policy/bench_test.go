package policy_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"sluicegate/policy"
)

// benchNames are n random names of which every second has two more labels than
// its rule, as in the measurements of the design.
func benchNames(n int) []string {
	rnd := rand.New(rand.NewPCG(1, 2))
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
	names := make([]string, n)
	for i := range names {
		var b strings.Builder
		for range 6 + rnd.IntN(10) {
			b.WriteByte(letters[rnd.IntN(len(letters))])
		}
		names[i] = b.String() + []string{".com", ".org", ".co.uk", ".io"}[rnd.IntN(4)]
	}
	return names
}

// benchPolicy allows names by wildcard in groups of as many as a file holds.
func benchPolicy(b *testing.B, names []string) *policy.Snapshot {
	b.Helper()
	const perFile = 25_000
	var groups []string
	in := []policy.File{{}}
	for i := 0; i < len(names); i += perFile {
		var text strings.Builder
		group := fmt.Sprintf("g%d", i/perFile)
		groups = append(groups, group)
		text.WriteString("version: 1\ngroup: " + group + "\nhosts:\n")
		seen := map[string]bool{}
		for _, name := range names[i:min(i+perFile, len(names))] {
			if !seen[name] {
				text.WriteString("- \"**." + name + "\"\n")
			}
			seen[name] = true
		}
		in = append(in, policy.File{Name: group, Data: []byte(text.String())})
	}
	in[0] = policy.File{Name: "product", Data: []byte(oneProfile("use: [" + strings.Join(groups, ", ") + "]\ndeny: [{cidr: 9.9.9.0/24}]"))}
	s, err := policy.Compile(in)
	if err != nil {
		b.Fatal(err)
	}
	return s
}

// benchQueries are 4096 requests below listed names, or below unlisted ones.
func benchQueries(b *testing.B, names []string, listed bool) []policy.Request {
	b.Helper()
	out := make([]policy.Request, 4096)
	for i := range out {
		name := names[i*7919%len(names)]
		if !listed {
			name = "x" + name
		}
		out[i] = tunnel(b, "a.b."+name+":443")
	}
	return out
}

// BenchmarkDecide decides over 100,000 names. x-walk is how many times as long
// it takes as walking the same map for the same queries without deciding
// anything; the two take turns, so that load on the machine meets both.
func BenchmarkDecide(b *testing.B) {
	names := benchNames(100_000)
	s := benchPolicy(b, names)
	runtime.GC()
	for kind, listed := range map[string]bool{"hit": true, "miss": false} {
		queries := benchQueries(b, names, listed)
		b.Run(kind, func(b *testing.B) {
			b.ReportAllocs()
			var walking time.Duration
			turns := 0
			for b.Loop() {
				for i := range queries {
					if d := s.Decide(queries[i]); d.Allowed() != listed {
						b.Fatal(verdict(d))
					}
				}
				b.StopTimer()
				start := time.Now()
				for i := range queries {
					if s.Walk(queries[i]) != listed {
						b.Fatal(queries[i].Destination)
					}
				}
				walking += time.Since(start)
				turns++
				b.StartTimer()
			}
			perTurn := float64(b.Elapsed().Nanoseconds()) / float64(b.N)
			b.ReportMetric(perTurn/float64(len(queries)), "ns/decision")
			b.ReportMetric(perTurn*float64(turns)/float64(walking.Nanoseconds()), "x-walk")
		})
	}
	queries := benchQueries(b, names, true)
	addrs := []netip.Addr{netip.MustParseAddr(publicAddress), netip.MustParseAddr("2606:4700::1111")}
	for i := range queries {
		queries[i].Addrs = addrs
		queries[i].Local = modelMachine
	}
	b.Run("hit with addresses", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if d := s.Decide(queries[i%len(queries)]); !d.Allowed() {
				b.Fatal(verdict(d))
			}
		}
	})
}

func BenchmarkClassifyAddr(b *testing.B) {
	for _, s := range []string{"10.0.0.1", "93.184.216.34", "2606:4700::1111", "fe80::1", "169.254.169.254"} {
		a := netip.MustParseAddr(s)
		b.Run(s, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				policy.ClassifyAddr(a)
			}
		})
	}
}

func BenchmarkParseAuthority(b *testing.B) {
	for name, in := range map[string]string{
		"name": "packages.example.org:443", "upper case": "Packages.Example.org.:443", "IPv4": "93.184.216.34:443",
		"IPv6": "[2606:4700::1111]:443", "international": "xn--bcher-kva.example:443", "refused": "127.1:443",
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = policy.ParseAuthority(in)
			}
		})
	}
}

func BenchmarkCompile(b *testing.B) {
	names := benchNames(100_000)
	for b.Loop() {
		benchPolicy(b, names)
	}
}
