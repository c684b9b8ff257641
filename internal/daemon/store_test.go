package daemon

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluicegate/policy"

	"github.com/stretchr/testify/require"
)

// storeWorld is a store over a real folder that counts what it reports.
type storeWorld struct {
	*store
	t        *testing.T
	paths    Paths
	changes  []Trigger
	rejected []Rejected
}

func newStoreWorld(t *testing.T, root string) *storeWorld {
	t.Helper()
	w := &storeWorld{t: t, paths: Paths{Policy: filepath.Join(root, "policy.d"), State: filepath.Join(root, "state")}}
	w.store = &store{
		load: func() (Policy, error) { return LoadPolicy(w.paths, Settings{}) },
		kept: &archive{dir: filepath.Join(w.paths.State, "policy")},
		log:  slog.New(slog.DiscardHandler), now: time.Now,
		changed:      func(_, _ *loaded, tr Trigger) { w.changes = append(w.changes, tr) },
		rejectedLoad: func(_ *loaded, r Rejected) { w.rejected = append(w.rejected, r) },
	}
	return w
}

func (w *storeWorld) write(name, text string) {
	w.t.Helper()
	require.NoError(w.t, os.MkdirAll(w.paths.Policy, 0o700))
	require.NoError(w.t, os.WriteFile(filepath.Join(w.paths.Policy, name), []byte(text), 0o600))
}

// allows tells whether the policy in force lets a profile reach a host.
func (w *storeWorld) allows(host string) bool {
	w.t.Helper()
	d, err := policy.ParseHostPort(host, 443)
	require.NoError(w.t, err)
	got := w.snapshot().Decide(policy.Request{
		Profile: "claude-code/commands", Entitled: true, Destination: d, Proto: policy.ProtoConnect, Now: time.Now(),
	})
	return got.Allowed()
}

func product(hosts ...string) string {
	var b strings.Builder
	b.WriteString("version: 1\nproduct: claude-code\nprofiles:\n  commands:\n    allow:\n")
	for _, h := range hosts {
		b.WriteString("      - {host: " + h + "}\n")
	}
	return b.String()
}

func TestR_C02_BrokenFileKeepsTheLastGoodPolicy(t *testing.T) {
	w := newStoreWorld(t, t.TempDir())
	w.write("p.yaml", product("one.example.com"))
	w.start()
	require.True(t, w.allows("one.example.com"))
	good := w.snapshot().Digest()

	for name, broken := range map[string]string{
		"syntax":      "version: 1\nproduct: [",
		"unknown key": "version: 1\nproduct: claude-code\nprofilse: {}\n",
		"empty":       "",
	} {
		w.write("p.yaml", broken)
		err := w.reload(t.Context(), TriggerWatch)
		var problems policy.Problems
		require.ErrorAs(t, err, &problems, name)
		require.NotEmpty(t, problems[0].File)
		require.True(t, w.allows("one.example.com"), name)
		require.Equal(t, good, w.snapshot().Digest())
		require.NotNil(t, w.current().rejected, name)
	}
	require.Len(t, w.rejected, 3)

	// The poll finds the same broken file again and says nothing new.
	require.Error(t, w.reload(t.Context(), TriggerPoll))
	require.Len(t, w.rejected, 3)

	w.write("p.yaml", product("two.example.com"))
	require.NoError(t, w.reload(t.Context(), TriggerWatch))
	require.Nil(t, w.current().rejected)
	require.True(t, w.allows("two.example.com"))
	require.False(t, w.allows("one.example.com"))
	require.Equal(t, []Trigger{TriggerWatch}, w.changes)
}

func TestBrokenPolicyBackToTheOldContentClearsTheRejection(t *testing.T) {
	w := newStoreWorld(t, t.TempDir())
	w.write("p.yaml", product("one.example.com"))
	w.start()
	w.write("p.yaml", "version: 1\n")
	require.Error(t, w.reload(t.Context(), TriggerWatch))
	w.write("p.yaml", product("one.example.com"))
	require.ErrorIs(t, w.reload(t.Context(), TriggerWatch), errUnchanged)
	require.Nil(t, w.current().rejected)
	require.Empty(t, w.changes)
}

