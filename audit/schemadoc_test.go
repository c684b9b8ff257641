package audit_test

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sluicegate/audit"
	"sluicegate/policy"
)

// needed are the keys that an event always has, beside those of every line. The
// words of an event's other keys are in docs/audit.md.
var needed = map[audit.Name][]string{
	audit.EgressDenied:   {"decision", "reason", "product", "flow", "stage", "client", "policy"},
	audit.EgressObserved: {"decision", "reason", "would", "product", "profile", "proto", "dest", "port", "mode", "flow", "client", "policy"},
	audit.EgressOpened:   {"decision", "reason", "product", "profile", "proto", "dest", "port", "mode", "flow", "client", "policy"},
	audit.EgressClosed:   {"decision", "reason", "product", "flow", "client", "policy", "bytes_in", "bytes_out", "duration_ms", "end"},
	audit.DNSDenied:      {"decision", "reason", "product", "proto", "flow", "stage", "client", "policy"},
	audit.DNSObserved:    {"decision", "reason", "would", "product", "profile", "proto", "dest", "mode", "flow", "client", "dns", "policy"},
	audit.PolicyReloaded: {"change", "policy"},
	audit.PolicyRejected: {"change"},
	audit.ServiceStarted: {"service", "policy"},
	audit.ServiceStopped: {"service"},
	audit.AuditRotated:   {"rotated"},
	audit.AuditGap:       {"gap"},
}

// TestGeneratedSchema compares audit/schema.json with the types, or writes it
// anew when UPDATE is set.
func TestGeneratedSchema(t *testing.T) {
	want, err := json.MarshalIndent(schema(t), "", "  ")
	require.NoError(t, err)
	want = append(want, '\n')
	if os.Getenv("UPDATE") != "" {
		require.NoError(t, os.WriteFile("schema.json", want, 0o644))
		return
	}
	assert.True(t, bytes.Equal(want, audit.JSONSchema()), "make generate writes audit/schema.json anew")
}

// schema is the schema of a line.
func schema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	s, err := jsonschema.For[audit.Event](nil)
	require.NoError(t, err)
	s.Schema = "https://json-schema.org/draft/2020-12/schema"
	s.ID = "tag:sluicegate.dev,2026:" + audit.Schema
	s.Title = "A line of the Sluicegate audit log"
	describe(t, s)
	words := func(key string, values []string) {
		for _, v := range values {
			s.Properties[key].Enum = append(s.Properties[key].Enum, v)
		}
	}
	var names, reasons []string
	for _, n := range audit.Names() {
		names = append(names, string(n))
	}
	for _, info := range policy.Reasons() {
		reasons = append(reasons, string(info.Reason))
	}
	words("event", names)
	words("reason", reasons)
	words("would", reasons)
	words("decision", audit.Decisions())
	words("level", []string{audit.LevelInfo, audit.LevelWarn, audit.LevelError})
	words("proto", []string{"http", "connect", "socks5", "socks4", "dns"})
	words("mode", []string{string(policy.ModeEnforce), string(policy.ModeObserve)})
	words("schema", []string{audit.Schema})
	const digest = "^[0-9a-f]{64}$"
	s.Properties["prev"].Pattern = digest
	s.Properties["hash"] = &jsonschema.Schema{
		Type: "string", Pattern: digest,
		Description: "SHA-256 over the schema's name and a zero byte, the previous hash, and the bytes of the line before this key.",
	}
	s.PropertyOrder = append(s.PropertyOrder, "hash")
	s.Required = append(s.Required, "hash")
	for _, n := range audit.Names() {
		var is any = string(n)
		require.Contains(t, needed, n, "say which keys the event has")
		s.AllOf = append(s.AllOf, &jsonschema.Schema{
			If:   &jsonschema.Schema{Properties: map[string]*jsonschema.Schema{"event": {Const: &is}}},
			Then: &jsonschema.Schema{Required: needed[n]},
		})
	}
	return s
}

// describe opens the objects for later keys and takes the descriptions from the
// comments of the types.
func describe(t *testing.T, s *jsonschema.Schema) {
	t.Helper()
	comments := fieldComments(t)
	var walk func(s *jsonschema.Schema, of reflect.Type)
	walk = func(s *jsonschema.Schema, of reflect.Type) {
		for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice {
			if of.Kind() == reflect.Slice && s.Items != nil {
				s = s.Items
			}
			of = of.Elem()
		}
		// Absent is how a line says null.
		if slices.Contains(s.Types, "null") {
			s.Types = slices.DeleteFunc(slices.Clone(s.Types), func(t string) bool { return t == "null" })
			if len(s.Types) == 1 {
				s.Type, s.Types = s.Types[0], nil
			}
		}
		if of.Kind() != reflect.Struct || s.Properties == nil {
			return
		}
		s.AdditionalProperties = nil
		for i := range of.NumField() {
			f := of.Field(i)
			key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			p := s.Properties[key]
			require.NotNil(t, p, key)
			walk(p, f.Type)
			if p.Type == "array" || slices.Contains(p.Types, "array") {
				p.Type, p.Types = "array", nil
			}
			p.Description = comments[of.Name()+"."+f.Name]
		}
	}
	walk(s, reflect.TypeFor[audit.Event]())
}

// fieldComments are the comments in event.go, by type and field, in one line.
func fieldComments(t *testing.T) map[string]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "event.go", nil, parser.ParseComments)
	require.NoError(t, err)
	out := map[string]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok {
			return true
		}
		if of, ok := spec.Type.(*ast.StructType); ok {
			for _, f := range of.Fields.List {
				for _, name := range f.Names {
					out[spec.Name.Name+"."+name.Name] = strings.Join(strings.Fields(f.Doc.Text()), " ")
				}
			}
		}
		return false
	})
	return out
}
