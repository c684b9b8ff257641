package main_test

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// modelAPI stands in for the service that Claude Code asks what to do. It wants
// one command run, and remembers what came of it.
type modelAPI struct {
	command string

	mu      sync.Mutex
	results []string
}

// message is what the tests read of a request to the service.
type message struct {
	Stream   bool
	Tools    []struct{ Name string }
	Messages []struct{ Content json.RawMessage }
}

func (m *modelAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var in message
	if !strings.HasPrefix(r.URL.Path, "/v1/messages") || json.NewDecoder(r.Body).Decode(&in) != nil {
		http.NotFound(w, r)
		return
	}
	canRun := false
	for _, tool := range in.Tools {
		canRun = canRun || tool.Name == "Bash"
	}
	var blocks []struct {
		Type    string
		Content json.RawMessage
	}
	if n := len(in.Messages); n > 0 {
		_ = json.Unmarshal(in.Messages[n-1].Content, &blocks)
	}
	done := !canRun
	for _, b := range blocks {
		if b.Type == "tool_result" {
			done = true
			m.mu.Lock()
			m.results = append(m.results, string(b.Content))
			m.mu.Unlock()
		}
	}
	content := map[string]any{"type": "text", "text": "done"}
	reason := "end_turn"
	if !done {
		input := map[string]any{"command": m.command, "description": "fetch"}
		content = map[string]any{"type": "tool_use", "id": "toolu_01", "name": "Bash", "input": input}
		reason = "tool_use"
	}
	reply(w, in.Stream, content, reason)
}

// reply answers in one of the two ways in which the service does.
func reply(w http.ResponseWriter, stream bool, content map[string]any, reason string) {
	usage := map[string]any{"input_tokens": 1, "output_tokens": 1}
	whole := map[string]any{
		"id": "msg_01", "type": "message", "role": "assistant", "model": "claude-test", "usage": usage,
		"content": []any{content}, "stop_reason": reason, "stop_sequence": nil,
	}
	if !stream {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(whole)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	event := func(name string, data map[string]any) {
		data["type"] = name
		b, _ := json.Marshal(data)
		_, _ = fmt.Fprintf(w, "event: %s\ndata: %s\n\n", name, b)
	}
	whole["content"], whole["stop_reason"] = []any{}, nil
	event("message_start", map[string]any{"message": whole})
	start, delta := map[string]any{"type": "text", "text": ""}, map[string]any{"type": "text_delta", "text": content["text"]}
	if content["type"] == "tool_use" {
		input, _ := json.Marshal(content["input"])
		start = map[string]any{"type": "tool_use", "id": content["id"], "name": content["name"], "input": map[string]any{}}
		delta = map[string]any{"type": "input_json_delta", "partial_json": string(input)}
	}
	event("content_block_start", map[string]any{"index": 0, "content_block": start})
	event("content_block_delta", map[string]any{"index": 0, "delta": delta})
	event("content_block_stop", map[string]any{"index": 0})
	event("message_delta", map[string]any{"delta": map[string]any{"stop_reason": reason, "stop_sequence": nil}, "usage": usage})
	event("message_stop", map[string]any{})
}

// serve answers TLS on the port that the product asks for.
func (m *modelAPI) serve(t *testing.T, ca *authority) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:443")
	require.NoError(t, err)
	server := &http.Server{Handler: m, ReadHeaderTimeout: time.Minute}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(tls.NewListener(ln, &tls.Config{Certificates: []tls.Certificate{ca.leaf}}))
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-done
	})
}

// TestClaudeCode starts the product itself with the settings that pairing wrote,
// in a namespace from which nothing leads anywhere. A stand-in for its service
// lets it run a command. What it asks for itself and what its command asks for
// meet the gate as two profiles, and the command's error reaches the model.
func TestClaudeCode(t *testing.T) {
	claude := os.Getenv("SLUICEGATE_TEST_CLAUDE")
	if claude == "" {
		claude = needs(t, "claude")
	}
	for _, program := range []string{"bwrap", "socat"} {
		needs(t, program)
	}
	claude, err := exec.LookPath(claude)
	require.NoError(t, err)
	if !inNamespace(t) {
		return
	}
	w := newWorld(t)
	w.dns.answer("api.anthropic.com", "127.0.0.1")
	w.policy(`
version: 1
product: claude-code
profiles:
  process:
    listen: {port: 18081}
    allow: [{host: api.anthropic.com, resolves_to: [127.0.0.1], ports: [443], id: api}]
  commands:
    listen: {port: 18082}
    allow: [{host: dev.example.com, resolves_to: [127.0.0.1], ports: [$SECURE], id: dev}]
`)
	g := w.start()
	api := &modelAPI{command: fmt.Sprintf(
		"curl -sS --cacert %s https://dev.example.com:%d/hello; curl -sS https://api.anthropic.com/; curl -sS https://forbidden.example.net/", w.ca.file, w.secure.port,
	)}
	api.serve(t, w.ca)
	root := filepath.Join(w.dir, "root")
	require.NoError(t, os.Mkdir(root, 0o755))
	r := w.sluicegate("pair", "claude-code", "--write", "--root", root)
	require.Zero(t, r.code, r.stderr)
	overlay(t, filepath.Join(root, "etc", "claude-code"), "/etc/claude-code")
	r = w.sluicegate("pair", "claude-code", "--check")
	assert.Zero(t, r.code, "%s%s", r.stdout, r.stderr)

	r = w.execEnv([]string{
		"ANTHROPIC_API_KEY=none", "NODE_EXTRA_CA_CERTS=" + w.ca.file, "CLAUDE_CODE_MAX_RETRIES=0", "DISABLE_AUTOUPDATER=1",
	}, claude, "-p", "fetch it")
	t.Logf("claude ended with %d\n%s%s", r.code, r.stdout, r.stderr)
	api.mu.Lock()
	results := strings.Join(api.results, "\n")
	api.mu.Unlock()
	if strings.Contains(results, "bwrap") || strings.Contains(results, "sandbox") && !strings.Contains(results, "403") {
		t.Skipf("the product's sandbox does not run inside a namespace of this machine: %s", results)
	}
	assert.Contains(t, results, strings.TrimSpace(greeting), "what the command may reach")
	assert.Equal(t, 2, strings.Count(results, "response 403"), results)

	seen := map[string]bool{}
	for _, e := range w.entries() {
		if e.Event == "egress.closed" || e.Event == "egress.denied" {
			seen[e.Profile+" "+e.Decision+" "+e.Reason+" "+e.Dest] = true
		}
	}
	for _, want := range []string{
		"claude-code/process allow rule api.anthropic.com",
		"claude-code/commands allow rule dev.example.com",
		"claude-code/commands deny not_listed api.anthropic.com",
		"claude-code/commands deny not_listed forbidden.example.net",
	} {
		assert.True(t, seen[want], "%s is missing in %v", want, seen)
	}
	g.stop()
	w.verifyChain()
}
