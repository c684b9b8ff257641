package policy

import "strings"

// Walk looks a request's name up among the hosts of its profile's allow rules,
// by cutting labels off the front, and does nothing else: what a decision over
// the same map and the same queries can't be faster than.
//
//go:noinline
func (s *Snapshot) Walk(r Request) bool {
	hosts := s.profiles[r.Profile].allow.hosts
	for name := r.Destination.name; ; {
		if h := hosts[name]; h.first.rule != nil {
			return true
		}
		i := strings.IndexByte(name, '.')
		if i < 0 {
			return false
		}
		name = name[i+1:]
	}
}