func TestIdenticalContentIsNoChange(t *testing.T) {
	w := newStoreWorld(t, t.TempDir())
	w.write("p.yaml", product("one.example.com"))
	w.start()
	before := w.current()
	w.write("p.yaml", product("one.example.com"))
	require.ErrorIs(t, w.reload(t.Context(), TriggerSignal), errUnchanged)
	require.Same(t, before, w.current())
	require.Empty(t, w.changes)
}

// TestR_Y15_EmptyPolicyDeniesAll takes a readable folder as it is.
func TestR_Y15_EmptyPolicyDeniesAll(t *testing.T) {
	w := newStoreWorld(t, t.TempDir())
	w.write("p.yaml", product("one.example.com"))
	w.start()
	require.True(t, w.allows("one.example.com"))
	require.NoError(t, os.Remove(filepath.Join(w.paths.Policy, "p.yaml")))
	require.NoError(t, w.reload(t.Context(), TriggerWatch))
	require.False(t, w.allows("one.example.com"))
	for name, text := range map[string]string{
		"no profile":    "version: 1\nproduct: claude-code\n",
		"empty list":    "version: 1\nproduct: claude-code\nprofiles: {commands: {allow: []}}\n",
		"only comments": product() + "      # one.example.com\n      []\n",
		"only a deny":   "version: 1\nproduct: claude-code\nprofiles: {commands: {deny: [{host: bad.example.com}]}}\n",
	} {
		w.write("p.yaml", text)
		_ = w.reload(t.Context(), TriggerWatch)
		require.False(t, w.allows("one.example.com"), name)
	}
}

func TestFolderGoneOrUnreadableKeepsTheLastGoodPolicy(t *testing.T) {
	w := newStoreWorld(t, t.TempDir())
	w.write("p.yaml", product("one.example.com"))
	named := Settings{PolicyDir: w.paths.Policy}
	w.load = func() (Policy, error) { return LoadPolicy(w.paths, named) }
	w.start()
	require.NoError(t, os.Rename(w.paths.Policy, w.paths.Policy+".away"))
	require.Error(t, w.reload(t.Context(), TriggerPoll))
	require.True(t, w.allows("one.example.com"))
	require.Len(t, w.rejected, 1)

	// A named pipe in the folder must not hang the load.
	require.NoError(t, os.Rename(w.paths.Policy+".away", w.paths.Policy))
	require.NoError(t, os.Mkdir(filepath.Join(w.paths.Policy, "dir.yaml"), 0o700))
	require.ErrorContains(t, w.reload(t.Context(), TriggerPoll), "not a regular file")
	require.True(t, w.allows("one.example.com"))
}

// TestFolderThatVanishesIsNotReplaced: the embedded policy must not slip in.
func TestFolderThatVanishesIsNotReplaced(t *testing.T) {
	w := newStoreWorld(t, t.TempDir())
	w.write("p.yaml", product("one.example.com"))
	w.start()
	require.NoError(t, os.Rename(w.paths.Policy, w.paths.Policy+".away"))
	require.ErrorIs(t, w.reload(t.Context(), TriggerWatch), errFolderGone)
	require.True(t, w.allows("one.example.com"))
	require.False(t, w.allows("github.com"), "the embedded policy allows it")
}

func TestLastGoodPolicySurvivesARestart(t *testing.T) {
	root := t.TempDir()
	w := newStoreWorld(t, root)
	w.write("p.yaml", product("one.example.com"))
	w.start()
	digest := w.snapshot().Digest()

	w.write("p.yaml", "version: 1\nproduct: [")
	again := newStoreWorld(t, root)
	again.start()
	require.True(t, again.allows("one.example.com"))
	require.Equal(t, digest, again.snapshot().Digest())
	require.True(t, again.current().stale)
	require.Len(t, again.rejected, 1)
	require.Equal(t, TriggerStart, again.rejected[0].Trigger)
}

