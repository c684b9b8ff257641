package pair

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
)

// Question is what [Check] needs to know.
type Question struct {
	Places Places
	Files  Files
	// Device are the managed sources besides the file, strongest first.
	Device []Document
	// Environ is the environment of the process, as os.Environ has it.
	Environ []string
	Ports   Ports
}

// Check reads every source of Claude Code's settings and says what weakens the
// boundary.
func Check(q Question) *Report {
	c := &checker{Question: q, report: &Report{Ports: q.Ports, Sources: []*Source{}, Findings: []Finding{}}}
	c.read()
	c.checkSandbox()
	c.checkProxies()
	c.checkUncovered()
	slices.SortStableFunc(c.report.Findings, func(a, b Finding) int {
		return slices.Index(levels, a.Level) - slices.Index(levels, b.Level)
	})
	c.report.Holds = c.report.Count(Weakens) == 0
	return c.report
}

// checker holds what was read.
type checker struct {
	Question
	report *Report

	// managed is the managed source that counts, nil if there is none.
	managed *value
	// managedFrom is where a key that managed does not have would have to be.
	managedFrom place
	// unpaired tells that there is no managed source at all. One finding says so,
	// and what is missing in it is not listed.
	unpaired bool
	// managedEnv is the env of all managed sources, merged by variable.
	managedEnv *value
	// anyManaged are all managed sources, strongest first.
	anyManaged []*value
	// scopes are managed, local, project and user, strongest first; nil if absent.
	scopes []*value
	// environ is the source of the process's variables.
	environ *Source
}

func (c *checker) source(name, path string) *Source {
	s := &Source{Name: name, Place: path, State: StateAbsent}
	c.report.Sources = append(c.report.Sources, s)
	return s
}

func (c *checker) add(f Finding) { c.report.Findings = append(c.report.Findings, f) }

// found adds a finding about a value's place.
func (c *checker) found(level Level, code string, at place, key, found, why, mend string) {
	f := Finding{Level: level, Code: code, File: at.file, Line: at.line, Column: at.column, Key: key, Found: found, Why: why, Mend: mend}
	if at.source != nil {
		f.Source = at.source.Name
	}
	c.add(f)
}

// notChecked adds a source that can't be read from here.
func (c *checker) notChecked(name, path, found, why, mend string) {
	s := c.source(name, path)
	s.State = StateNotChecked
	c.found(NotChecked, "source_not_checked", place{source: s, file: path}, "", found, why, mend)
}

func (c *checker) read() {
	c.notChecked("server-managed settings", "", "can not be read from here",
		"They rank above every other source, and the file below does not count where they have a policy key.",
		"Look at them in the administration console of the product.")
	var managed []*managedSource
	for _, d := range c.Device {
		if !d.Weak {
			managed = append(managed, c.document(d))
		}
	}
	managed = append(managed, c.managedFile())
	for _, d := range c.Device {
		if d.Weak {
			managed = append(managed, c.document(d))
		}
	}
	c.choose(managed)
	c.notChecked("command line", "", "can not be read from here",
		"--settings of a session ranks above the settings of project and user; the managed ones stay above it.",
		"Nothing, as long as the managed settings name every key.")
	c.scopes = append(c.scopes, c.managed)
	for _, s := range []struct{ name, path string }{
		{"local settings of the project", c.Places.Local},
		{"settings of the project", c.Places.Project},
		{"settings of the user", c.Places.User},
	} {
		source := c.source(s.name, s.path)
		c.scopes = append(c.scopes, c.settingsFile(source, s.path))
	}
	c.environ = c.source("environment of this shell", "")
	c.environ.State = StateRead
}

// managedSource is one of the managed sources, of which one counts.
type managedSource struct {
	source *Source
	value  *value // nil if it is absent or can't be used
	weak   bool
}

