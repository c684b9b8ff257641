package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"sluicegate/configs"
	"sluicegate/policy"
)

// SourceEmbedded is the policy source when no policy folder exists.
const SourceEmbedded = "embedded"

// Policy is a loaded policy and where it came from.
type Policy struct {
	Snapshot *policy.Snapshot
	// Source is SourceEmbedded or the folder.
	Source string
	// Files are what it was compiled from, the shipped groups included.
	Files []policy.File
}

// LoadPolicy compiles the policy folder together with the shipped host groups.
// A folder is taken as it is: an empty one denies everything. Only where there
// is no folder, and the settings name none, the embedded products are used.
// Faults of the files are [policy.Problems].
func LoadPolicy(paths Paths, s Settings) (Policy, error) {
	dir := policyDir(paths, s)
	// Looked at before it is read: a file that is missing *in* the folder must
	// not pass for a missing folder, or a broken link would bring the embedded
	// policy in place of the own one.
	_, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist) && isLink(dir):
		err = brokenLink(dir)
	case errors.Is(err, fs.ErrNotExist) && s.PolicyDir == "":
		return loadEmbedded()
	}
	var files []policy.File
	if err == nil {
		files, err = readFolder(dir)
	}
	if err != nil {
		return Policy{}, fmt.Errorf("reading policy: %w", err)
	}
	groups, err := embedded("groups")
	if err != nil {
		return Policy{}, err
	}
	return compile(append(groups, files...), dir)
}

// policyDir is the folder that is read, whether it exists or not.
func policyDir(paths Paths, s Settings) string {
	if s.PolicyDir != "" {
		return s.PolicyDir
	}
	return paths.Policy
}

// embedded returns the shipped files of one folder.
func embedded(folder string) ([]policy.File, error) {
	entries, err := fs.ReadDir(configs.FS, folder)
	if err != nil {
		return nil, err
	}
	var out []policy.File
	for _, e := range entries {
		name := path.Join(folder, e.Name())
		data, err := fs.ReadFile(configs.FS, name)
		if err != nil {
			return nil, err
		}
		out = append(out, policy.File{Name: "embedded/" + name, Data: data, Shipped: folder == "groups"})
	}
	return out, nil
}

// readFolder reads the *.yaml files of the policy folder in the order of their
// names. Other files and hidden ones are left alone: editors keep copies there.
// A file that vanishes between listing and reading is a fault: the next load
// sees the folder at rest.
func readFolder(dir string) ([]policy.File, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var out []policy.File
	for _, e := range entries {
		name := e.Name()
		if strings.HasPrefix(name, ".") || !isYAML(name) {
			continue
		}
		full := filepath.Join(dir, name)
		data, err := readFile(full)
		if err != nil {
			return nil, err
		}
		out = append(out, policy.File{Name: full, Data: data})
	}
	slices.SortFunc(out, func(a, b policy.File) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

func isYAML(name string) bool {
	switch filepath.Ext(name) {
	case ".yaml", ".yml", ".json":
		return true
	default:
		return false
	}
}

// ShippedProfile is a profile of the embedded policy.
type ShippedProfile struct {
	Product string `json:"product"`
	Profile string `json:"profile"`
	Surface string `json:"surface"`
	Port    uint16 `json:"port"`
	Allow   int    `json:"allow_rules"`
	Deny    int    `json:"deny_rules"`
}

// Shipped lists the profiles of the embedded policy.
func Shipped() ([]ShippedProfile, error) {
	p, err := loadEmbedded()
	if err != nil {
		return nil, err
	}
	var out []ShippedProfile
	for _, i := range p.Snapshot.Profiles() {
		out = append(out, ShippedProfile{i.Product, i.Name, i.Surface, i.Port, i.Allow, i.Deny})
	}
	return out, nil
}

func loadEmbedded() (Policy, error) {
	groups, err := embedded("groups")
	if err != nil {
		return Policy{}, err
	}
	products, err := embedded("products")
	if err != nil {
		return Policy{}, err
	}
	return compile(append(groups, products...), SourceEmbedded)
}

func compile(files []policy.File, source string) (Policy, error) {
	snapshot, err := policy.Compile(files)
	if err != nil {
		return Policy{}, err
	}
	return Policy{Snapshot: snapshot, Source: source, Files: files}, nil
}
