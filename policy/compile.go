package policy

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"
)

// File is one policy file.
type File struct {
	// Name is what problems and records call it: a path, or the name of an
	// embedded file.
	Name string
	Data []byte
	// Shipped marks the host groups that come with the program; a group of the
	// same name in another file replaces a shipped one.
	Shipped bool
}

// version is the only value of the version key so far.
const version = 1

// Compile checks all files together and builds a Snapshot. Either every file is
// good or the error is [Problems] with all faults found. No files, or files
// without a product, give a Snapshot that denies everything. The order of the
// files has no meaning.
func Compile(files []File) (*Snapshot, error) {
	files = slices.Clone(files)
	slices.SortFunc(files, func(a, b File) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), bytes.Compare(a.Data, b.Data))
	})
	c := &compiler{
		snap:     &Snapshot{digest: digest(files), profiles: map[string]*profile{}},
		groups:   map[string]*groupSource{},
		products: map[string]*productSource{},
		ids:      map[string]string{},
		ports:    map[uint16]string{},
		sockets:  map[string]string{},
	}
	for _, f := range files {
		c.read(f)
	}
	for _, name := range slices.Sorted(maps.Keys(c.groups)) {
		c.compileGroup(c.groups[name])
	}
	c.compileGlobal()
	for _, name := range slices.Sorted(maps.Keys(c.products)) {
		c.compileProduct(c.products[name])
	}
	var problems Problems
	for _, s := range c.sources {
		problems = append(problems, s.all()...)
		c.snap.notices = append(c.snap.notices, s.notes.all()...)
	}
	if err := problems.errOrNil(); err != nil {
		return nil, err
	}
	return c.snap, nil
}

