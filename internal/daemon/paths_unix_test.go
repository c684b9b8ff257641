//go:build unix

package daemon

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestUserPaths(t *testing.T) {
	here, err := os.Getwd()
	require.NoError(t, err)
	for name, tc := range map[string]struct {
		env           map[string]string
		config, state string
		want          Paths // Policy and Audit follow from Config and State
		fails         bool
	}{
		"a home and nothing else": {
			env: map[string]string{"HOME": "/home/a"},
			want: Paths{
				Config: "/home/a/.config/sluicegate/sluicegate.yaml", State: "/home/a/.local/state/sluicegate",
				Control: "/home/a/.local/state/sluicegate/control.sock",
			},
		},
		"all variables": {
			env: map[string]string{"HOME": "/home/a", "XDG_CONFIG_HOME": "/c", "XDG_STATE_HOME": "/s", "XDG_RUNTIME_DIR": "/run/user/7"},
			want: Paths{
				Config: "/c/sluicegate/sluicegate.yaml", State: "/s/sluicegate", Control: "/run/user/7/sluicegate/control.sock",
			},
		},
		"relative variables are ignored": {
			env: map[string]string{"HOME": "/home/a", "XDG_CONFIG_HOME": "c", "XDG_STATE_HOME": "./s", "XDG_RUNTIME_DIR": "run"},
			want: Paths{
				Config: "/home/a/.config/sluicegate/sluicegate.yaml", State: "/home/a/.local/state/sluicegate",
				Control: "/home/a/.local/state/sluicegate/control.sock",
			},
		},
		"settings named": {
			env: map[string]string{"HOME": "/home/a", "XDG_RUNTIME_DIR": "/run/user/7"}, config: "/etc/x/own.yaml",
			want: Paths{
				Config: "/etc/x/own.yaml", State: "/home/a/.local/state/sluicegate", Control: "/run/user/7/sluicegate/control.sock",
			},
		},
		"state named: the socket moves too, so that two gates can run": {
			env: map[string]string{"HOME": "/home/a", "XDG_RUNTIME_DIR": "/run/user/7"}, state: "/srv/state",
			want: Paths{
				Config: "/home/a/.config/sluicegate/sluicegate.yaml", State: "/srv/state", Control: "/srv/state/control.sock",
			},
		},
		"relative arguments": {
			env: map[string]string{"HOME": "/home/a"}, config: "own.yaml", state: "../state",
			want: Paths{
				Config: filepath.Join(here, "own.yaml"), State: filepath.Join(here, "../state"),
				Control: filepath.Join(here, "../state/control.sock"),
			},
		},
		"no home": {fails: true},
		"no home, one argument": {
			config: "/etc/x/own.yaml", fails: true,
		},
		"no home, one variable": {
			env: map[string]string{"XDG_CONFIG_HOME": "/c"}, fails: true,
		},
		"relative home": {
			env: map[string]string{"HOME": "a"}, fails: true,
		},
		"no home, but both arguments": {
			config: "/etc/x/own.yaml", state: "/srv/state",
			want: Paths{Config: "/etc/x/own.yaml", State: "/srv/state", Control: "/srv/state/control.sock"},
		},
		"no home, but both variables": {
			env:  map[string]string{"XDG_CONFIG_HOME": "/c", "XDG_STATE_HOME": "/s"},
			want: Paths{Config: "/c/sluicegate/sluicegate.yaml", State: "/s/sluicegate", Control: "/s/sluicegate/control.sock"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, variable := range []string{"HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"} {
				t.Setenv(variable, tc.env[variable])
			}
			got, err := UserPaths(tc.config, tc.state)
			if tc.fails {
				require.ErrorContains(t, err, "set HOME")
				assert.Zero(t, got)
				return
			}
			require.NoError(t, err)
			tc.want.Policy = filepath.Join(filepath.Dir(tc.want.Config), "policy.d")
			tc.want.Audit = filepath.Join(tc.want.State, "audit.jsonl")
			assert.Equal(t, tc.want, got)
		})
	}
}
