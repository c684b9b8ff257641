package policy

import (
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"
)

// defaultPorts are the listener ports of the shipped products.
var defaultPorts = map[string]uint16{
	"claude-code/process": 18081, "claude-code/commands": 18082,
	"claude-cowork/process": 18083, "claude-cowork/commands": 18084,
	"claude-tag/process": 18085, "claude-tag/commands": 18086,
	"chatgpt-codex/process": 18087, "chatgpt-codex/commands": 18088,
	"chatgpt-work/process": 18089, "chatgpt-work/commands": 18090,
}

// maxRules bounds the rules of all profiles together, those of host groups
// counted for each profile that uses them.
const maxRules = 1 << 20

// setting is a key that one profile may have once in all files.
type setting struct {
	from *source
	pos  Position
	bad  bool
}

// profileBuild gathers one profile from all files that speak of it.
type profileBuild struct {
	*profile
	path                         string // inside each file
	first                        setting
	listen, mode, network, until setting
	dnsPos                       Position
	used                         map[string]bool
	ruleKeys                     map[string]bool
}

func (c *compiler) compileProduct(p *productSource) {
	builds := map[string]*profileBuild{}
	for _, s := range p.parts {
		for _, name := range slices.Sorted(maps.Keys(s.body.Profiles)) {
			f := s.body.Profiles[name]
			path := join("profiles", name)
			if !isWord(name) {
				s.fail(f.Pos, path, "small letters, digits and hyphens, such as commands", "this can not be the name of a profile")
				continue
			}
			b := builds[name]
			if b == nil {
				b = newProfileBuild(p, name, path)
				b.first = setting{from: s, pos: f.Pos}
				builds[name] = b
			}
			c.mergeProfile(b, s, f)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(builds)) {
		c.finishProfile(builds[name])
	}
}

func newProfileBuild(p *productSource, name, path string) *profileBuild {
	surface := p.surface.V
	if surface == "" {
		surface = "local"
	}
	full := p.name + "/" + name
	return &profileBuild{
		profile: &profile{info: Profile{
			Name: full, Product: p.name, Surface: surface,
			Port: defaultPorts[full], Mode: ModeEnforce, Network: NetworkAllowlist,
		}},
		path: path, used: map[string]bool{}, ruleKeys: map[string]bool{},
	}
}

// once takes a key that all files together may set once.
func (b *profileBuild) once(was *setting, s *source, pos Position, key string) bool {
	if pos.Line == 0 {
		return false
	}
	if was.from != nil {
		s.fail(pos, join(b.path, key), "say it once", "%s sets it already", was.from.file.Name)
		return false
	}
	*was = setting{from: s, pos: pos}
	return true
}

func (c *compiler) mergeProfile(b *profileBuild, s *source, f profileFile) {
	c.mergeListen(b, s, f.Listen)
	if b.once(&b.mode, s, f.Mode.Pos, "mode") {
		c.setMode(b, s, f.Mode)
	}
	if b.once(&b.until, s, f.ObserveUntil.Pos, "observe_until") {
		t, err := parseTime(f.ObserveUntil.V)
		if err != nil {
			b.until.bad = true
			s.fail(b.until.pos, join(b.path, "observe_until"), timeHint, "this is not a time")
		}
		b.info.ObserveUntil = t
	}
	if b.once(&b.network, s, f.Network.Pos, "network") {
		setNetwork(b, s, f.Network)
	}
	c.mergeRules(b, s, f)
}

func (c *compiler) setMode(b *profileBuild, s *source, v located[string]) {
	path := join(b.path, "mode")
	switch m := Mode(v.V); m {
	case ModeEnforce:
	case ModeObserve:
		b.info.Mode = m
		if !c.observeAllowed() {
			b.mode.bad = true
			s.fail(v.Pos, path, "write mode: enforce", "mode observe is forbidden by global.observe_allowed")
		}
	default:
		b.mode.bad = true
		s.fail(v.Pos, path, "enforce or observe", "the mode is not known")
	}
}

func setNetwork(b *profileBuild, s *source, v located[string]) {
	path := join(b.path, "network")
	switch n := Network(v.V); n {
	case NetworkAllowlist, NetworkBlocked:
		b.info.Network = n
	case NetworkOpen:
		b.info.Network = n
		s.notice(v.Pos, path, "the network is open: every public host can be reached except denied ones")
	default:
		s.fail(v.Pos, path, "blocked, allowlist or open", "the network is not known")
	}
}

func (c *compiler) mergeListen(b *profileBuild, s *source, f *listenFile) {
	if f == nil || !b.once(&b.listen, s, f.Pos, "listen") {
		return
	}
	path := join(b.path, "listen")
	switch port := f.Port; {
	case port.Pos.Line == 0:
		s.absent(f.Pos, path, "port", "write listen: {port: 18082}", "the port is missing")
	case port.V < 0 || port.V > 65535:
		s.fail(port.Pos, join(path, "port"), "1 to 65535, or 0 for any free port", "the port is out of range")
	default:
		b.info.Port = uint16(port.V)
		b.listen.pos = port.Pos
	}
	c.mergeUnix(b, s, f, path)
	if f.DNS == nil {
		return
	}
	if f.DNS.V < 0 || f.DNS.V > 65535 {
		s.fail(f.DNS.Pos, join(path, "dns"), "1 to 65535, or 0 for any free port", "the port is out of range")
		return
	}
	b.info.DNS, b.info.DNSPort = true, uint16(f.DNS.V)
	b.dnsPos = f.DNS.Pos
}

// unixModes are the permissions that a Unix socket may have.
var unixModes = map[string]fs.FileMode{"0600": 0o600, "0660": 0o660, "0666": 0o666}

// mergeUnix reads the Unix socket of a profile.
func (c *compiler) mergeUnix(b *profileBuild, s *source, f *listenFile, path string) {
	if v := f.UnixMode; v.Pos.Line != 0 {
		mode, ok := unixModes[v.V]
		switch {
		case !ok:
			s.fail(v.Pos, join(path, "unix_mode"), "\"0600\", \"0660\" or \"0666\"", "these are no permissions of a socket")
		case f.Unix.Pos.Line == 0:
			s.fail(v.Pos, join(path, "unix_mode"), "remove it, or add unix", "there is no Unix socket")
		}
		b.info.UnixMode = mode
	}
	v := f.Unix
	if v.Pos.Line == 0 {
		return
	}
	if !isSocketName(v.V) {
		s.fail(v.Pos, join(path, "unix"), "a file name such as claude-code-commands.sock; it is put beside the control socket", "this can not be the name of a socket")
		return
	}
	if other, taken := c.sockets[v.V]; taken {
		s.fail(v.Pos, join(path, "unix"), "give each listener its own", "%s is the socket of %s too", v.V, other)
		return
	}
	c.sockets[v.V] = b.info.Name
	b.info.Unix = v.V
	if b.info.UnixMode == 0 {
		b.info.UnixMode = 0o600
	}
}

// isSocketName keeps names short, since the path of a socket has room for about
// a hundred bytes, and out of other folders.
func isSocketName(s string) bool {
	word, ok := strings.CutSuffix(s, ".sock")
	return ok && isWord(word) && word != "control"
}

func (c *compiler) mergeRules(b *profileBuild, s *source, f profileFile) {
	for i, u := range f.Use {
		if s.stop() {
			return
		}
		c.useGroup(b, s, u, index(join(b.path, "use"), i))
	}
	for i, a := range f.Allow {
		if s.stop() {
			return
		}
		at := index(join(b.path, "allow"), i)
		if r, ok := c.allow(s, a, at, b.info.Name); ok && b.unique(s, a.Pos, at, "allow", r) && c.room(1, s, a.Pos, at) {
			b.allow.add(r)
		}
	}
	for i, d := range f.Deny {
		if s.stop() {
			return
		}
		at := index(join(b.path, "deny"), i)
		if r, ok := c.deny(s, d, at, b.info.Name); ok && b.unique(s, d.Pos, at, "deny", r) && c.room(1, s, d.Pos, at) {
			b.deny.add(r)
		}
	}
}

func (c *compiler) useGroup(b *profileBuild, s *source, u located[string], path string) {
	g, ok := c.groups[u.V]
	switch {
	case !ok:
		hint := "put it into a file with group: " + printable(u.V)
		if near := nearest(u.V, slices.Sorted(maps.Keys(c.groups))); near != "" {
			hint = "did you mean " + near + "?"
		}
		s.fail(u.Pos, path, hint, "there is no group of this name")
	case b.used[u.V]:
		s.notice(u.Pos, path, "group %s is used already", u.V)
	case c.room(len(g.rules), s, u.Pos, path):
		b.used[u.V] = true
		for i := range g.rules {
			b.allow.add(&g.rules[i])
		}
	}
}

// room counts rules and refuses more than fit.
func (c *compiler) room(n int, s *source, pos Position, path string) bool {
	if c.rules+n > maxRules {
		s.fail(pos, path, "use large host groups in fewer profiles", "the policy has more than %d rules", maxRules)
		return false
	}
	c.rules += n
	return true
}

// unique refuses a rule that stands in the profile already, word for word.
func (b *profileBuild) unique(s *source, pos Position, path, action string, r *Rule) bool {
	key := action + " " + r.target()
	if b.ruleKeys[key] {
		s.fail(pos, path, "remove one", "the same rule stands in the profile already")
		return false
	}
	b.ruleKeys[key] = true
	return true
}

func (c *compiler) finishProfile(b *profileBuild) {
	if s := b.until.from; s != nil && b.info.Mode != ModeObserve && !b.mode.bad {
		s.fail(b.until.pos, join(b.path, "observe_until"), "remove it, or write mode: observe", "the profile is not in mode observe")
	}
	if b.info.Mode == ModeObserve && b.until.from == nil {
		b.mode.from.notice(b.mode.pos, join(b.path, "mode"), "mode observe has no end: set observe_until")
	}
	c.takePort(b)
	c.takeDNSPort(b)
	b.info.Allow, b.info.Deny = b.allow.count, b.deny.count
	c.snap.profiles[b.info.Name] = b.profile
}

// takePort makes sure that the profile has a listener and shares its port with
// no other.
func (c *compiler) takePort(b *profileBuild) {
	at := b.first
	path := b.path
	if b.listen.from != nil {
		at = b.listen
		path = join(join(b.path, "listen"), "port")
	}
	port := b.info.Port
	if port == 0 {
		if b.listen.from == nil {
			at.from.absent(at.pos, b.path, "listen", "write listen: {port: 18092}", "the profile has no listener and this product has no default port")
		}
		return
	}
	if other, taken := c.ports[port]; taken {
		at.from.fail(at.pos, path, "the port is the profile's identity: give each its own", "port %d is the port of %s too", port, other)
		return
	}
	c.ports[port] = b.info.Name
}

// takeDNSPort does the same for the DNS listener, which takes TCP too.
func (c *compiler) takeDNSPort(b *profileBuild) {
	port := b.info.DNSPort
	if port == 0 {
		return
	}
	if other, taken := c.ports[port]; taken {
		b.listen.from.fail(b.dnsPos, join(join(b.path, "listen"), "dns"), "give each listener its own", "port %d is a port of %s too", port, other)
		return
	}
	c.ports[port] = b.info.Name
}

const timeHint = "write it as 2026-01-31 or 2026-01-31T18:00:00Z"

// parseTime reads a date (midnight UTC at its start) or an RFC 3339 time.
func parseTime(s string) (time.Time, error) {
	if t, err := time.Parse(time.DateOnly, s); err == nil {
		return t, nil
	}
	return time.Parse(time.RFC3339, s)
}