// choose takes the first managed source with a policy key, and env from all.
func (c *checker) choose(managed []*managedSource) {
	var chosen *managedSource
	for _, m := range managed {
		if m.value == nil {
			continue
		}
		c.anyManaged = append(c.anyManaged, m.value)
		if !hasPolicyKey(m.value, "") {
			continue
		}
		if chosen != nil {
			m.source.State = StateOverridden
			c.found(Note, "source_overridden", place{source: m.source, file: m.source.Place}, "",
				"does not count, but for its env", "Only the first managed source with a policy key counts, and "+chosen.source.Name+" ranks higher.",
				"Put the keys into "+chosen.source.Name+": \"sluicegate pair claude-code --print\" shows them.")
			continue
		}
		chosen = m
	}
	for _, v := range slices.Backward(c.anyManaged) {
		if env := v.get("env"); env != nil && env.kind == kindObject {
			c.managedEnv = merge(c.managedEnv, env)
		}
	}
	if chosen == nil {
		c.managedFrom = place{source: c.fileSource(), file: c.Places.Own}
		c.unpaired = len(c.anyManaged) == 0
		if c.unpaired {
			found := "is missing, and no other managed settings are there"
			if slices.ContainsFunc(managed, func(m *managedSource) bool { return m.source != nil && m.source.State == StateUnreadable }) {
				found = "gives nothing that can be used, nor does another managed source"
			}
			c.found(Weakens, "not_paired", c.managedFrom, "", found,
				"Nothing that a user or an agent could not change makes Claude Code use the gate.", mendWrite)
		}
		return
	}
	c.managed = chosen.value
	c.managedFrom = place{source: chosen.source, file: chosen.source.Place}
	if chosen.source.Name == managedFileName {
		c.managedFrom.file = c.Places.Own // where a missing key is to be put
	}
	if chosen.weak {
		c.found(Weakens, "source_writable", c.managedFrom, "", "has the managed settings that count",
			"The user, and a command that runs as the user, can change them.", mendWrite)
	}
}

const mendWrite = "Run \"sluicegate pair claude-code --write\" as root or administrator."

// mendMissing is what to do about a key that the managed settings do not have.
// What we write helps only where our file is the source that counts.
func (c *checker) mendMissing(set string) string {
	if s := c.managedFrom.source; s != nil && s.Name != managedFileName {
		return set + " in the " + s.Name + ": \"sluicegate pair claude-code --print\" shows all keys."
	}
	return set + ": \"sluicegate pair claude-code --write\", as root or administrator, does."
}

func (c *checker) fileSource() *Source {
	for _, s := range c.report.Sources {
		if s.Name == managedFileName {
			return s
		}
	}
	return nil
}

// document reads a managed source that is not a file of settings.
func (c *checker) document(d Document) *managedSource {
	if d.Unchecked != "" {
		c.notChecked(d.Name, d.Place, d.Unchecked, "It may hold managed settings.", "Look at it on its own system.")
		return &managedSource{}
	}
	m := &managedSource{source: c.source(d.Name, d.Place), weak: d.Weak}
	if d.Data == nil && d.Err == nil {
		return m
	}
	m.value = c.parsed(m.source, d.Place, d.Data, d.Err, Weakens)
	return m
}

const managedFileName = "managed settings file"

