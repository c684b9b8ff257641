//go:build unix

package main_test

import (
	"encoding/json"
	"os/exec"
	"sync"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// shippedSchema is what "audit schema" prints, ready to hold lines against.
var shippedSchema = sync.OnceValues(func() (*jsonschema.Resolved, error) {
	text, err := exec.Command(binary, "audit", "schema").Output()
	if err != nil {
		return nil, err
	}
	var s jsonschema.Schema
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, err
	}
	return s.Resolve(nil)
})

// validate holds a line of the log against the schema that the program ships.
func validate(line []byte) error {
	s, err := shippedSchema()
	if err != nil {
		return err
	}
	var v any
	if err := json.Unmarshal(line, &v); err != nil {
		return err
	}
	return s.Validate(v)
}

// A line that lost what its event must have is noticed, or the check of all
// lines shows nothing.
func TestAuditSchema(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.start()
	told, err := ask("http://"+g.addr(commands), "https://forbidden.example.net")
	require.NoError(t, err)
	g.stop()
	lines := logLines(t, w.audit)
	require.Len(t, lines, 3)
	var denied map[string]any
	require.NoError(t, json.Unmarshal(lines[1], &denied))
	require.Equal(t, told.event, denied["id"])
	for key, value := range map[string]any{
		"reason": "because", "decision": nil, "client": nil, "hash": "short", "port": -1, "event": "egress.unheard", "resolved": "none",
	} {
		broken := map[string]any{}
		for k, v := range denied {
			broken[k] = v
		}
		if broken[key] = value; value == nil {
			delete(broken, key)
		}
		line, err := json.Marshal(broken)
		require.NoError(t, err)
		assert.Error(t, validate(line), key)
	}
	denied["a_later_key"] = 1
	line, err := json.Marshal(denied)
	require.NoError(t, err)
	assert.NoError(t, validate(line), "additive changes keep the schema")
}
