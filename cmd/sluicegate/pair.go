package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"strings"
	"text/tabwriter"

	"sluicegate/internal/daemon"
	"sluicegate/internal/pair"

	"github.com/spf13/cobra"
)

// pairOptions are the flags of pair.
type pairOptions struct {
	print, write, remove, check bool
	root, project               string
	asJSON                      bool
}

// pairable are the products that pair knows.
var pairable = []cobra.Completion{"claude-code"}

func (a *app) pairCommand() *cobra.Command {
	var o pairOptions
	cmd := &cobra.Command{
		Use:   "pair PRODUCT",
		Short: "Make an agent product use the gate, and check that it must",
		Long: `Make Claude Code use the gate, by a file of its managed settings, which users and
agents can not override, and check that nothing weakens that.

  --print   print the settings
  --write   put them into the folder of managed settings (as root or administrator)
  --remove  delete that file
  --check   read every source of settings in the product's order of precedence,
            and the proxy variables of this shell, and say what weakens the
            boundary and what was never behind it

The ports are those of the policy that would be loaded now: claude-code/commands
for what the sandbox runs, claude-code/process for the product itself. Run as
another user the command reads that user's policy; --config names the own one.

Exit code of --check 0: the boundary holds, 1: something weakens it.`,
		Example: `  sluicegate pair claude-code --print
  sluicegate pair claude-code --write
  sluicegate pair claude-code --check --project ~/src/app`,
		ValidArgs: pairable,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || args[0] != pairable[0] {
				return errors.New("name the product: claude-code")
			}
			return nil
		},
		RunE: func(*cobra.Command, []string) error { return a.pair(o) },
	}
	flags := cmd.Flags()
	flags.BoolVar(&o.print, "print", false, "print the managed settings")
	flags.BoolVar(&o.write, "write", false, "write them where the product reads them")
	flags.BoolVar(&o.remove, "remove", false, "delete what --write wrote")
	flags.BoolVar(&o.check, "check", false, "say what weakens the boundary")
	flags.StringVar(&o.root, "root", "", "folder to take as the root of the file system, for packaging and tests")
	flags.StringVar(&o.project, "project", ".", "folder of the project whose settings --check reads")
	flags.BoolVar(&o.asJSON, "json", false, "print JSON (with --check)")
	return cmd
}

func (a *app) pair(o pairOptions) error {
	chosen := 0
	for _, set := range []bool{o.print, o.write, o.remove, o.check} {
		if set {
			chosen++
		}
	}
	switch {
	case chosen != 1:
		return usageError("pair needs exactly one of --print, --write, --remove and --check")
	case o.asJSON && !o.check:
		return usageError("--json goes with --check: what --print prints is JSON already")
	}
	places, err := o.places()
	if err != nil {
		return err
	}
	if o.remove {
		return a.pairRemove(places)
	}
	ports, source, err := a.claudeCodePorts()
	if err != nil {
		return err
	}
	if o.check {
		return a.pairCheck(o, places, ports)
	}
	content, err := pair.Settings(ports)
	if err != nil {
		return err
	}
	if o.print {
		_, err = a.out.Write(content)
		return err
	}
	changed, err := pair.Write(places, content)
	if err != nil {
		return pairError("writing", places, err)
	}
	if !changed {
		return a.say("unchanged: %s already has these settings (%s)", places.Own, source)
	}
	return a.say("wrote %s: commands go to port %d, the product to port %d (policy %s); running sessions read it on reload, proxy variables when they are started again",
		places.Own, ports.Commands, ports.Process, source)
}

func (a *app) pairRemove(places pair.Places) error {
	removed, err := pair.Remove(places)
	switch {
	case err != nil:
		return pairError("removing", places, err)
	case !removed:
		return a.say("nothing to remove: there is no %s", places.Own)
	default:
		return a.say("removed %s: sessions no longer have to use the gate", places.Own)
	}
}

// say prints a line.
func (a *app) say(format string, args ...any) error {
	_, err := fmt.Fprintln(a.out, escapeText(fmt.Sprintf(format, args...)))
	return err
}

// pairError is one line that says what to do.
func pairError(doing string, places pair.Places, err error) error {
	var refused *pair.Refused
	switch {
	case errors.As(err, &refused):
		return err
	case errors.Is(err, fs.ErrPermission):
		who := "root (with sudo)"
		if runtime.GOOS == "windows" {
			who = "administrator"
		}
		return fmt.Errorf("%s %s: permission denied: run it as %s, or place the output of --print yourself", doing, places.Own, who)
	default:
		return fmt.Errorf("%s %s: %w", doing, places.Own, err)
	}
}

