package daemon

import (
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluicegate/audit"
	"sluicegate/internal/control"
	"sluicegate/policy"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestStatusOfASoundGate(t *testing.T) {
	o := newOptions(t,
		"    mode: observe", "    observe_until: 2100-01-01", "    network: open",
		"    allow:", "      - {host: docs.example.com}",
		"    deny:", "      - {host: a.example.net}", "      - {host: b.example.net}")
	d := start(t, o)
	s := d.Status()
	assert.Equal(t, HealthOK, s.Health)
	assert.Empty(t, s.Problems)
	assert.Equal(t, "v1.2.3", s.Version)
	assert.Equal(t, os.Getpid(), s.PID)
	assert.Equal(t, o.Paths.Control, s.Control)
	assert.Equal(t, o.Paths.Policy, s.Policy.Source)
	assert.Equal(t, d.store.snapshot().Digest(), s.Policy.Digest)
	require.Len(t, s.Policy.Notices, 1, "an open network is worth a notice")
	assert.Contains(t, s.Policy.Notices[0], "the network is open")
	assert.NotContains(t, s.Policy.Notices[0], "\n")
	until := time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)
	addresses := s.Profiles[0].Addresses
	assert.NotEmpty(t, addresses)
	assert.Equal(t, []ProfileStatus{{
		Name: commands, Mode: "observe", Network: "open", Addresses: addresses, Allow: 1, Deny: 2, ObserveUntil: &until,
	}}, s.Profiles)

	refusedBy(t, addresses[0], "a.example.net")
	s = d.Status()
	assert.EqualValues(t, 1, s.Traffic.Refused)
	assert.Equal(t, uint64(2), s.Audit.LastSeq)
	assert.Len(t, s.Audit.LastHash, 64)
	assert.Equal(t, map[string]uint64{"deny": 1}, s.Audit.Decisions)
}

func TestStatusWithoutAProfile(t *testing.T) {
	o := newOptions(t)
	require.NoError(t, os.Remove(filepath.Join(o.Paths.Policy, "claude-code.yaml")))
	s := start(t, o).Status()
	assert.Equal(t, HealthDegraded, s.Health)
	assert.Equal(t, []string{"the policy has no profile, so nothing is served"}, s.Problems)
	assert.NotNil(t, s.Profiles, "a list without an element, not null, for who reads the JSON")
}

func TestStatusOfABrokenLog(t *testing.T) {
	o := newOptions(t)
	folder := filepath.Join(filepath.Dir(o.Paths.State), "log")
	o.Settings.AuditFile = filepath.Join(folder, "audit.jsonl")
	d := start(t, o)
	require.NoError(t, os.RemoveAll(folder))
	// The log looks after its file once a second, when there is something to
	// write.
	eventually(t, "the gate to notice", func() bool {
		_ = d.audit.Record(t.Context(), audit.Event{Event: audit.EgressDenied, Decision: audit.DecisionDeny})
		return d.Status().Health == HealthDegraded
	})
	s := d.Status()
	assert.False(t, s.Audit.Healthy)
	assert.NotEmpty(t, s.Audit.LastError)
	require.Len(t, s.Problems, 1)
	assert.Equal(t, "the audit log can not be written: "+s.Audit.LastError, s.Problems[0])
	assert.NotZero(t, s.Audit.Dropped)

	require.NoError(t, os.Mkdir(folder, 0o700))
	require.NoError(t, d.audit.Record(t.Context(), audit.Event{Event: audit.EgressDenied, Decision: audit.DecisionDeny}))
	assert.Equal(t, HealthOK, d.Status().Health)
}

// explain asks a daemon over its control socket.
func explain(t *testing.T, d *Daemon, id string) (Explanation, error) {
	t.Helper()
	var x Explanation
	err := control.NewClient(d.opts.Paths.Control).Get(t.Context(), RouteExplain, url.Values{"id": {id}}, &x)
	return x, err
}

