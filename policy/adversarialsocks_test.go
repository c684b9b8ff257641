package policy_test

import (
	"encoding/hex"
	"strings"
	"testing"

	"sluicegate/policy"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The same odd spellings as SOCKS names: greeting and request back to back, of
// which only the name matters here.
func TestAdversarialSOCKSNames(t *testing.T) {
	judged := 0
	for _, c := range adversarial(t, "ip-literal-obfuscated", "hostname-form", "ipv6-zone-brackets") {
		if c.Kind != "hex" || c.Surface != "socks5" {
			continue
		}
		judged++
		t.Run(c.ID, func(t *testing.T) {
			b, err := hex.DecodeString(strings.TrimPrefix(c.Input, "hex:"))
			require.NoError(t, err)
			// VER CMD RSV ATYP=3 LEN NAME PORT, RFC 1928 section 4.
			require.Greater(t, len(b), 5)
			require.Equal(t, byte(3), b[3])
			name := string(b[5 : 5+b[4]])
			_, err = policy.ParseHostPort(name, 443)
			require.Error(t, err)
			assert.Equal(t, "error", c.Expect)
			assert.Equal(t, c.Code, string(reasonOf(t, err)))
		})
	}
	assert.Equal(t, 2, judged)
}