func TestWithoutALastGoodPolicyEverythingIsDenied(t *testing.T) {
	w := newStoreWorld(t, t.TempDir())
	w.write("p.yaml", "version: 1\nproduct: [")
	w.start()
	require.Nil(t, w.snapshot())
	require.False(t, w.allows("one.example.com"))
	w.write("p.yaml", product("one.example.com"))
	require.NoError(t, w.reload(t.Context(), TriggerWatch))
	require.True(t, w.allows("one.example.com"))
}

// TestChangedArchiveIsNotTrusted edits what the state folder holds.
func TestChangedArchiveIsNotTrusted(t *testing.T) {
	cases := map[string]func(t *testing.T, dir, digest string){
		"content": func(t *testing.T, dir, digest string) {
			path := filepath.Join(dir, strings.TrimPrefix(digest, "sha256:")+".json")
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			// The same policy with another name of a file has another digest.
			data = []byte(strings.Replace(string(data), "p.yaml", "q.yaml", 1))
			require.NoError(t, os.WriteFile(path, data, 0o600))
		},
		"not JSON": func(t *testing.T, dir, digest string) {
			path := filepath.Join(dir, strings.TrimPrefix(digest, "sha256:")+".json")
			require.NoError(t, os.WriteFile(path, []byte("{"), 0o600))
		},
		"pointer elsewhere": func(t *testing.T, dir, _ string) {
			require.NoError(t, os.WriteFile(filepath.Join(dir, currentName), []byte("../../evil"), 0o600))
		},
		"pointer gone": func(t *testing.T, dir, _ string) {
			require.NoError(t, os.Remove(filepath.Join(dir, currentName)))
		},
	}
	for name, damage := range cases {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			w := newStoreWorld(t, root)
			w.write("p.yaml", product("one.example.com"))
			w.start()
			damage(t, w.kept.dir, w.snapshot().Digest())
			w.write("p.yaml", "version: 1\nproduct: [")
			again := newStoreWorld(t, root)
			again.start()
			require.Nil(t, again.snapshot())
			require.False(t, again.allows("one.example.com"))
		})
	}
}

func TestArchiveIsBounded(t *testing.T) {
	w := newStoreWorld(t, t.TempDir())
	w.write("p.yaml", product("start.example.com"))
	w.start()
	for i := range 3 * keptPolicies {
		w.write("p.yaml", product("h"+string(rune('a'+i%26))+strings.Repeat("x", i)+".example.com"))
		require.NoError(t, w.reload(t.Context(), TriggerWatch))
	}
	entries, err := os.ReadDir(w.kept.dir)
	require.NoError(t, err)
	require.LessOrEqual(t, len(entries), keptPolicies+1) // and the pointer
	last, err := w.kept.last()
	require.NoError(t, err)
	require.Equal(t, w.snapshot().Digest(), last.Snapshot.Digest())
}

// TestReloadsDoNotMix has readers see only whole policies while loads go on.
func TestReloadsDoNotMix(t *testing.T) {
	w := newStoreWorld(t, t.TempDir())
	a, b := product("one.example.com"), product("two.example.com")
	w.write("p.yaml", a)
	w.start()
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		defer close(failed)
		for ctx.Err() == nil {
			s := w.snapshot()
			one, two := askStore(s, "one.example.com"), askStore(s, "two.example.com")
			if one == two {
				failed <- errors.New("a reader saw a mix of two policies")
				return
			}
		}
	}()
	for i := range 60 {
		text := a
		if i%2 == 0 {
			text = b
		}
		w.write("p.yaml", text)
		require.NoError(t, w.reload(t.Context(), TriggerWatch))
	}
	cancel()
	require.NoError(t, <-failed)
}

func askStore(s *policy.Snapshot, host string) bool {
	d, _ := policy.ParseHostPort(host, 443)
	got := s.Decide(policy.Request{Profile: "claude-code/commands", Entitled: true, Destination: d, Proto: policy.ProtoConnect})
	return got.Allowed()
}
