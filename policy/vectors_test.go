package policy_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"sluicegate/policy"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// vectorFile is a file of testdata/vectors: policy files, requests and what must
// come of them. The test profile is asked.
type vectorFile struct {
	About    string          `yaml:"about"`
	Files    []string        `yaml:"files"`
	Requests []vectorRequest `yaml:"requests"`
}

// vectorRequest names everything a decision says; what is left out must be
// empty.
type vectorRequest struct {
	// Ask is a way to ask, a destination and the addresses it resolves to.
	Ask  string `yaml:"ask"`
	Want string `yaml:"want"`
	Rule string `yaml:"rule"`
	Line int    `yaml:"line"`
	// Layer is product where a rule or the default decided and builtin where
	// nothing says otherwise.
	Layer string `yaml:"layer"`
	Range string `yaml:"range"`
	Addr  string `yaml:"addr"`
	// Own and Listeners describe the machine, At is the time, now if empty.
	Own       []string `yaml:"own"`
	Listeners []int    `yaml:"listeners"`
	At        string   `yaml:"at"`
}

func TestVectors(t *testing.T) {
	names, err := filepath.Glob("testdata/vectors/*.yaml")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(names), 14)
	for _, name := range names {
		t.Run(filepath.Base(name), func(t *testing.T) {
			data, err := os.ReadFile(name)
			require.NoError(t, err)
			var v vectorFile
			require.NoError(t, policy.DecodeYAML(name, data, &v))
			require.NotEmpty(t, v.About)
			require.NotEmpty(t, v.Requests)
			s := compile(t, v.Files...)
			for _, r := range v.Requests {
				t.Run(r.Ask, func(t *testing.T) { runVector(t, s, r) })
			}
		})
	}
}

func runVector(t *testing.T, s *policy.Snapshot, v vectorRequest) {
	r := ask(t, v.Ask)
	if v.At != "" {
		var err error
		r.Now, err = time.Parse(time.RFC3339, v.At)
		require.NoError(t, err)
	}
	r.Local = machine(v.Own, v.Listeners)
	d := s.Decide(r)
	assert.Equal(t, v.Want, verdict(d))
	assert.Equal(t, v.Rule, ruleID(d))
	if d.Rule != nil {
		assert.Equal(t, v.Line, d.Rule.Line)
		assert.NotEmpty(t, d.Rule.File)
	}
	assert.Equal(t, v.Range, d.Range)
	if v.Addr == "" {
		assert.False(t, d.Addr.IsValid(), "%s", d.Addr)
	} else {
		assert.Equal(t, v.Addr, d.Addr.String())
	}
	if v.Layer != "" {
		assert.Equal(t, v.Layer, string(d.Layer))
	} else {
		assert.Contains(t, []policy.Layer{policy.LayerBuiltin, policy.LayerProduct}, d.Layer)
	}
	assert.Equal(t, testProfile, d.Profile.Name)
	assert.Equal(t, s.Digest(), d.Digest)
}

func machine(own []string, listeners []int) *policy.LocalSet {
	if own == nil && listeners == nil {
		return nil
	}
	var addrs []netip.Addr
	for _, a := range own {
		addrs = append(addrs, netip.MustParseAddr(a))
	}
	var ports []uint16
	for _, p := range listeners {
		ports = append(ports, uint16(p))
	}
	return policy.NewLocalSet(addrs, ports)
}
