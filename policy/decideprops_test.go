package policy_test

import (
	"net/netip"
	"slices"
	"testing"

	"sluicegate/policy"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// decide compiles and asks.
func (m model) decide(t require.TestingT, r policy.Request) policy.Decision {
	s, err := policy.Compile(m.files())
	require.NoError(t, err)
	return s.Decide(r)
}

// Every decision says why, in a way that fits what it is.
func TestDecisionsAreWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, err := policy.Compile(genModel().Draw(t, "policy").files())
		require.NoError(t, err)
		for range 20 {
			r := genRequest().Draw(t, "request")
			switch rapid.IntRange(0, 9).Draw(t, "spoil") {
			case 0:
				r.Profile = ""
			case 1:
				r.Destination = policy.Destination{}
			}
			d := s.Decide(r)
			require.NotEmpty(t, d.Reason)
			require.NotEmpty(t, d.Layer)
			require.Equal(t, d.Reason, d.Reason.Info().Reason, "no row for %s", d.Reason)
			class := d.Reason.Info().Class
			require.Equal(t, d.Allowed(), class == policy.ClassAllow, d.Reason)
			require.Equal(t, d.Observed(), d.Reason == policy.ReasonObserve)
			if d.Observed() {
				require.Equal(t, policy.ClassDeny, d.Would.Info().Class)
			}
			if !d.Allowed() && d.Reason != policy.ReasonMalformed {
				require.Equal(t, policy.ClassDeny, class)
			}
			require.Equal(t, d.Addr.IsValid(), d.Range != "")
			require.Equal(t, s.Digest(), d.Digest)
		}
	})
}

// One more deny rule, one allow rule less, or a stricter profile never opens
// anything.
func TestStricterNeverAllowsMore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := genModel().Draw(t, "policy")
		stricter := m
		switch rapid.IntRange(0, 4).Draw(t, "change") {
		case 0:
			extra := genRule("deny").Draw(t, "deny")
			extra.id = "extra"
			stricter.deny = append(slices.Clone(m.deny), extra)
		case 1:
			extra := genRule("deny").Draw(t, "global deny")
			extra.id = "extra"
			stricter.global = append(slices.Clone(m.global), extra)
		case 2:
			if len(m.allow) > 0 {
				i := rapid.IntRange(0, len(m.allow)-1).Draw(t, "drop")
				stricter.allow = slices.Delete(slices.Clone(m.allow), i, i+1)
			}
		case 3:
			stricter.observe = false
		case 4:
			stricter.network = policy.NetworkAllowlist
			if m.network == policy.NetworkBlocked {
				stricter.network = policy.NetworkBlocked
			}
		}
		after, err := policy.Compile(stricter.files())
		if err != nil {
			t.Skip("the added rule is there already")
		}
		before, err := policy.Compile(m.files())
		require.NoError(t, err)
		for range 20 {
			r := genRequest().Draw(t, "request")
			was, is := before.Decide(r), after.Decide(r)
			if is.Allowed() {
				require.True(t, was.Allowed(), "%s, before %s", verdict(is), verdict(was))
			}
		}
	})
}

// Knowing more never allows more: what was refused by name stays refused with
// addresses, and one more address opens nothing.
func TestAddressesNeverAllowMore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, err := policy.Compile(genModel().Draw(t, "policy").files())
		require.NoError(t, err)
		for range 20 {
			r := genRequest().Draw(t, "request")
			addrs := r.Addrs
			for n := range addrs {
				r.Addrs = addrs[:n]
				fewer := s.Decide(r)
				r.Addrs = addrs[:n+1]
				more := s.Decide(r)
				if more.Allowed() {
					require.True(t, fewer.Allowed(), "%d addresses: %s, %d: %s", n, verdict(fewer), n+1, verdict(more))
				}
			}
			// An answer is judged as a whole, in whatever order it came.
			want := s.Decide(r)
			r.Addrs = slices.Clone(addrs)
			slices.Reverse(r.Addrs)
			got := s.Decide(r)
			require.Equal(t, want.Allowed(), got.Allowed())
			// The mapped form of an address is the address.
			for i, a := range r.Addrs {
				if a.Is4() {
					r.Addrs[i] = netip.AddrFrom16(a.As16())
				}
			}
			require.Equal(t, verdict(got), verdict(s.Decide(r)))
		}
	})
}

// The order of rules and files has no meaning for the verdict.
func TestOrderHasNoMeaning(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := genModel().Draw(t, "policy")
		turned := m
		turned.allow, turned.deny, turned.global = slices.Clone(m.allow), slices.Clone(m.deny), slices.Clone(m.global)
		slices.Reverse(turned.allow)
		slices.Reverse(turned.deny)
		slices.Reverse(turned.global)
		a, err := policy.Compile(m.files())
		require.NoError(t, err)
		b, err := policy.Compile(turned.files())
		require.NoError(t, err)
		in := m.files()
		slices.Reverse(in)
		c, err := policy.Compile(in)
		require.NoError(t, err)
		require.Equal(t, a.Digest(), c.Digest())
		for range 20 {
			r := genRequest().Draw(t, "request")
			want := a.Decide(r)
			require.Equal(t, want.Allowed(), allowed(b.Decide(r)))
			require.Equal(t, want, c.Decide(r))
		}
	})
}

// Guard denials have no way around: not by mode, not by network, not by rules.
func TestGuardIsNeverRelaxed(t *testing.T) {
	never := []string{"127.0.0.2", "169.254.169.254", "192.168.169.254", "fe80::1", "0.0.0.0", "fd12::a9fe:a9fe", "64:ff9b::808:808"}
	rapid.Check(t, func(t *rapid.T) {
		m := genModel().Draw(t, "policy")
		m.network, m.observe = policy.NetworkOpen, true
		r := genRequest().Draw(t, "request")
		r.Addrs = append(r.Addrs, netip.MustParseAddr(rapid.SampledFrom(never).Draw(t, "never")))
		d := m.decide(t, r)
		require.False(t, d.Allowed(), verdict(d))
	})
}
