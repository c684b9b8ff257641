package configs_test

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/publicsuffix"

	"sluicegate/configs"
)

// These tests hold the shipped lists to what a list promises: names of one form,
// no shared content, no way from commands to a product's own hosts. That the daemon
// accepts the files is tested where they are read.

func TestEveryFileIsEmbedded(t *testing.T) {
	onDisk, embedded := yamlFiles(t, os.DirFS(".")), yamlFiles(t, configs.FS)
	require.Contains(t, onDisk, "sluicegate.yaml")
	assert.Equal(t, onDisk, embedded)
}

func yamlFiles(t *testing.T, fsys fs.FS) []string {
	t.Helper()
	var names []string
	require.NoError(t, fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && path.Ext(name) == ".yaml" {
			names = append(names, name)
		}
		return err
	}))
	return names
}

// group and product are the parts of the files that the tests look at.
type group struct {
	Version  int
	Group    string
	About    string
	Source   string
	Reviewed string
	Hosts    []string
}

type product struct {
	Version  int
	Product  string
	Surface  string
	Profiles map[string]struct {
		Listen struct{ Port int }
		Mode   string
		Use    []string
	}
}

func read[T any](t *testing.T, dir string) map[string]T {
	t.Helper()
	names, err := fs.Glob(configs.FS, dir+"/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, names, dir)
	files := map[string]T{}
	for _, name := range names {
		content, err := fs.ReadFile(configs.FS, name)
		require.NoError(t, err)
		var file T
		require.NoError(t, yaml.Unmarshal(content, &file), name)
		files[strings.TrimSuffix(path.Base(name), ".yaml")] = file
	}
	return files
}

func TestGroupsAreListsOneCanTrust(t *testing.T) {
	for name, g := range read[group](t, "groups") {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, 1, g.Version)
			assert.Equal(t, name, g.Group, "the group is named as its file")
			assert.NotEmpty(t, g.About)
			assert.NotEmpty(t, g.Source)
			_, err := time.Parse(time.DateOnly, g.Reviewed)
			assert.NoError(t, err)
			assert.NotEmpty(t, g.Hosts)
			assert.Empty(t, checkHosts(g.Hosts))
		})
	}
}

func TestProductsUseGroupsThatExist(t *testing.T) {
	groups := read[group](t, "groups")
	ports := map[int]string{}
	for name, p := range read[product](t, "products") {
		assert.Equal(t, 1, p.Version, name)
		assert.Equal(t, name, p.Product, "the product is named as its file")
		require.NotEmpty(t, p.Profiles, name)
		for profile, content := range p.Profiles {
			full := name + "/" + profile
			assert.Equal(t, "enforce", content.Mode, full)
			assert.Empty(t, ports[content.Listen.Port], "%s has the port of another profile", full)
			ports[content.Listen.Port] = full
			for _, used := range content.Use {
				assert.Contains(t, groups, used, full)
			}
		}
		commands, ok := p.Profiles["commands"]
		if !ok {
			continue
		}
		for _, used := range commands.Use {
			assert.Falsef(t, strings.HasSuffix(used, "-core"),
				"%s: commands use %s; a product's own hosts are a way out for data and no command needs them", name, used)
		}
	}
}

// sharedContent are domains where anybody can put content under a name of the
// domain: allowing one allows everybody's. A group holds none of them, and no
// wildcard that reaches one.
var sharedContent = []string{
	"gist.github.com", "gist.githubusercontent.com", "github.io", "frame.claudeusercontent.com",
	"storage.googleapis.com", "amazonaws.com", "cloudfront.net", "core.windows.net", "r2.dev",
	"pages.dev", "workers.dev", "vercel.app", "netlify.app", "web.app", "firebaseapp.com",
	"pastebin.com", "webhook.site", "ngrok.io", "ngrok.app", "ngrok-free.app", "trycloudflare.com",
	"datadoghq.com", "browser-intake-us5-datadoghq.com",
}

