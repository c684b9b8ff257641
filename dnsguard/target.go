package dnsguard

import (
	"sync"

	"sluicegate/policy"
)

// targetError is a chain that leads to a name it must not lead to.
type targetError struct{ reason policy.Reason }

func (e *targetError) Error() string {
	return "the chain of names leads to a name that is never an alias's target"
}

// openNetwork is a policy that allows every name that is not always local: what
// it refuses is what no chain may lead to, in whichever profile.
var openNetwork = sync.OnceValue(func() *policy.Snapshot {
	s, err := policy.Compile([]policy.File{{Name: "dnsguard", Data: []byte(
		"version: 1\nproduct: dnsguard\nsurface: local\nprofiles: {targets: {listen: {port: 1}, network: open}}\n",
	)}})
	if err != nil {
		// A constant: a test compiles it. Without it every target is refused.
		return nil
	}
	return s
})

// judgeTarget judges where an alias of the name from leads, in wire form, and
// returns the target in canonical form. The target need not be allowed by a
// rule (its addresses are judged for the name that was asked for), but it must
// not be a name with a meaning on the local network only: that turns a public
// name into the router or into localhost. Of a name that is itself local, which
// a rule opened for certain addresses, only metadata names are no target.
func judgeTarget(from, to string) (name string, err error) {
	d, perr := policy.ParseLabels(labels([]byte(to)))
	if perr != nil {
		return "", &targetError{policy.ReasonCNAMENotAllowed}
	}
	switch verdict := decideTarget(d); {
	case verdict == policy.ReasonOpenNetwork:
		return d.Name(), nil
	case verdict != policy.ReasonLocalName || !isLocalName(from):
		return "", &targetError{policy.ReasonCNAMENotAllowed}
	default:
		return d.Name(), nil
	}
}

// isLocalName tells whether the policy calls a canonical name always local.
func isLocalName(name string) bool {
	d, err := policy.ParseHostPort(name, 53)
	return err == nil && decideTarget(d) == policy.ReasonLocalName
}

func decideTarget(d policy.Destination) policy.Reason {
	return openNetwork().Decide(policy.Request{
		Profile: "dnsguard/targets", Entitled: true, Destination: d, Proto: policy.ProtoDNS,
	}).Reason
}
