package audit

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestFilter(t *testing.T) {
	at := time.Date(2026, 11, 30, 10, 0, 0, 500e6, time.UTC)
	e := denied("api.example.com")
	e.Time = at
	observed := e
	observed.Event, observed.Decision, observed.Reason, observed.Would = EgressObserved, DecisionWouldDeny, "observe", "not_listed"
	service := Event{Event: ServiceStarted, Time: at}

	host := func(s string) HostFilter {
		h, ok := ParseHost(s)
		require.True(t, ok, s)

		return h
	}
	for _, tc := range []struct {
		name                    string
		filter                  Filter
		denied, observed, other bool
	}{
		{"all", Filter{}, true, true, true},
		{"event", Filter{Event: EgressDenied}, true, false, false},
		{"decision", Filter{Decision: DecisionDeny}, true, false, false},
		{"reason, also where it was relaxed", Filter{Reason: "not_listed"}, true, true, false},
		{"another reason", Filter{Reason: "observe"}, false, true, false},
		{"profile", Filter{Profile: "claude-code/commands"}, true, true, false},
		{"another profile", Filter{Profile: "claude-code/command"}, false, false, false},
		{"product", Filter{Product: "claude-code"}, true, true, false},
		{"another product", Filter{Product: "claude"}, false, false, false},
		{"host", Filter{Host: host("api.example.com")}, true, true, false},
		{"hosts below", Filter{Host: host("*.example.com")}, true, true, false},
		{"not below", Filter{Host: host("*.api.example.com")}, false, false, false},
		{"since then", Filter{Since: at}, true, true, true},
		{"since before", Filter{Since: at.Add(-time.Hour)}, true, true, true},
		{"since a little later", Filter{Since: at.Add(time.Millisecond)}, false, false, false},
		{"both", Filter{Since: at, Decision: DecisionDeny, Profile: "claude-code/commands"}, true, false, false},
		{"one of both", Filter{Decision: DecisionDeny, Product: "x"}, false, false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for event, want := range map[*Event]bool{&e: tc.denied, &observed: tc.observed, &service: tc.other} {
				assert.Equal(t, want, tc.filter.Match(event), event.Event)

				// The sieve lets everything through that is wanted, and here
				// nothing else.
				line := sealed(event)
				s := newSieve(&tc.filter)
				passed := s.passes(line) && !s.early(line)
				if want {
					assert.True(t, passed, event.Event)
				} else {
					assert.False(t, passed, event.Event)
				}
			}
		})
	}
}

// Values that are escaped in a line are found all the same.
func TestSieveEscapes(t *testing.T) {
	e := denied("example.com")
	e.Profile = "a\"b\\c\u202e"
	assert.True(t, newSieve(&Filter{Profile: e.Profile}).passes(sealed(&e)))
	assert.False(t, newSieve(&Filter{Profile: "a"}).passes(sealed(&e)))

	// A time that isn't written as the log does is left to be decoded.
	s := newSieve(&Filter{Since: time.Date(2026, 11, 30, 23, 0, 0, 0, time.UTC)})
	rest := `","level":"INFO"}`
	assert.True(t, s.early([]byte(timeKey+"2026-11-30T22:59:59.999Z"+rest)))
	assert.False(t, s.early([]byte(timeKey+"2026-11-30T23:00:00.000Z"+rest)))
	assert.False(t, s.early([]byte(timeKey+"2026-11-30T22:30:00.000-02:00"+rest)))
	assert.False(t, s.early([]byte(`{"level":"INFO","time":"2026-11-30T22:59:59.999Z"}`)))
}

func TestParseHost(t *testing.T) {
	for _, tc := range []struct {
		in              string
		ok              bool
		matches, misses []string
	}{
		{"example.com", true, []string{"example.com"}, []string{"a.example.com", "example.co", ""}},
		{"Example.COM.", true, []string{"example.com"}, nil},
		{"*.example.com", true, []string{"a.example.com", "a.b.example.com"}, []string{"example.com", "aexample.com"}},
		{"**.example.com", true, []string{"example.com", "a.example.com"}, []string{"aexample.com", "example.com.evil.com"}},
		{"bücher.example", true, []string{"xn--bcher-kva.example"}, []string{"bücher.example"}},
		{"my_host", true, []string{"my_host"}, nil},
		{"10.0.0.5", true, []string{"10.0.0.5"}, []string{"10.0.0.50"}},
		{"::ffff:10.0.0.5", true, []string{"10.0.0.5"}, nil},
		{"2001:DB8:0::1", true, []string{"2001:db8::1"}, []string{"2001:db8::10"}},
		{"[2001:db8::1]", true, []string{"2001:db8::1"}, nil},
		{in: "", ok: false},
		{in: "*", ok: false},
		{in: "**", ok: false},
		{in: "*.", ok: false},
		{in: "*example.com", ok: false},
		{in: "a.*.example.com", ok: false},
		{in: "*.10.0.0.5", ok: false},
		{in: "example.com:443", ok: false},
		{in: "https://example.com/", ok: false},
		{in: "a b", ok: false},
	} {
		t.Run(tc.in, func(t *testing.T) {
			h, ok := ParseHost(tc.in)
			require.Equal(t, tc.ok, ok)
			for _, dest := range tc.matches {
				assert.True(t, h.Match(dest), dest)
			}
			for _, dest := range tc.misses {
				assert.False(t, h.Match(dest), dest)
			}
		})
	}
	assert.True(t, HostFilter{}.Match(""), "no filter")
}

// Names and Decisions list every constant.
func TestListsAreComplete(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "event.go", nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	var names, decisions []string
	for _, decl := range file.Decls {
		group, ok := decl.(*ast.GenDecl)
		if !ok || group.Tok != token.CONST {
			continue
		}
		for _, spec := range group.Specs {
			value := spec.(*ast.ValueSpec)
			literal, ok := value.Values[0].(*ast.BasicLit)
			if !ok {
				continue
			}
			text, err := strconv.Unquote(literal.Value)
			require.NoError(t, err)
			if typ, ok := value.Type.(*ast.Ident); ok && typ.Name == "Name" {
				names = append(names, text)
			}
			if name := value.Names[0].Name; len(name) > 8 && name[:8] == "Decision" {
				decisions = append(decisions, text)
			}
		}
	}
	require.NotEmpty(t, names)
	require.NotEmpty(t, decisions)
	var got []string
	for _, name := range Names() {
		got = append(got, string(name))
	}
	slices.Sort(names)
	slices.Sort(got)
	assert.Equal(t, names, got, "of Names")
	assert.ElementsMatch(t, decisions, Decisions())
}
