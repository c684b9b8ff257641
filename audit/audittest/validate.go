package audittest

import (
	"encoding/json"
	"fmt"
	"sync"

	"github.com/google/jsonschema-go/jsonschema"

	"sluicegate/audit"
)

// resolved is the shipped schema, without the room it leaves for later keys.
var resolved = sync.OnceValues(func() (*jsonschema.Resolved, error) {
	var s jsonschema.Schema
	if err := json.Unmarshal(audit.JSONSchema(), &s); err != nil {
		return nil, err
	}
	closeObjects(&s)
	return s.Resolve(nil)
})

// closeObjects forbids unknown keys in s and below.
func closeObjects(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	if s.Properties != nil && s.AdditionalProperties == nil {
		s.AdditionalProperties = &jsonschema.Schema{Not: &jsonschema.Schema{}}
	}
	for _, p := range s.Properties {
		closeObjects(p)
	}
	closeObjects(s.Items)
}

// Validate holds a line of the log against the shipped schema. A key that the
// schema does not have is an error too.
func Validate(line []byte) error {
	s, err := resolved()
	if err != nil {
		return fmt.Errorf("the schema itself: %w", err)
	}
	var v any
	if err := json.Unmarshal(line, &v); err != nil {
		return err
	}
	return s.Validate(v)
}

// validate does the same for an event that was not written as a line.
func validate(e *audit.Event) error {
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	const hash = `,"prev":"0000000000000000000000000000000000000000000000000000000000000000",` +
		`"hash":"0000000000000000000000000000000000000000000000000000000000000000"}`
	// The chain is not made here.
	return Validate(append(line[:len(line)-len(`,"prev":""}`)], hash...))
}