// digest covers names, kinds and contents of sorted files, length-prefixed so
// that no two sets of files give the same bytes.
func digest(sorted []File) string {
	h := sha256.New()
	_, _ = io.WriteString(h, "sluicegate.policy/1\x00")
	put := func(b []byte) {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(b)))
		_, _ = h.Write(n[:])
		_, _ = h.Write(b)
	}
	for _, f := range sorted {
		kind := "policy"
		if f.Shipped {
			kind = "shipped"
		}
		put([]byte(kind))
		put([]byte(f.Name))
		put(f.Data)
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

// source is a decoded file and what was found wrong with it or worth knowing.
type source struct {
	*faults
	notes *faults
	file  File
	body  policyFile
}

type groupSource struct {
	*source
	rules []Rule
}

// productSource is one product, gathered from all files that name it.
type productSource struct {
	name    string
	surface located[string]
	parts   []*source
}

type compiler struct {
	snap     *Snapshot
	sources  []*source
	groups   map[string]*groupSource
	products map[string]*productSource
	globals  []*source
	ids      map[string]string // rule id → place
	ports    map[uint16]string // listener → profile
	sockets  map[string]string // name of a Unix socket → profile
	rules    int               // entries of all profiles
}

// fail adds a problem, unless the value has one already.
func (s *source) fail(pos Position, path, hint, format string, args ...any) {
	if !s.has(path) {
		s.add(pos, path, hint, format, args...)
	}
}

// absent adds a problem about a key that is not there, unless an unknown key
// beside it was meant to be it.
func (s *source) absent(pos Position, parent, key, hint, format string, args ...any) {
	if !s.troubled(parent, key) {
		s.add(pos, join(parent, key), hint, format, args...)
	}
}

// troubled tells whether there is a problem with the key of the mapping at
// parent, be it that it was misspelt.
func (s *source) troubled(parent, key string) bool {
	return s.has(join(parent, key)) || slices.Contains(s.unknown[parent], key)
}

// notice adds something worth knowing that does not stop the load.
func (s *source) notice(pos Position, path, format string, args ...any) {
	s.notes.add(pos, path, "", format, args...)
}

// read decodes one file and files it under what it holds.
func (c *compiler) read(f File) {
	s := &source{faults: newFaults(f.Name), notes: newFaults(f.Name), file: f}
	c.sources = append(c.sources, s)
	if !decodeYAML(s.faults, f.Data, reflect.ValueOf(&s.body)) {
		return
	}
	s.notes.text = s.text
	if s.stop() || s.paths[""] {
		return
	}
	b := &s.body
	switch {
	case b.Version.Pos.Line == 0:
		s.absent(Position{1, 1}, "", "version", "write version: 1", "the version is missing")
	case b.Version.V != version:
		s.fail(b.Version.Pos, "version", "write version: 1", "version %d is not known", b.Version.V)
	}
	isProduct := b.Product.Pos.Line > 0 || b.Profiles != nil || b.Surface.Pos.Line > 0
	isGroup := b.Group.Pos.Line > 0 || b.Hosts != nil
	isGlobal := b.Global != nil
	for key, v := range map[string]located[string]{"about": b.About, "source": b.Source, "reviewed": b.Reviewed} {
		if v.Pos.Line > 0 && !isGroup {
			s.fail(v.Pos, key, "remove it", "this key belongs to a host group")
		}
	}
	switch {
	case isProduct && !isGroup && !isGlobal:
		c.readProduct(s)
	case isGroup && !isProduct && !isGlobal:
		c.readGroup(s)
	case isGlobal && !isProduct && !isGroup:
		c.globals = append(c.globals, s)
	case isProduct || isGroup || isGlobal:
		s.fail(b.Pos, "", "give each a file of its own", "product, group and global can not share a file")
	case len(s.list) == 0:
		s.fail(b.Pos, "", "write product:, group: or global:", "the file says nothing")
	}
}

func (c *compiler) readProduct(s *source) {
	name := s.body.Product
	if !isWord(name.V) {
		s.noName(name, "product", "claude-code")
		return
	}
	p := c.products[name.V]
	if p == nil {
		p = &productSource{name: name.V}
		c.products[name.V] = p
	}
	switch sf := s.body.Surface; {
	case sf.Pos.Line == 0:
	case sf.V == "hosted":
		s.fail(sf.Pos, "surface", "a hosted product can not be enforced on this machine; remove the file", "surface hosted is not supported by this version")
	case sf.V != "local" && sf.V != "desktop":
		s.fail(sf.Pos, "surface", "local or desktop", "the surface is not known")
	case p.surface.Pos.Line > 0 && p.surface.V != sf.V:
		s.fail(sf.Pos, "surface", "say it once", "another file says surface %s", p.surface.V)
	default:
		p.surface = sf
	}
	p.parts = append(p.parts, s)
}

func (s *source) noName(v located[string], key, such string) {
	hint := "small letters, digits and hyphens, such as " + such
	if v.Pos.Line == 0 {
		s.absent(s.body.Pos, "", key, hint, "the %s needs a name", key)
		return
	}
	s.fail(v.Pos, key, hint, "this can not be the name of a %s", key)
}

func (c *compiler) readGroup(s *source) {
	name := s.body.Group
	if !isWord(name.V) {
		s.noName(name, "group", "github")
		return
	}
	if d := s.body.Reviewed; d.Pos.Line > 0 {
		if _, err := time.Parse(time.DateOnly, d.V); err != nil {
			s.fail(d.Pos, "reviewed", "write it as 2026-01-31", "this is not a date")
		}
	}
	old, ok := c.groups[name.V]
	switch {
	case !ok:
	case old.file.Shipped && !s.file.Shipped:
		s.notice(name.Pos, "group", "replaces the shipped group %s", name.V)
	case s.file.Shipped && !old.file.Shipped:
		old.notice(old.body.Group.Pos, "group", "replaces the shipped group %s", name.V)
		return
	default:
		s.fail(name.Pos, "group", "put all its hosts into one file", "group %s stands in %s already", name.V, old.file.Name)
		return
	}
	c.groups[name.V] = &groupSource{source: s}
}

// compileGroup builds the rules of a group once, however many profiles use it.
// A group that none uses is checked like the others.
func (c *compiler) compileGroup(g *groupSource) {
	seen := map[string]bool{}
	for i, h := range g.body.Hosts {
		path := index("hosts", i)
		p, ok := hostPattern(g.source, h, path)
		if !ok || !narrow(g.source, p, h, path, "list the hosts; a group has no wildcard as wide as this") {
			continue
		}
		host := p.String()
		if seen[host] {
			g.fail(h.Pos, path, "remove one", "%s stands in the group twice", host)
			continue
		}
		seen[host] = true
		g.rules = append(g.rules, Rule{
			ID: g.body.Group.V + ":" + host, File: g.file.Name, Line: h.Pos.Line, Why: g.body.About.V, host: p,
		})
	}
	g.pack()
}

// pack lets the texts of all the group's rules share one allocation. A decision
// among very many names spends its time waiting for memory; names that lie side
// by side, and nothing that is left of the file between them, halve it.
func (g *groupSource) pack() {
	var all strings.Builder
	for i := range g.rules {
		all.WriteString(g.rules[i].ID)
	}
	rest := all.String()
	for i := range g.rules {
		r := &g.rules[i]
		n := len(r.ID)
		r.ID, rest = rest[:n], rest[n:]
		// The id ends in the name.
		r.host.name = r.ID[n-len(r.host.name):]
	}
}

func (c *compiler) compileGlobal() {
	seen := map[string]bool{}
	for _, s := range c.globals {
		for i, f := range s.body.Global.Deny {
			path := index("global.deny", i)
			r, ok := c.deny(s, f, path, "global")
			if !ok {
				continue
			}
			if key := r.target(); seen[key] {
				s.fail(f.Pos, path, "remove one", "the same rule stands in the global section already")
			} else {
				seen[key] = true
				c.snap.global.add(r)
			}
		}
	}
}

// observeAllowed tells whether no global file forbids mode observe.
func (c *compiler) observeAllowed() bool {
	for _, s := range c.globals {
		if o := s.body.Global.ObserveAllowed; o != nil && !o.V {
			return false
		}
	}
	return true
}

// isWord tells whether s can name a product, profile or group.
func isWord(s string) bool {
	if s == "" || len(s) > 40 || s[0] == '-' {
		return false
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}
