package pair

// Level is what a finding means for the boundary.
type Level string

// Levels, the gravest first.
const (
	// Weakens: the boundary does not hold.
	Weakens Level = "weakens"
	// Note: it holds, and could be firmer.
	Note Level = "note"
	// NotCovered: it never held this, whatever is set.
	NotCovered Level = "not_covered"
	// NotChecked: what is there can't be known from here.
	NotChecked Level = "not_checked"
)

// levels gives the order of findings.
var levels = []Level{Weakens, Note, NotCovered, NotChecked}

// Finding is one thing that [Check] has to say. Every text is printable ASCII but
// for File, which is a path of the system.
type Finding struct {
	Level Level `json:"level"`
	// Code names the kind of finding and is stable.
	Code string `json:"code"`
	// Source is the kind of source, File where it is; Line and Column are 0 if the
	// finding is about the whole.
	Source string `json:"source"`
	File   string `json:"file,omitempty"`
	Line   int    `json:"line,omitempty"`
	Column int    `json:"column,omitempty"`
	// Key is the setting or the variable.
	Key string `json:"key,omitempty"`
	// Found, Why and Mend are for people: what is there, what it means, what to do.
	Found string `json:"found"`
	Why   string `json:"why"`
	Mend  string `json:"mend"`
}

// Source is one place of settings, in the order of precedence.
type Source struct {
	Name  string `json:"name"`
	Place string `json:"place,omitempty"`
	// State is absent, read, overridden, unreadable or not_checked.
	State string `json:"state"`
}

// States of a [Source].
const (
	StateAbsent     = "absent"
	StateRead       = "read"
	StateOverridden = "overridden"
	StateUnreadable = "unreadable"
	StateNotChecked = "not_checked"
)

// Report is the result of [Check]; its JSON keys are stable.
type Report struct {
	// Holds tells that nothing weakens the boundary.
	Holds    bool      `json:"holds"`
	Ports    Ports     `json:"ports"`
	Sources  []*Source `json:"sources"`
	Findings []Finding `json:"findings"`
}

// Count returns how many findings have a level.
func (r *Report) Count(level Level) int {
	n := 0
	for _, f := range r.Findings {
		if f.Level == level {
			n++
		}
	}
	return n
}
