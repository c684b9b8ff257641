package proxy

import (
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sluicegate/audit"
)

// The cases of the shared catalogue.
func TestAdversarialTLS(t *testing.T) {
	// Classes and reasons that differ from the catalogue's.
	other := map[string]string{
		"tls-sni-022": "deny timeout", // truncated: the rest never came
	}
	elsewhere := map[string]string{
		"tls-sni-017": "TestR_T02_LargeAndSplitHello", "tls-sni-021": "TestR_T01_AnotherName",
		"tls-sni-036": "TestSSHByRule", "tls-sni-037": "TestHelloAfterRetry", "tls-sni-038": "TestFrontingIsNotSeen",
	}
	ran := 0
	for _, tt := range adversarialCases(t) {
		if tt.Surface != "tls" {
			continue
		}
		if tt.Kind != "hex" {
			assert.Contains(t, elsewhere, tt.ID)
			continue
		}
		ran++
		t.Run(tt.ID, func(t *testing.T) {
			w := strictWorld(t, func(c *Config) {
				if _, late := other[tt.ID]; late {
					c.Limits.Hello = 200 * time.Millisecond
				}
			})
			o := w.origin(allowedIP+":443", echo)
			sent, err := hex.DecodeString(strings.TrimPrefix(tt.Input, "hex:"))
			require.NoError(t, err)
			c := w.tunnelTo(std, "allowed.test:443")
			c.send(string(sent))
			if tt.Expect == "allow" {
				assert.Equal(t, string(sent), c.read(len(sent)))
				require.NoError(t, c.CloseWrite())
				assert.Empty(t, c.rest())
				w.finish()
				w.only(audit.EgressOpened)
				return
			}
			c.rest()
			w.finish()
			e := w.only(audit.EgressDenied)
			want := "deny " + tt.Code // none of these is answered as an error of the request
			if o, ok := other[tt.ID]; ok {
				want = o
			}
			assert.Equal(t, want, string(e.Decision)+" "+e.Reason, tt.Reason)
			assert.Zero(t, o.received(w), "the origin got bytes")
		})
	}
	assert.Equal(t, 20, ran)
}
