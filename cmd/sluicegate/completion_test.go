//go:build unix

package main_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Each shell gets a script, and says nothing against it where it is installed.
func TestCompletionScripts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for shell, check := range map[string][]string{
		"bash":       {"bash", "-n"},
		"zsh":        {"zsh", "-n"},
		"fish":       {"fish", "--no-execute"},
		"powershell": nil,
	} {
		t.Run(shell, func(t *testing.T) {
			r := w.sluicegate("completion", shell)
			require.Zero(t, r.code, r.stderr)
			assert.Contains(t, r.stdout, "sluicegate")
			if check == nil {
				return
			}
			program := needs(t, check[0])
			file := t.TempDir() + "/completion"
			write(t, file, r.stdout)
			assert.Equal(t, result{}, w.exec(program, append(check[1:], file)...))
		})
	}
	r := w.sluicegate("completion", "cmd.exe")
	assert.Equal(t, 2, r.code)
}

// What the scripts ask the program for.
func TestCompletions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	complete := func(args ...string) []string {
		r := w.exec(binary, append([]string{"__complete", "--config", w.config}, args...)...)
		require.Zero(t, r.code, r.stderr)
		words := strings.Fields(r.stdout)
		return words[:len(words)-1] // the last one is a directive
	}
	assert.Equal(t, []string{commands}, complete("check", "--profile", ""), "of the policy that would be loaded")
	assert.Equal(t, []string{"claude-code"}, complete("tail", "--product", ""))
	assert.Contains(t, complete("tail", "--reason", ""), "dest_private")
	write(t, w.policyFile(), "version: 7\n")
	assert.Contains(t, complete("check", "--profile", ""), "chatgpt-codex/commands", "shipped ones where the policy has faults")

	// As a person at the terminal: what bash offers after Tab. The script uses a
	// function of the bash-completion package.
	r := w.execEnv([]string{"PROGRAM=" + binary}, needs(t, "bash"), "--norc", "-c", `
sluicegate() { "$PROGRAM" "$@"; }
compopt() { :; }
_get_comp_words_by_ref() { cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} words=("${COMP_WORDS[@]}") cword=$COMP_CWORD; }
source <(sluicegate completion bash)
COMP_WORDS=(sluicegate tail --decision would) COMP_CWORD=3 COMP_LINE="${COMP_WORDS[*]}" COMP_POINT=${#COMP_LINE}
__start_sluicegate
echo "${COMPREPLY[@]}"`)
	assert.Equal(t, result{stdout: "would_deny\n"}, r)
}
