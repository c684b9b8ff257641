package daemon

import (
	"errors"
	"os"
	"path/filepath"
)

// appName is the name of the program's folders.
const appName = "sluicegate"

// Paths are the places of one user's gate.
type Paths struct {
	// Config is the settings file, Policy the policy folder.
	Config, Policy string
	// State is the folder of the program's own data, Audit the live log in it.
	State, Audit string
	// Control is the control socket.
	Control string
}

// UserPaths returns the places for the user who runs the program, by the XDG
// Base Directory Specification on every system. config and state, when not
// empty, replace the settings file and the state folder; with state, the control
// socket moves there too, so that two gates can run side by side.
func UserPaths(config, state string) (Paths, error) {
	// Under the home folder only where no variable says otherwise: a service may
	// have the variables and no home.
	home, homeErr := os.UserHomeDir()
	if homeErr == nil && !filepath.IsAbs(home) {
		homeErr = errors.New("not absolute")
	}
	under := func(variable, folder string) (string, error) {
		if base := xdg(variable); base != "" {
			return filepath.Join(base, appName), nil
		}
		if homeErr != nil {
			return "", errors.New("the home folder is not known: set HOME to an absolute path, or give --config and --state-dir")
		}
		return filepath.Join(home, folder, appName), nil
	}
	p := Paths{Config: config, State: state}
	if p.Config == "" {
		folder, err := under("XDG_CONFIG_HOME", ".config")
		if err != nil {
			return Paths{}, err
		}
		p.Config = filepath.Join(folder, "sluicegate.yaml")
	}
	if p.State == "" {
		folder, err := under("XDG_STATE_HOME", filepath.Join(".local", "state"))
		if err != nil {
			return Paths{}, err
		}
		p.State = folder
	}
	var err error
	for _, path := range []*string{&p.Config, &p.State} {
		if *path, err = filepath.Abs(*path); err != nil {
			return Paths{}, err
		}
	}
	p.Policy = filepath.Join(filepath.Dir(p.Config), "policy.d")
	p.Audit = filepath.Join(p.State, "audit.jsonl")
	run := xdg("XDG_RUNTIME_DIR")
	if state != "" || run == "" {
		p.Control = filepath.Join(p.State, "control.sock")
	} else {
		p.Control = filepath.Join(run, appName, "control.sock")
	}
	return p, nil
}

// xdg returns the variable if it is an absolute path: the specification tells
// to ignore relative ones.
func xdg(name string) string {
	if v := os.Getenv(name); filepath.IsAbs(v) {
		return v
	}
	return ""
}