func TestExplainRefusals(t *testing.T) {
	o := newOptions(t,
		"    deny:", `      - {host: "**.example.net", id: no-net, why: "a reason to tell"}`, "      - {host: a.example.org}")
	d := start(t, o)
	addr := d.bound[0].Addresses[0].String()
	for _, tc := range []struct{ host, reason, rule, why string }{
		{"a.example.net", "deny_rule", "no-net", "a reason to tell"},
		{"a.example.org", "deny_rule", "claude-code/commands:deny:a.example.org", ""},
		{"a.example.com", "not_listed", "", ""},
	} {
		x, err := explain(t, d, refusedBy(t, addr, tc.host))
		require.NoError(t, err)
		assert.Equal(t, tc.host, x.Event.Dest)
		assert.Equal(t, tc.reason, x.Event.Reason)
		told := policy.Reason(tc.reason).Info()
		assert.Equal(t, []string{told.Meaning, told.Cause, told.Mend}, []string{x.Meaning, x.Cause, x.Mend})
		assert.True(t, x.Current)
		assert.Equal(t, tc.why, x.Why)
		if tc.rule == "" {
			assert.Nil(t, x.Event.Rule)
			continue
		}
		require.NotNil(t, x.Event.Rule)
		assert.Equal(t, tc.rule, x.Event.Rule.ID)
	}

	x, err := explain(t, d, strings.ToUpper(refusedBy(t, addr, "a.example.net")))
	require.NoError(t, err, "the case of an id does not matter")
	assert.Equal(t, "a.example.net", x.Event.Dest)
	x, err = explain(t, d, events(t, o.Settings.AuditFile)[0].ID)
	require.NoError(t, err, "an event that is no refusal has nothing to explain but itself")
	assert.Equal(t, audit.ServiceStarted, x.Event.Event)
	assert.Empty(t, x.Meaning)
}

// A rule's explanation is that of the policy that decided, not of a rule that
// has its name now.
func TestExplainAnotherPolicy(t *testing.T) {
	o := newOptions(t, "    deny:", `      - {host: a.example.net, id: rule, why: "the old reason"}`)
	d, err := Start(t.Context(), o)
	require.NoError(t, err)
	id := refusedBy(t, d.bound[0].Addresses[0].String(), "a.example.net")
	require.NoError(t, d.Shutdown(t.Context(), "signal"))

	write(t, filepath.Join(o.Paths.Policy, "claude-code.yaml"),
		onePolicy("    deny:", `      - {host: b.example.net, id: rule, why: "the new reason"}`))
	x, err := explain(t, start(t, o), id)
	require.NoError(t, err)
	assert.Equal(t, "rule", x.Event.Rule.ID)
	assert.False(t, x.Current)
	assert.Empty(t, x.Why)
	assert.NotEmpty(t, x.Meaning, "what a reason means does not change")
}

// An event that observe mode let through is explained by what it would have been
// refused for.
func TestExplainObserved(t *testing.T) {
	d := start(t, newOptions(t))
	x := d.explanation(audit.Event{Event: audit.EgressObserved, Reason: "observe", Would: "not_listed"})
	assert.Equal(t, policy.ReasonNotListed.Info().Meaning, x.Meaning)
	assert.False(t, x.Current, "an event without a policy is of none that is in force")
}

func TestExplainFaults(t *testing.T) {
	o := newOptions(t)
	d := start(t, o)
	wantStatus := func(err error, status int, says, hint string) {
		t.Helper()
		var api *control.APIError
		require.ErrorAs(t, err, &api)
		assert.Equal(t, status, api.Status)
		assert.Contains(t, api.Message, says)
		assert.Contains(t, api.Hint, hint)
	}
	for _, id := range []string{"", "7", "01890a5d-ac96-774b-bcce-b302099a805", "../../etc/passwd"} {
		_, err := explain(t, d, id)
		wantStatus(err, http.StatusBadRequest, "not an event id", "X-Sluicegate-Event")
	}
	const unknown = "01890a5d-ac96-774b-bcce-b302099a8057"
	_, err := explain(t, d, unknown)
	wantStatus(err, http.StatusNotFound, unknown, "another gate")

	err = control.NewClient(o.Paths.Control).Get(t.Context(), "/v9/status", nil, nil)
	wantStatus(err, http.StatusNotFound, "no such route", "different versions")
}
