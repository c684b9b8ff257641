package policy_test

import (
	"testing"

	"sluicegate/policy"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// settings is what another room decodes: plain fields, pointers, lists and maps.
type settings struct {
	Pos   policy.Position
	Name  string           `yaml:"name"`
	Count int              `yaml:"count"`
	On    bool             `yaml:"on"`
	Limit *int             `yaml:"limit"`
	List  []string         `yaml:"list"`
	Zones map[string]inner `yaml:"zones"`
	Part  *inner           `yaml:"part"`
}

type inner struct {
	Servers []string `yaml:"servers"`
}

func (inner) LaterKeys() []string { return []string{"addresses"} }

func TestDecodeYAML(t *testing.T) {
	var s settings
	require.NoError(t, policy.DecodeYAML("s.yaml", []byte(`# settings
name: >-
  folded
  text
count: -3
on: true
limit: 0
list: [a, "b"]
zones:
  corp.example: {servers: [10.0.0.53]}
  "quoted key": {}
part:
  servers: []
`), &s))
	zero := 0
	assert.Equal(t, settings{
		Pos: policy.Position{Line: 2, Column: 1}, Name: "folded text", Count: -3, On: true, Limit: &zero, List: []string{"a", "b"},
		Zones: map[string]inner{"corp.example": {Servers: []string{"10.0.0.53"}}, "quoted key": {}}, Part: &inner{Servers: []string{}},
	}, s)
}

// After a fault the target is as it was.
func TestDecodeYAMLReadsAllOrNothing(t *testing.T) {
	for name, text := range map[string]string{
		"later fault": "name: new\ncount: x\n", "unknown key": "name: new\nnam: x\n", "twice": "name: new\nname: newer\n", "syntax": "name: [new\n",
		"later key": "name: new\npart: {addresses: []}\n", "empty": "", "null": "name: new\nlimit: null\n",
	} {
		s := settings{Name: "old", Count: 1}
		err := policy.DecodeYAML("s.yaml", []byte(text), &s)
		var problems policy.Problems
		require.ErrorAs(t, err, &problems, name)
		assert.Len(t, problems, 1, name)
		assert.Equal(t, settings{Name: "old", Count: 1}, s, name)
	}
	var s settings
	err := policy.DecodeYAML("s.yaml", []byte("zones:\n  corp: {addresses: [x]}\nlimt: 3\non: 1\n"), &s)
	assert.EqualError(t, err, `s.yaml:2:10: zones.corp.addresses: this key is not supported by this version (remove it; it would have no effect)
    2 |   corp: {addresses: [x]}
      |          ^
s.yaml:3:1: limt: unknown key (did you mean "limit"?)
    3 | limt: 3
      | ^
s.yaml:4:5: on: true or false is wanted, not a number
    4 | on: 1
      |     ^`)
}

// A field that can't be decoded is a fault of the program.
func TestDecodeYAMLOfAnotherType(t *testing.T) {
	var s struct {
		F float64 `yaml:"f"`
	}
	assert.Panics(t, func() { _ = policy.DecodeYAML("s.yaml", []byte("f: 1.5\n"), &s) })
	assert.NoError(t, policy.DecodeYAML("s.yaml", []byte("{}\n"), &s))
}

// Numbers have one spelling.
func TestNumbers(t *testing.T) {
	for text, good := range map[string]bool{
		"0": true, "1": true, "-1": true, "2147483647": true,
		"+1": false, "01": false, "-0": false, "1_000": false, "0x1": false, "0b1": false, "0o1": false, "1.0": false, "1e3": false,
		"\"1\"": false, "99999999999999999999": false, ".inf": false, "true": false, "~": false, "١": false,
	} {
		var s settings
		err := policy.DecodeYAML("s.yaml", []byte("count: "+text+"\n"), &s)
		assert.Equal(t, good, err == nil, "%s: %v", text, err)
	}
}