// managedFile reads managed-settings.json and the drop-in files beside it.
func (c *checker) managedFile() *managedSource {
	m := &managedSource{source: c.source(managedFileName, c.Places.Managed)}
	lay := func(path string) {
		data, mode, err := c.Files.Read(path, maxFile)
		if errors.Is(err, fs.ErrNotExist) {
			return
		}
		if err == nil {
			c.checkMode(m.source, path, mode)
		}
		state := m.source.State
		m.value = merge(m.value, c.parsed(m.source, path, data, err, Weakens))
		if state == StateUnreadable {
			m.source.State = state
		}
	}
	lay(c.Places.Managed)
	names, mode, err := c.Files.Names(c.Places.DropIns)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return m
	case err != nil:
		c.unreadable(m.source, c.Places.DropIns, fault{text: cause(err)}, Weakens)
		return m
	}
	c.checkMode(m.source, c.Places.DropIns, mode)
	slices.Sort(names)
	j := joiner{sep: "/"}
	if c.Places.OS == Windows {
		j.sep = `\`
	}
	for _, name := range names {
		if strings.HasSuffix(name, ".json") {
			lay(j.join(c.Places.DropIns, name))
		}
	}
	return m
}

// checkMode finds managed settings that an ordinary user can change.
func (c *checker) checkMode(source *Source, path string, mode fs.FileMode) {
	if c.Places.OS == Windows || mode.Perm()&0o022 == 0 {
		return
	}
	c.found(Weakens, "source_writable", place{source: source, file: path}, "", "can be changed by others than its owner (mode "+mode.Perm().String()+")",
		"What an agent can change is no boundary for it.", "Run chmod go-w on it.")
}

// settingsFile reads a file of one scope; nil if it is absent or can't be used.
func (c *checker) settingsFile(source *Source, path string) *value {
	if path == "" {
		return nil
	}
	data, _, err := c.Files.Read(path, maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return c.parsed(source, path, data, err, Weakens)
}

// parsed parses what was read and finds what is wrong with it as a whole. A file
// that can't be used is never passed over: it may be one that was to hold the
// boundary, or one that the product reads more kindly than we do.
func (c *checker) parsed(source *Source, path string, data []byte, err error, level Level) *value {
	if err == nil && len(data) > maxFile && level == Weakens {
		err = errTooBig
	}
	if err != nil {
		c.unreadable(source, path, fault{text: cause(err)}, level)
		return nil
	}
	v, faults := parse(data)
	for _, f := range faults {
		c.unreadable(source, path, f, level)
	}
	if v == nil {
		return nil
	}
	if len(faults) == 0 {
		source.State = StateRead
	}
	v.stamp(source, path)
	if level == Weakens {
		c.checkTypes(v)
	}
	return v
}

func (c *checker) unreadable(source *Source, path string, f fault, level Level) {
	source.State = StateUnreadable
	c.found(level, "file_unusable", place{source, path, f.line, f.column}, "", "can not be used: "+plain(f.text),
		"What the product makes of such a file can not be relied on.", "Mend the file, or remove it.")
}

// types are the kinds of the values that the check looks at.
var types = []struct {
	key  string
	kind kind
}{
	{"env", kindObject},
	{"sandbox", kindObject},
	{"sandbox.enabled", kindBool},
	{"sandbox.failIfUnavailable", kindBool},
	{"sandbox.allowUnsandboxedCommands", kindBool},
	{"sandbox.excludedCommands", kindArray},
	{"sandbox.enableWeakerNestedSandbox", kindBool},
	{"sandbox.enableWeakerNetworkIsolation", kindBool},
	{"sandbox.network", kindObject},
	{"sandbox.network.httpProxyPort", kindNumber},
	{"sandbox.network.socksProxyPort", kindNumber},
	{"sandbox.network.allowManagedDomainsOnly", kindBool},
	{"sandbox.network.allowAllUnixSockets", kindBool},
	{"sandbox.network.allowLocalBinding", kindBool},
	{"permissions", kindObject},
	{"permissions.defaultMode", kindString},
	{"permissions.disableBypassPermissionsMode", kindString},
}

// checkTypes finds values of another type than the setting has: what the product
// makes of one, or of the file around it, is not known.
func (c *checker) checkTypes(v *value) {
	wrong := func(v *value, key string, want kind) {
		if v != nil && v.kind != want {
			c.found(Weakens, "wrong_type", v.at, key, "is "+string(v.kind)+", not "+string(want),
				"The product may ignore it, or the whole file.", "Write "+string(want)+", or remove the key.")
		}
	}
	for _, t := range types {
		wrong(v.get(strings.Split(t.key, ".")...), t.key, t.kind)
	}
	for _, name := range slices.Concat(proxyVariables, noProxyVariables, allProxyVariables) {
		wrong(v.get("env", name), "env."+name, kindString)
	}
}

// effective is the value of a key in the strongest scope that has it.
func (c *checker) effective(path ...string) *value {
	for _, scope := range c.scopes {
		if v := scope.get(path...); v != nil {
			return v
		}
	}
	return nil
}
