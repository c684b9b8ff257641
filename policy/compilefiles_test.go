package policy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"sluicegate/policy"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// problemsOf compiles files that must not be good and returns place, path and
// message of each problem, without hint and source.
func problemsOf(t *testing.T, in []policy.File) []string {
	t.Helper()
	snapshot, err := policy.Compile(in)
	require.Error(t, err)
	require.Nil(t, snapshot)
	var problems policy.Problems
	require.ErrorAs(t, err, &problems)
	return brief(problems)
}

func brief(problems []policy.Problem) []string {
	var out []string
	for _, p := range problems {
		out = append(out, strings.TrimPrefix(fmt.Sprintf("%s:%d %s: %s", p.File, p.Line, p.Path, p.Msg), " "))
	}
	return out
}

// Faults that only show when files are seen together.
func TestFilesTogether(t *testing.T) {
	const base = "version: 1\nproduct: test\nprofiles:\n  p:\n    listen: {port: 18001}\n    mode: observe\n    network: open\n    observe_until: 2027-01-01\n"
	const part = "version: 1\nproduct: test\nprofiles:\n  p:\n    "
	for name, tt := range map[string]struct {
		texts []string
		want  []string
	}{
		"listen": {[]string{base, part + "listen: {port: 1}\n"}, []string{"f1.yaml:5 profiles.p.listen: f0.yaml sets it already"}},
		"mode":   {[]string{base, part + "mode: enforce\n"}, []string{"f1.yaml:5 profiles.p.mode: f0.yaml sets it already"}},
		"same mode": {
			[]string{base, part + "mode: observe\n"}, []string{"f1.yaml:5 profiles.p.mode: f0.yaml sets it already"},
		},
		"network": {[]string{base, part + "network: blocked\n"}, []string{"f1.yaml:5 profiles.p.network: f0.yaml sets it already"}},
		"observe_until": {
			[]string{base, part + "observe_until: 2028-01-01\n"}, []string{"f1.yaml:5 profiles.p.observe_until: f0.yaml sets it already"},
		},
		"surface": {
			[]string{base + "surface: local\n", "version: 1\nproduct: test\nsurface: desktop\n"},
			[]string{"f1.yaml:3 surface: another file says surface local"},
		},
		"rule twice": {
			[]string{base, part + "allow: [{host: a.test}]\n", part + "allow: [{host: b.test}, {host: a.test}]\n"},
			[]string{"f2.yaml:5 profiles.p.allow[1]: the same rule stands in the profile already"},
		},
		"id twice": {
			[]string{base, part + "allow: [{host: a.test, id: x}]\n", "version: 1\nglobal:\n  deny: [{host: b.test, id: x}]\n"},
			[]string{"f1.yaml:5 profiles.p.allow[0].id: f2.yaml:3 has this id already"},
		},
		"global rule twice": {
			[]string{"version: 1\nglobal:\n  deny: [{host: b.test}]\n", "version: 1\nglobal:\n  deny: [{host: b.test, why: again}]\n"},
			[]string{"f1.yaml:3 global.deny[0]: the same rule stands in the global section already"},
		},
		"group twice": {[]string{githubGroup, githubGroup}, []string{"f1.yaml:2 group: group github stands in f0.yaml already"}},
		"port of another product": {
			[]string{base, "version: 1\nproduct: other\nprofiles:\n  q: {listen: {port: 18001}}\n"},
			[]string{"f0.yaml:5 profiles.p.listen.port: port 18001 is the port of other/q too"},
		},
		"observe forbidden": {
			[]string{base, "version: 1\nglobal: {observe_allowed: false}\n"},
			[]string{"f0.yaml:6 profiles.p.mode: mode observe is forbidden by global.observe_allowed"},
		},
		"observe forbidden once is enough": {
			[]string{base, "version: 1\nglobal: {observe_allowed: true}\n", "version: 1\nglobal: {observe_allowed: false}\n"},
			[]string{"f0.yaml:6 profiles.p.mode: mode observe is forbidden by global.observe_allowed"},
		},
		"unused group is checked": {
			[]string{base, "version: 1\ngroup: g\nhosts: [\"*com\"]\n"}, []string{"f1.yaml:3 hosts[0]: a wildcard covers whole labels"},
		},
		"every file": {
			[]string{"version: 3\nproduct: test\n", "", "version: 1\nglobal: {deny: [{host: \"x/\"}]}\n"},
			[]string{"f0.yaml:1 version: version 3 is not known", "f1.yaml:0 : the file is empty", "f2.yaml:2 global.deny[0].host: a host has no path"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := files(tt.texts...)
			assert.Equal(t, tt.want, problemsOf(t, in))
			slices.Reverse(in)
			assert.Equal(t, tt.want, problemsOf(t, in), "the order of the files has a meaning")
		})
	}
}

