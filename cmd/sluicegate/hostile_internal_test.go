package main

import (
	"bytes"
	"encoding/json"
	"testing"

	"sluicegate/audit"
	"sluicegate/internal/daemon"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What a record holds must not reach the terminal as anything but text.
func TestExplainShowsHostileRecordsAsText(t *testing.T) {
	const evil = "a\x1b[2J\nb\u009b31m\u202e\U0001f600\x7f"
	x := daemon.Explanation{Why: evil, Event: audit.Event{
		Msg: evil, User: evil, Profile: evil, Mode: evil, Reason: evil, Layer: evil, MatchedRange: evil,
		Request:  &audit.Request{Method: evil, TargetRaw: evil},
		Rule:     &audit.Rule{ID: evil, File: evil},
		Resolved: []audit.Address{{IP: evil, Class: evil}},
		Policy:   &audit.Policy{Digest: evil, Source: evil},
	}}
	var out bytes.Buffer
	require.NoError(t, printExplanation(&app{out: &out}, x))
	clean(t, out.Bytes())
	assert.NotContains(t, out.String(), "\nb", "a value made a line of its own")

	out.Reset()
	require.NoError(t, printJSON(&out, x))
	clean(t, out.Bytes())
	var back daemon.Explanation
	require.NoError(t, json.Unmarshal(out.Bytes(), &back))
	assert.Equal(t, evil, back.Why, "the value is whole")
}

func clean(t *testing.T, out []byte) {
	t.Helper()
	for _, c := range out {
		require.True(t, c == '\n' || c >= ' ' && c < 0x7f, "byte %#x in %q", c, out)
	}
}
