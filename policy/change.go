package policy

import "time"

// Diff counts the rules that cur has and old does not, and the other way round.
// A rule counts once for each profile that uses it.
func Diff(old, cur *Snapshot) (added, removed int) {
	a, b := old.ruleKeys(), cur.ruleKeys()
	for k := range b {
		if !a[k] {
			added++
		}
	}
	for k := range a {
		if !b[k] {
			removed++
		}
	}
	return added, removed
}

// ruleKeys names every rule of every profile by what it says.
func (s *Snapshot) ruleKeys() map[string]bool {
	keys := map[string]bool{}
	if s == nil {
		return keys
	}
	s.global.each(func(r *Rule) { keys["global deny "+r.ID+" "+r.target()] = true })
	for name, p := range s.profiles {
		p.allow.each(func(r *Rule) { keys[name+" allow "+r.ID+" "+r.target()] = true })
		p.deny.each(func(r *Rule) { keys[name+" deny "+r.ID+" "+r.target()] = true })
	}
	return keys
}

// NextChange is the next time at which a decision of the snapshot changes by
// the passing of time alone: a rule expires or mode observe ends. It is the zero
// time if there is none after now.
func (s *Snapshot) NextChange(now time.Time) time.Time {
	if s == nil {
		return time.Time{}
	}
	var next time.Time
	at := func(t time.Time) {
		if t.After(now) && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	expiry := func(r *Rule) { at(r.expires) }
	s.global.each(expiry)
	for _, p := range s.profiles {
		p.allow.each(expiry)
		p.deny.each(expiry)
		if p.info.Mode == ModeObserve {
			at(p.info.ObserveUntil)
		}
	}
	return next
}

// expired tells whether the rule no longer counts. The zero time, which says
// that the time is not known, expires every rule that has an end.
func (r *Rule) expired(now time.Time) bool {
	return !r.expires.IsZero() && (now.IsZero() || !now.Before(r.expires))
}
