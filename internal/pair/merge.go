package pair

// merge lays b over a, as Claude Code merges settings: objects key by key, lists
// as their union, anything else as b has it. Neither is changed.
func merge(a, b *value) *value {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	case a.kind == kindObject && b.kind == kindObject:
		out := &value{kind: kindObject, at: b.at, members: append([]member(nil), a.members...)}
		index := make(map[string]int, len(a.members))
		for i, m := range a.members {
			index[m.name] = i
		}
		for _, m := range b.members {
			if i, both := index[m.name]; both {
				out.members[i].value = merge(out.members[i].value, m.value)
				continue
			}
			out.members = append(out.members, m)
		}
		return out
	case a.kind == kindArray && b.kind == kindArray:
		out := &value{kind: kindArray, at: a.at}
		if len(a.items) == 0 {
			out.at = b.at
		}
		out.items = append(append(out.items, a.items...), b.items...)
		return out
	default:
		return b
	}
}

// stamp notes on every value of a file which one it is.
func (v *value) stamp(source *Source, file string) {
	v.at.source, v.at.file = source, file
	for _, item := range v.items {
		item.stamp(source, file)
	}
	for _, m := range v.members {
		m.value.stamp(source, file)
	}
}

// crossSource are the keys that count from every managed source, so that having
// one makes a source not the one that decides.
var crossSource = map[string]bool{
	"sandbox.network.allowManagedDomainsOnly": true,
	"sandbox.network.strictAllowlist":         true,
	"sandbox.filesystem.disabled":             true,
	"sandbox.bwrapPath":                       true,
	"sandbox.socatPath":                       true,
	"env":                                     true,
	"$schema":                                 true,
}

// hasPolicyKey tells whether a managed source has a key that makes it the one
// which counts.
func hasPolicyKey(v *value, path string) bool {
	if v == nil || crossSource[path] {
		return false
	}
	if v.kind != kindObject {
		return true
	}
	for _, m := range v.members {
		below := m.name
		if path != "" {
			below = path + "." + m.name
		}
		if hasPolicyKey(m.value, below) {
			return true
		}
	}
	return false
}
