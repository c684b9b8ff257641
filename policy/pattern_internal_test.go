package policy

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/publicsuffix"
)

// Wildcards that reach across organisations, and those that do not.
func TestCoversPublicSuffix(t *testing.T) {
	for host, want := range map[string]bool{
		"*.com": true, "**.com": true, "*.co.uk": true, "*.uk": true, "*.github.io": true, "*.cloudfront.net": true,
		"*.s3.amazonaws.com": true, "*.amazonaws.com": true, "*.amazonaws.com.cn": true, "*.core.windows.net": true,
		"*.windows.net": true, "*.googleapis.com": true, "*.kawasaki.jp": true, "*.ck": true, "*.unknown-tld": true, "*.run.app": true,
		"com": false, "github.io": false, "*.example.com": false, "*.bbc.co.uk": false, "*.city.kawasaki.jp": false,
		"*.bucket.s3.amazonaws.com": false, "*.github.com": false, "**.npmjs.org": false, "*.wild.test": false,
	} {
		p, _, fault := parsePattern(host)
		require.Nil(t, fault, host)
		assert.Equal(t, want, p.coversPublicSuffix(), host)
	}
	// The public suffix list moves: each label must still find something.
	for label, parent := range map[string]string{
		"x": "kawasaki.jp", "s3": "amazonaws.com", "us-east-1.elb": "amazonaws.com.cn", "blob.core": "windows.net", "blob": "core.windows.net",
	} {
		below := label + "." + parent
		suffix, _ := publicsuffix.PublicSuffix(below)
		assert.Equal(t, below, suffix)
		assert.Contains(t, sharedBelow, label)
	}
	assert.Len(t, sharedBelow, 5)
}

func TestPatternCovers(t *testing.T) {
	for pair, want := range map[[2]string]bool{
		{"a.test", "a.test"}: true, {"a.test", "*.a.test"}: false, {"a.test", "**.a.test"}: false, {"a.test", "x.a.test"}: false,
		{"*.a.test", "a.test"}: false, {"*.a.test", "*.a.test"}: true, {"*.a.test", "**.a.test"}: false, {"*.a.test", "x.a.test"}: true,
		{"*.a.test", "**.x.a.test"}: true, {"**.a.test", "a.test"}: true, {"**.a.test", "*.a.test"}: true,
		{"**.a.test", "**.a.test"}: true, {"**.a.test", "y.x.a.test"}: true, {"**.a.test", "ba.test"}: false,
		{"**.a.test", "**.ba.test"}: false, {"**.x.a.test", "**.a.test"}: false, {"*.test", "**.a.test"}: true,
	} {
		a, _, _ := parsePattern(pair[0])
		b, _, _ := parsePattern(pair[1])
		assert.Equal(t, want, a.covers(b), "%s covers %s", a, b)
	}
}

// What is printed reads back as the same, without a notice.
func TestPatternString(t *testing.T) {
	for _, in := range []string{"a.test", "*.a.test", "**.a.test", "A.Test.", "*.BÜCHER.test", "**.xn--bcher-kva.test."} {
		p, _, fault := parsePattern(in)
		require.Nil(t, fault, in)
		again, notice, fault := parsePattern(p.String())
		require.Nil(t, fault, in)
		assert.Empty(t, notice)
		assert.Equal(t, p, again)
	}
}