var hostPattern = regexp.MustCompile(`^(\*\.|\*\*\.)?([a-z0-9]([a-z0-9-]*[a-z0-9])?\.)+[a-z][a-z0-9-]*$`)

// checkHosts says what is wrong with the hosts of a group.
func checkHosts(hosts []string) []string {
	var problems []string
	for i, pattern := range hosts {
		if !hostPattern.MatchString(pattern) {
			problems = append(problems, pattern+" is not one of example.com, *.example.com, **.example.com")
			continue
		}
		domain := strings.TrimLeft(pattern, "*.")
		if suffix, _ := publicsuffix.PublicSuffix(domain); domain != pattern && suffix == domain {
			problems = append(problems, pattern+" is a wildcard over a public suffix")
		}
		for _, shared := range sharedContent {
			if domain == shared || strings.HasSuffix(domain, "."+shared) ||
				domain != pattern && strings.HasSuffix(shared, "."+domain) {
				problems = append(problems, fmt.Sprintf("%s reaches %s, where anybody can put content", pattern, shared))
			}
		}
		for j, other := range hosts {
			if i != j && covers(other, pattern) && (i > j || other != pattern) {
				problems = append(problems, pattern+" is already in "+other)
			}
		}
	}
	return problems
}

// covers tells whether wide matches every name that narrow matches.
func covers(wide, narrow string) bool {
	apex, both := strings.CutPrefix(wide, "**.")
	below, wild := strings.CutPrefix(wide, "*.")
	domain := strings.TrimLeft(narrow, "*.")
	switch {
	case wide == narrow:
		return true
	case both:
		return domain == apex || strings.HasSuffix(domain, "."+apex)
	case wild:
		return strings.HasSuffix(domain, "."+below)
	default:
		return false
	}
}

func TestCheckHosts(t *testing.T) {
	tests := map[string]struct {
		hosts []string
		want  []string
	}{
		"the three forms":    {[]string{"a.example.com", "*.example.org", "**.example.net"}, nil},
		"neighbours":         {[]string{"example.com", "*.example.com", "notexample.com"}, nil},
		"names that end so":  {[]string{"mypastebin.com", "**.notgithub.io"}, nil},
		"inner wildcard":     {[]string{"a.*.example.com"}, []string{"a.*.example.com is not"}},
		"bare wildcard":      {[]string{"*"}, []string{"* is not"}},
		"three stars":        {[]string{"***.example.com"}, []string{"is not"}},
		"capitals":           {[]string{"Example.com"}, []string{"is not"}},
		"port":               {[]string{"example.com:443"}, []string{"is not"}},
		"URL":                {[]string{"https://example.com"}, []string{"is not"}},
		"trailing dot":       {[]string{"example.com."}, []string{"is not"}},
		"address":            {[]string{"192.0.2.1"}, []string{"is not"}},
		"single label":       {[]string{"localhost"}, []string{"is not"}},
		"top-level wildcard": {[]string{"**.com"}, []string{"**.com is not"}},
		"public suffix":      {[]string{"*.co.uk"}, []string{"*.co.uk is a wildcard over a public suffix"}},
		"private suffix":     {[]string{"*.githubusercontent.com"}, []string{"public suffix", "reaches gist.githubusercontent.com"}},
		"bucket":             {[]string{"my.storage.googleapis.com"}, []string{"reaches storage.googleapis.com"}},
		"wildcard over one":  {[]string{"**.github.com"}, []string{"reaches gist.github.com"}},
		"twice":              {[]string{"example.com", "example.com"}, []string{"example.com is already in example.com"}},
		"covered":            {[]string{"*.a.example.com", "**.example.com", "example.com"}, []string{"*.a.example.com is already", "example.com is already"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := checkHosts(tt.hosts)
			require.Len(t, got, len(tt.want), "%v", got)
			for i, want := range tt.want {
				assert.Contains(t, got[i], want)
			}
		})
	}
}
