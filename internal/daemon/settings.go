package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"sluicegate/audit"
	"sluicegate/dnsguard"
	"sluicegate/policy"
	"sluicegate/proxy"
)

// Settings are the daemon's own, in the form the rooms take them.
type Settings struct {
	// PolicyDir is "" when the settings do not name one.
	PolicyDir string

	AuditFile       string
	Allowed         proxy.Allowed
	Sync            time.Duration
	AllowUnrecorded bool
	RotateSize      int64

	Upstreams []string
	Limits    proxy.Limits
	Detail    proxy.Detail
}

// settingsFile is sluicegate.yaml as it stands on disk.
type settingsFile struct {
	Version int         `yaml:"version"`
	Policy  *policyPart `yaml:"policy"`
	Audit   *auditPart  `yaml:"audit"`
	DNS     *dnsPart    `yaml:"dns"`
	Limits  *limitsPart `yaml:"limits"`
	Detail  *string     `yaml:"refusal_detail"`
}

func (settingsFile) LaterKeys() []string { return []string{"upstream_proxy", "metrics"} }

type policyPart struct {
	Dir string `yaml:"dir"`
}

func (policyPart) LaterKeys() []string { return []string{"max_age"} }

type auditPart struct {
	File      *string     `yaml:"file"`
	Allowed   *string     `yaml:"allowed"`
	Sync      *string     `yaml:"sync"`
	OnFailure *string     `yaml:"on_failure"`
	Rotate    *rotatePart `yaml:"rotate"`
}

func (auditPart) LaterKeys() []string { return []string{"retain"} }

type rotatePart struct {
	Size *string `yaml:"size"`
}

func (rotatePart) LaterKeys() []string { return []string{"age", "compress"} }

type dnsPart struct {
	Upstreams []string `yaml:"upstreams"`
}

func (dnsPart) LaterKeys() []string {
	return []string{"zones", "https_records", "cname", "ptr", "budget", "nat64"}
}

type limitsPart struct {
	Connections *int    `yaml:"connections"`
	PerProfile  *int    `yaml:"per_profile"`
	HeaderBytes *string `yaml:"header_bytes"`
	Dial        *string `yaml:"dial"`
	Idle        *string `yaml:"idle"`
	HalfClosed  *string `yaml:"half_closed"`
	Handshake   *string `yaml:"handshake"`
}

func (limitsPart) LaterKeys() []string { return []string{"denials_per_second"} }

// LoadSettings reads the settings file. A file that is not there gives the
// defaults, unless required is set (it was named on the command line). Paths of
// the file are relative to its folder. Faults are [policy.Problems].
func LoadSettings(paths Paths, required bool) (Settings, error) {
	data, err := readFile(paths.Config)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !required:
		return defaultSettings(paths), nil
	case err != nil:
		return Settings{}, fmt.Errorf("reading settings: %w", err)
	}
	return ParseSettings(paths.Config, data, paths)
}

// defaultSettings is what configs/sluicegate.yaml shows as defaults; a test
// compares the two.
func defaultSettings(paths Paths) Settings {
	return Settings{
		AuditFile: paths.Audit, Allowed: proxy.AllowedAll, Sync: 250 * time.Millisecond,
		RotateSize: 64 << 20, Upstreams: []string{dnsguard.System}, Detail: proxy.DetailReason,
		Limits: proxy.Limits{
			Connections: 8192, PerProfile: 4096, HeaderBytes: 64 << 10,
			Dial: 10 * time.Second, Idle: 10 * time.Minute, HalfClosed: 30 * time.Second, Handshake: 10 * time.Second,
		},
	}
}

// ParseSettings reads the content of a settings file called name.
func ParseSettings(name string, data []byte, paths Paths) (Settings, error) {
	var f settingsFile
	if err := policy.DecodeYAML(name, data, &f); err != nil {
		return Settings{}, err
	}
	c := newSettingsCheck(name, data)
	s := f.toInternal(c, paths)
	if len(c.problems) > 0 {
		slices.SortStableFunc(c.problems, func(a, b policy.Problem) int {
			return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
		})
		return Settings{}, c.problems
	}
	return s, nil
}

func (f *settingsFile) toInternal(c *settingsCheck, paths Paths) Settings {
	s := defaultSettings(paths)
	if f.Version != 1 {
		c.fail("version", "write version: 1", "the version is missing or not known")
	}
	base := filepath.Dir(c.file)
	if f.Policy != nil {
		if f.Policy.Dir == "" {
			c.fail("policy.dir", "name the folder, or remove the key", "the folder is missing")
		}
		s.PolicyDir = resolve(base, f.Policy.Dir)
	}
	if f.Audit != nil {
		f.Audit.toInternal(c, &s, base)
	}
	if f.DNS != nil {
		f.DNS.toInternal(c, &s)
	}
	if f.Limits != nil {
		f.Limits.toInternal(c, &s.Limits)
	}
	if f.Detail != nil {
		s.Detail = proxy.Detail(*f.Detail)
		oneOf(c, "refusal_detail", *f.Detail, "none", "reason", "rule")
	}
	return s
}

