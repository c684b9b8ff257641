package identity

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestOwnUserEntitled(t *testing.T) {
	t.Parallel()
	own := OwnUser{uid: 1000, set: true}
	root := OwnUser{uid: 0, set: true}
	tests := map[string]struct {
		own                    OwnUser
		peer                   Peer
		supported, unsupported bool // the verdict on systems of either kind
	}{
		"own uid":                   {own, Peer{UID: 1000, Known: true, How: HowSockDiag}, true, true},
		"neighbour uid":             {own, Peer{UID: 1001, Known: true, How: HowSockDiag}, false, false},
		"root is not special":       {own, Peer{UID: 0, Known: true, How: HowPeerCred}, false, false},
		"root serves root":          {root, Peer{UID: 0, Known: true, How: HowPeerCred}, true, true},
		"zero peer":                 {own, Peer{}, false, false},
		"zero peer, own uid 0":      {root, Peer{}, false, false},
		"own uid but not known":     {own, Peer{UID: 1000, How: HowOrphaned}, false, false},
		"orphaned, own uid 0":       {root, Peer{How: HowOrphaned}, false, false},
		"no socket":                 {own, Peer{How: HowNoSocket}, false, false},
		"unsupported":               {own, Peer{How: HowUnsupported}, false, true},
		"zero rule":                 {OwnUser{}, Peer{UID: 0, Known: true, How: HowPeerCred}, false, false},
		"zero rule and peer":        {OwnUser{}, Peer{}, false, false},
		"zero rule and unsupported": {OwnUser{}, Peer{How: HowUnsupported}, false, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.supported, tt.own.entitled(tt.peer, true), "where uids can be read")
			assert.Equal(t, tt.unsupported, tt.own.entitled(tt.peer, false), "where they can't")
		})
	}
}

func TestSelf(t *testing.T) {
	t.Parallel()
	uid, ok := Self().UID()
	assert.Equal(t, hasUserIDs, ok)
	assert.Equal(t, uint32(os.Geteuid()), uid)
	_, ok = OwnUser{}.UID()
	assert.False(t, ok, "the zero rule is for nobody")
}
