package audittest_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sluicegate/audit"
	"sluicegate/audit/audittest"
)

// The recorder notices an event that the shipped schema does not allow, and the
// first one only.
func TestInvalid(t *testing.T) {
	good := audit.Event{Event: audit.ServiceStarted, Service: &audit.Service{}, Policy: &audit.Policy{}}
	rec := &audittest.Recorder{}
	require.NoError(t, rec.Record(t.Context(), good))
	assert.NoError(t, rec.Invalid())
	bad := good
	bad.Service = nil
	require.NoError(t, rec.Record(t.Context(), bad))
	assert.ErrorContains(t, rec.Invalid(), "service.started, record 2: ")
	other := good
	other.Decision = "perhaps"
	require.NoError(t, rec.Record(t.Context(), other))
	assert.ErrorContains(t, rec.Invalid(), "record 2: ")
}

// Tests allow no key that the schema does not have.
func TestValidateUnknownKey(t *testing.T) {
	const line = `{"time":"2026-01-01T00:00:00.000Z","level":"INFO","msg":"m","schema":"sluicegate.audit/1","event":"service.stopped",` +
		`"id":"i","service":{},"boot":"b","host":{},"daemon":{},"seq":1,` +
		`"prev":"0000000000000000000000000000000000000000000000000000000000000000",` +
		`"hash":"0000000000000000000000000000000000000000000000000000000000000000"`
	assert.NoError(t, audittest.Validate([]byte(line+"}")))
	assert.Error(t, audittest.Validate([]byte(line+`,"surprise":1}`)))
	assert.Error(t, audittest.Validate([]byte(line)))
}