// places finds the paths of the product on this system.
func (o *pairOptions) places() (pair.Places, error) {
	root := ""
	if o.root != "" {
		var err error
		if root, err = filepath.Abs(o.root); err != nil {
			return pair.Places{}, fmt.Errorf("--root: %w", err)
		}
		if info, err := os.Stat(root); err != nil || !info.IsDir() {
			return pair.Places{}, usageError(fmt.Sprintf("--root %q is not a folder: make it first", o.root))
		}
		o.root = root
	}
	// A relative folder is where the person stands, not below another root.
	relative := !filepath.IsAbs(o.project)
	project, err := filepath.Abs(o.project)
	if err != nil {
		return pair.Places{}, fmt.Errorf("--project: %w", err)
	}
	home, _ := os.UserHomeDir() // without one there are no user's settings
	configDir := os.Getenv("CLAUDE_CONFIG_DIR")
	if configDir != "" {
		if configDir, err = filepath.Abs(configDir); err != nil {
			return pair.Places{}, fmt.Errorf("CLAUDE_CONFIG_DIR: %w", err)
		}
	}
	name := ""
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	places := pair.Locate(runtime.GOOS, root, home, configDir, project, name)
	if relative {
		here := pair.Locate(runtime.GOOS, "", "", "", project, "")
		places.Project, places.Local, places.ProjectMCP = here.Project, here.Local, here.ProjectMCP
	}
	return places, nil
}

// claudeCodePorts are the ports of the policy that would be loaded now.
func (a *app) claudeCodePorts() (pair.Ports, string, error) {
	var ports pair.Ports
	paths, settings, err := a.load()
	if err != nil {
		return ports, "", err
	}
	p, err := daemon.LoadPolicy(paths, settings)
	if err != nil {
		return ports, "", err
	}
	for name, to := range map[string]*uint16{pair.CommandsProfile: &ports.Commands, pair.ProcessProfile: &ports.Process} {
		profile, ok := p.Snapshot.Profile(name)
		switch {
		case !ok:
			return ports, "", fmt.Errorf("the policy (%s) has no profile %s: add it, with a fixed listen.port, as the shipped policy has it (sluicegate products)", p.Source, name)
		case profile.Port == 0:
			return ports, "", fmt.Errorf("the profile %s of the policy (%s) has no fixed port: give it a listen.port other than 0, the only kind that Claude Code's settings can name", name, p.Source)
		}
		*to = profile.Port
	}
	return ports, p.Source, nil
}

func (a *app) pairCheck(o pairOptions, places pair.Places, ports pair.Ports) error {
	r := pair.Check(pair.Question{
		Places: places, Files: pair.Disk{}, Device: pair.Device(places, o.root), Environ: os.Environ(), Ports: ports,
	})
	show := printReport
	if o.asJSON {
		show = func(a *app, r *pair.Report) error { return printJSON(a.out, r) }
	}
	if err := show(a, r); err != nil {
		return err
	}
	if !r.Holds {
		return &exitError{code: exitFailed}
	}
	return nil
}

var levelWords = map[pair.Level]string{
	pair.Weakens: "WEAKENS", pair.Note: "NOTE", pair.NotCovered: "NOT COVERED", pair.NotChecked: "NOT CHECKED",
}

// printReport prints one block for each finding, and the sources in their order.
func printReport(a *app, r *pair.Report) error {
	var b strings.Builder
	head := "HOLDS    the managed settings lead Claude Code through the gate"
	if n := r.Count(pair.Weakens); n > 0 {
		head = fmt.Sprintf("WEAK     %d finding(s) weaken the boundary", n)
	}
	_, _ = fmt.Fprintf(&b, "%s; commands belong on port %d, the product on port %d\n", head, r.Ports.Commands, r.Ports.Process)
	for _, f := range r.Findings {
		_, _ = fmt.Fprintf(&b, "\n%s  %s\n", levelWords[f.Level], escapeText(cmp.Or(f.Key, f.Source)+" "+f.Found))
		_, _ = fmt.Fprintf(&b, "source   %s\n", escapeText(findingPlace(f)))
		_, _ = fmt.Fprintf(&b, "why      %s\n", escapeText(f.Why))
		_, _ = fmt.Fprintf(&b, "mend     %s\n", escapeText(f.Mend))
	}
	_, _ = fmt.Fprintln(&b)
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "SOURCE, STRONGEST FIRST\tSTATE\tPLACE")
	for _, s := range r.Sources {
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\n", s.Name, s.State, orDash(escapeText(s.Place)))
	}
	_ = t.Flush()
	_, err := a.out.Write([]byte(b.String()))
	return err
}

// findingPlace is file:line:column and the kind of source.
func findingPlace(f pair.Finding) string {
	if f.File == "" {
		return f.Source
	}
	at := f.File
	if f.Line > 0 {
		at = fmt.Sprintf("%s:%d:%d", at, f.Line, f.Column)
	}
	return at + " (" + f.Source + ")"
}
