package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sluicegate/policy"
)

// keptPolicies is how many policies the state folder holds.
const keptPolicies = 20

// archive keeps policies in the state folder, each under its digest, so that the
// last good one survives a restart and a record's digest can be looked up.
type archive struct{ dir string }

// keptPolicy is the content of one file of the archive.
type keptPolicy struct {
	Digest string     `json:"digest"`
	Source string     `json:"source"`
	Saved  time.Time  `json:"saved"`
	Files  []keptFile `json:"files"`
}

type keptFile struct {
	Name    string `json:"name"`
	Shipped bool   `json:"shipped,omitempty"`
	Data    []byte `json:"data"`
}

const currentName = "current"

func (a *archive) path(digest string) string {
	return filepath.Join(a.dir, strings.TrimPrefix(digest, "sha256:")+".json")
}

// save writes p and makes it the last good one. Each file is complete or not
// there: it is written under another name, synced and renamed.
func (a *archive) save(p Policy) error {
	if err := os.MkdirAll(a.dir, 0o700); err != nil {
		return err
	}
	k := keptPolicy{Digest: p.Snapshot.Digest(), Source: p.Source, Saved: time.Now().UTC()}
	for _, f := range p.Files {
		k.Files = append(k.Files, keptFile{f.Name, f.Shipped, f.Data})
	}
	data, err := json.Marshal(k)
	if err != nil {
		return err
	}
	if err := writeWhole(a.path(k.Digest), data); err != nil {
		return err
	}
	if err := writeWhole(filepath.Join(a.dir, currentName), []byte(k.Digest+"\n")); err != nil {
		return err
	}
	return a.prune(k.Digest)
}

// last returns the last good policy if its content still has its digest.
func (a *archive) last() (Policy, error) {
	name, err := readFile(filepath.Join(a.dir, currentName))
	if err != nil {
		return Policy{}, err
	}
	digest := strings.TrimSpace(string(name))
	if !isDigest(digest) {
		return Policy{}, errors.New("the name of the last good policy is damaged")
	}
	data, err := os.ReadFile(a.path(digest))
	if err != nil {
		return Policy{}, err
	}
	var k keptPolicy
	if err := json.Unmarshal(data, &k); err != nil {
		return Policy{}, fmt.Errorf("the last good policy is damaged: %w", err)
	}
	p := Policy{Source: k.Source}
	for _, f := range k.Files {
		p.Files = append(p.Files, policy.File{Name: f.Name, Data: f.Data, Shipped: f.Shipped})
	}
	if p.Snapshot, err = policy.Compile(p.Files); err != nil {
		return Policy{}, fmt.Errorf("the last good policy no longer compiles: %w", err)
	}
	if p.Snapshot.Digest() != digest {
		return Policy{}, errors.New("the last good policy was changed: its digest differs")
	}
	return p, nil
}

func isDigest(s string) bool {
	hex, ok := strings.CutPrefix(s, "sha256:")
	return ok && len(hex) == 64 && strings.Trim(hex, "0123456789abcdef") == ""
}

// prune removes the oldest policies beyond the bound, never the current one.
func (a *archive) prune(current string) error {
	entries, err := os.ReadDir(a.dir)
	if err != nil {
		return err
	}
	type aged struct {
		path string
		at   time.Time
	}
	var old []aged
	for _, e := range entries {
		path := filepath.Join(a.dir, e.Name())
		if !strings.HasSuffix(e.Name(), ".json") || path == a.path(current) {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		old = append(old, aged{path, info.ModTime()})
	}
	slices.SortFunc(old, func(x, y aged) int { return x.at.Compare(y.at) })
	for len(old) >= keptPolicies {
		if err := os.Remove(old[0].path); err != nil {
			return err
		}
		old = old[1:]
	}
	return nil
}

// writeWhole replaces path by data, all or nothing.
func writeWhole(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".tmp-*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}
