package policy

// The types of this file are the policy files as they stand on disk; compile.go
// turns them into a Snapshot. One file holds a product, a host group or the
// global section.

type policyFile struct {
	Pos     Position
	Version located[int] `yaml:"version"`

	Product  located[string]        `yaml:"product"`
	Surface  located[string]        `yaml:"surface"`
	Profiles map[string]profileFile `yaml:"profiles"`

	Group    located[string]   `yaml:"group"`
	About    located[string]   `yaml:"about"`
	Source   located[string]   `yaml:"source"`
	Reviewed located[string]   `yaml:"reviewed"`
	Hosts    []located[string] `yaml:"hosts"`

	Global *globalFile `yaml:"global"`
}

func (policyFile) LaterKeys() []string { return []string{"hosts_file"} }

type globalFile struct {
	Pos            Position
	Deny           []denyFile     `yaml:"deny"`
	ObserveAllowed *located[bool] `yaml:"observe_allowed"`
}

func (globalFile) LaterKeys() []string { return []string{"exceptions"} }

type profileFile struct {
	Pos          Position
	Listen       *listenFile       `yaml:"listen"`
	Mode         located[string]   `yaml:"mode"`
	ObserveUntil located[string]   `yaml:"observe_until"`
	Network      located[string]   `yaml:"network"`
	Use          []located[string] `yaml:"use"`
	Allow        []allowFile       `yaml:"allow"`
	Deny         []denyFile        `yaml:"deny"`
}

func (profileFile) LaterKeys() []string { return []string{"users", "groups"} }

type listenFile struct {
	Pos      Position
	Port     located[int]    `yaml:"port"`
	DNS      *located[int]   `yaml:"dns"`
	Unix     located[string] `yaml:"unix"`
	UnixMode located[string] `yaml:"unix_mode"`
}

// targetFile is what allow and deny rules share.
type targetFile struct {
	host, ip, cidr located[string]
	ports          []located[int]
	id, why        located[string]
	expires        located[string]
	pos            Position
}

type allowFile struct {
	Pos        Position
	Host       located[string]   `yaml:"host"`
	IP         located[string]   `yaml:"ip"`
	CIDR       located[string]   `yaml:"cidr"`
	Ports      []located[int]    `yaml:"ports"`
	ResolvesTo []located[string] `yaml:"resolves_to"`
	Wide       located[bool]     `yaml:"wide"`
	TLS        located[string]   `yaml:"tls"`
	ECH        located[string]   `yaml:"ech"`
	Expires    located[string]   `yaml:"expires"`
	ID         located[string]   `yaml:"id"`
	Why        located[string]   `yaml:"why"`
}

func (allowFile) LaterKeys() []string {
	return []string{"methods", "paths", "inspect", "types", "for"}
}

func (allowFile) example(text string) string { return "{host: " + text + "}" }

func (f allowFile) target() targetFile {
	return targetFile{f.Host, f.IP, f.CIDR, f.Ports, f.ID, f.Why, f.Expires, f.Pos}
}

type denyFile struct {
	Pos     Position
	Host    located[string]   `yaml:"host"`
	IP      located[string]   `yaml:"ip"`
	CIDR    located[string]   `yaml:"cidr"`
	Ports   []located[int]    `yaml:"ports"`
	Except  []located[string] `yaml:"except"`
	Expires located[string]   `yaml:"expires"`
	ID      located[string]   `yaml:"id"`
	Why     located[string]   `yaml:"why"`
}

func (denyFile) LaterKeys() []string { return []string{"methods", "paths", "for"} }

func (denyFile) example(text string) string { return "{host: " + text + "}" }

func (f denyFile) target() targetFile {
	return targetFile{f.Host, f.IP, f.CIDR, f.Ports, f.ID, f.Why, f.Expires, f.Pos}
}