// A file of the administrator replaces a shipped group of the same name, in
// whatever order they come, and the load says so.
func TestShippedGroups(t *testing.T) {
	shipped := policy.File{Name: "shipped.yaml", Data: []byte(githubGroup), Shipped: true}
	own := policy.File{Name: "own.yaml", Data: []byte("version: 1\ngroup: github\nhosts: [own.test]\n")}
	product := policy.File{Name: "product.yaml", Data: []byte(oneProfile("use: [github]"))}
	for _, first := range []string{"a", "z"} {
		own.Name = first + ".yaml"
		s, err := policy.Compile([]policy.File{shipped, own, product})
		require.NoError(t, err)
		assert.Equal(t, []string{own.Name + ":2 group: replaces the shipped group github"}, brief(s.Notices()))
		assert.Equal(t, "allow rule", verdict(s.Decide(tunnel(t, "own.test:443"))))
		assert.Equal(t, "deny not_listed", verdict(s.Decide(tunnel(t, "github.com:443"))))
	}
	s, err := policy.Compile([]policy.File{shipped, product})
	require.NoError(t, err)
	assert.Empty(t, s.Notices())
	assert.Equal(t, "allow rule", verdict(s.Decide(tunnel(t, "github.com:443"))))
}

// Things that do not stop a load but should be known.
func TestNotices(t *testing.T) {
	s := compile(t, githubGroup, oneProfile(`network: open
mode: observe
use: [github, github]
allow:
  - {host: allowed.test.}
  - {host: "*.Example.COM"}
  - {host: münchen.test}
  - {host: "**.ＢÜcher.test."}
  - {host: plain.test}
deny:
  - {host: "**.Example.net", except: [OK.example.net]}`))
	assert.Equal(t, []string{
		"f1.yaml:6 profiles.p.network: the network is open: every public host can be reached except denied ones",
		"f1.yaml:7 profiles.p.mode: mode observe has no end: set observe_until",
		"f1.yaml:8 profiles.p.use[1]: group github is used already",
		"f1.yaml:10 profiles.p.allow[0].host: read as allowed.test",
		"f1.yaml:11 profiles.p.allow[1].host: read as *.example.com",
		"f1.yaml:12 profiles.p.allow[2].host: written as xn--mnchen-3ya.test",
		"f1.yaml:13 profiles.p.allow[3].host: written as **.xn--bcher-kva.test",
		"f1.yaml:16 profiles.p.deny[0].host: read as **.example.net",
		"f1.yaml:16 profiles.p.deny[0].except[0]: read as ok.example.net",
	}, brief(s.Notices()))
	for _, name := range []string{"allowed.test", "a.example.com", "xn--mnchen-3ya.test", "xn--bcher-kva.test"} {
		assert.Equal(t, "allow rule", verdict(s.Decide(tunnel(t, name+":443"))), name)
	}
	var none *policy.Snapshot
	assert.Empty(t, none.Notices())
}

// The digest is the identity of what decides: same files same digest, in any
// order; another name, content or kind another one.
func TestDigest(t *testing.T) {
	a := policy.File{Name: "a.yaml", Data: []byte(githubGroup)}
	b := policy.File{Name: "b.yaml", Data: []byte(oneProfile("use: [github]"))}
	digest := func(files ...policy.File) string {
		s, err := policy.Compile(files)
		require.NoError(t, err)
		require.Regexp(t, "^sha256:[0-9a-f]{64}$", s.Digest())
		return s.Digest()
	}
	want := digest(a, b)
	assert.Equal(t, want, digest(b, a))
	renamed, changed, shipped, moved := a, a, a, a
	renamed.Name = "c.yaml"
	changed.Data = append([]byte("#\n"), a.Data...)
	shipped.Shipped = true
	moved.Name, moved.Data = a.Name+"#", a.Data
	seen := map[string]string{want: "original"}
	for name, files := range map[string][]policy.File{
		"nothing": nil, "renamed": {renamed, b}, "changed": {changed, b}, "shipped": {shipped, b}, "one less": {a}, "moved": {moved, b},
	} {
		d := digest(files...)
		assert.NotContains(t, seen, d, "%s is %s", name, seen[d])
		seen[d] = name
	}
	var none *policy.Snapshot
	assert.Empty(t, none.Digest())
}

// Compile must not keep or change what it was given.
func TestCompileLeavesInputAlone(t *testing.T) {
	in := files(oneProfile("allow: [{host: b.test}]"), githubGroup)
	slices.Reverse(in)
	before := fmt.Sprintf("%v", in)
	s, err := policy.Compile(in)
	require.NoError(t, err)
	assert.Equal(t, before, fmt.Sprintf("%v", in))
	for _, f := range in {
		for i := range f.Data {
			f.Data[i] = 'x'
		}
	}
	assert.Equal(t, "allow rule", verdict(s.Decide(tunnel(t, "b.test:443"))))
}
