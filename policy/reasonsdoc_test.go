package policy_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"sluicegate/policy"

	"github.com/stretchr/testify/require"
)

// TestGeneratedReasonsDoc keeps docs/reasons.md equal to the table; UPDATE=1
// writes it.
func TestGeneratedReasonsDoc(t *testing.T) {
	const path = "../docs/reasons.md"
	want := reasonsPage()
	if os.Getenv("UPDATE") != "" {
		require.NoError(t, os.WriteFile(path, []byte(want), 0o644))
	}
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, want, string(got), "run make generate")
}

func reasonsPage() string {
	var b strings.Builder
	b.WriteString("# Reasons\n\nEvery record and refusal names one reason. The words are stable: none is ever renamed. This page is\n" +
		"generated from the program's own table. Reasons of rooms that are not there yet are listed too.\n")
	headings := map[policy.Class]string{
		policy.ClassDeny:      "Refused by policy, guard or limit",
		policy.ClassMalformed: "Malformed requests",
		policy.ClassUpstream:  "Faults that are not a policy decision",
		policy.ClassClose:     "Ends of a tunnel",
		policy.ClassAllow:     "Allowed",
	}
	for _, class := range []policy.Class{policy.ClassDeny, policy.ClassMalformed, policy.ClassUpstream, policy.ClassClose, policy.ClassAllow} {
		fmt.Fprintf(&b, "\n## %s\n\n", headings[class])
		for _, i := range policy.Reasons() {
			if i.Class != class {
				continue
			}
			fmt.Fprintf(&b, "### %s\n\n%s\n\n- Cause: %s\n- What to do: %s\n", i.Reason, i.Meaning, i.Cause, i.Mend)
			if i.HTTP != 0 {
				dns := i.DNS.RCode
				if i.DNS.EDE != 0 {
					dns += fmt.Sprintf(" with EDE %d", i.DNS.EDE)
				}
				if dns == "-" {
					dns = "does not occur"
				}
				fmt.Fprintf(&b, "- HTTP: %d, SOCKS reply: %d, DNS: %s, `X-Proxy-Error`: %s, `Proxy-Status` error: %s\n",
					i.HTTP, i.SOCKS, dns, i.ProxyError, i.ProxyStatus)
			}
			b.WriteString("\n")
		}
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}