func (f *auditPart) toInternal(c *settingsCheck, s *Settings, base string) {
	if f.File != nil {
		if *f.File == "" {
			c.fail("audit.file", "name the file, or remove the key", "the file is missing")
		}
		s.AuditFile = resolve(base, *f.File)
	}
	if f.Allowed != nil {
		s.Allowed = proxy.Allowed(*f.Allowed)
		oneOf(c, "audit.allowed", *f.Allowed, "off", "closed", "all")
	}
	if f.Sync != nil {
		if *f.Sync == "always" {
			s.Sync = audit.SyncAlways
		} else {
			s.Sync = duration(c, "audit.sync", *f.Sync, time.Millisecond, time.Minute)
		}
	}
	if f.OnFailure != nil {
		s.AllowUnrecorded = *f.OnFailure == "allow"
		oneOf(c, "audit.on_failure", *f.OnFailure, "deny", "allow")
	}
	if f.Rotate != nil && f.Rotate.Size != nil {
		s.RotateSize = size(c, "audit.rotate.size", *f.Rotate.Size, 64<<10, 1<<40)
	}
}

func (f *dnsPart) toInternal(c *settingsCheck, s *Settings) {
	if f.Upstreams == nil {
		return
	}
	if len(f.Upstreams) == 0 {
		c.fail("dns.upstreams", "write [system], or remove the key", "the list is empty")
	}
	if _, err := dnsguard.New(dnsguard.Config{Upstreams: f.Upstreams}); err != nil {
		c.fail("dns.upstreams", "", "%s", err)
	}
	s.Upstreams = f.Upstreams
}

func (f *limitsPart) toInternal(c *settingsCheck, l *proxy.Limits) {
	count := func(path string, v *int, to *int) {
		if v == nil {
			return
		}
		if *v < 1 || *v > 1<<20 {
			c.fail(path, "1 to 1048576", "the number is out of range")
		}
		*to = *v
	}
	wait := func(path string, v *string, to *time.Duration) {
		if v != nil {
			*to = duration(c, path, *v, 10*time.Millisecond, 24*time.Hour)
		}
	}
	count("limits.connections", f.Connections, &l.Connections)
	count("limits.per_profile", f.PerProfile, &l.PerProfile)
	if f.HeaderBytes != nil {
		l.HeaderBytes = int(size(c, "limits.header_bytes", *f.HeaderBytes, 1<<10, 1<<20))
	}
	wait("limits.dial", f.Dial, &l.Dial)
	wait("limits.idle", f.Idle, &l.Idle)
	wait("limits.half_closed", f.HalfClosed, &l.HalfClosed)
	wait("limits.handshake", f.Handshake, &l.Handshake)
}

func oneOf(c *settingsCheck, path, got string, allowed ...string) {
	for _, a := range allowed {
		if got == a {
			return
		}
	}
	c.fail(path, strings.Join(allowed, ", "), "%q is not one of the values", got)
}

func duration(c *settingsCheck, path, s string, low, high time.Duration) time.Duration {
	d, err := time.ParseDuration(s)
	if err != nil {
		c.fail(path, "write it as 250ms, 10s or 5m", "%q is not a duration", s)
		return low
	}
	if d < low || d > high {
		c.fail(path, fmt.Sprintf("%s to %s", low, high), "the duration is out of range")
		return low
	}
	return d
}

// size reads a number of bytes: 512, 64KiB, 10MiB, 1GiB.
func size(c *settingsCheck, path, s string, low, high int64) int64 {
	unit := int64(1)
	number := s
	for suffix, u := range map[string]int64{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30} {
		if n, ok := strings.CutSuffix(s, suffix); ok {
			number, unit = n, u
		}
	}
	n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
	if err != nil || n < 0 {
		c.fail(path, "write it as 64KiB, 10MiB or 1GiB", "%q is not a size", s)
		return low
	}
	// Divided, because the product could overflow into the range again.
	if n > high/unit || n*unit < low {
		c.fail(path, fmt.Sprintf("%d to %d bytes", low, high), "the size is out of range")
		return low
	}
	return n * unit
}

func resolve(base, path string) string {
	if filepath.IsAbs(path) || path == "" {
		return path
	}
	return filepath.Join(base, path)
}

// readFile reads a file that must be regular and not larger than a policy file
// may be. A named pipe or device must not hang the daemon.
func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && isLink(path):
		return nil, brokenLink(path)
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a regular file", path)
	case info.Size() > policy.MaxFileSize:
		return nil, fmt.Errorf("%s is larger than 1 MiB", path)
	}
	return os.ReadFile(path)
}

// isLink tells whether path itself is a symbolic link.
func isLink(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode()&fs.ModeSymlink != 0
}

// brokenLink is the fault of a link that leads nowhere. It must not pass for a
// file that does not exist: that would mean the defaults instead of what
// somebody has written and linked.
func brokenLink(path string) error {
	return fmt.Errorf("%s is a symbolic link to something that does not exist: mend or remove the link", path)
}
