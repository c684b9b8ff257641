package proxy

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sluicegate/policy"
)

// lines joins the lines of a head.
func lines(l ...string) string { return strings.Join(l, "\r\n") + "\r\n\r\n" }

func TestParseHead(t *testing.T) {
	dest := func(s string) policy.Destination {
		d, err := policy.ParseAuthority(s)
		require.NoError(t, err)
		return d
	}
	for name, tt := range map[string]struct {
		in   string
		want head
	}{
		"connect": {
			lines("CONNECT a.test:443 HTTP/1.1", "Host: b.test"),
			head{method: "CONNECT", target: "a.test:443", dest: dest("a.test:443"), minor: 1, host: "b.test", length: -1},
		},
		"connect 1.0":          {lines("CONNECT a.test:443 HTTP/1.0"), head{method: "CONNECT", target: "a.test:443", dest: dest("a.test:443"), length: -1}},
		"connect, empty body":  {lines("CONNECT a.test:443 HTTP/1.1", "Content-Length: 0"), head{method: "CONNECT", target: "a.test:443", dest: dest("a.test:443"), minor: 1}},
		"connect, any host":    {lines("CONNECT a.test:443 HTTP/1.1", "Host: a b/c"), head{method: "CONNECT", target: "a.test:443", dest: dest("a.test:443"), minor: 1, host: "a b/c", length: -1}},
		"get":                  {lines("GET http://a.test/x?y HTTP/1.1", "Host: a.test"), head{method: "GET", target: "http://a.test/x?y", dest: dest("a.test:80"), minor: 1, host: "a.test", length: -1}},
		"get 1.0":              {lines("GET http://a.test/ HTTP/1.0"), head{method: "GET", target: "http://a.test/", dest: dest("a.test:80"), length: -1}},
		"upper case scheme":    {lines("GET HTTP://A.test:81 HTTP/1.1", "host: A.test:81"), head{method: "GET", target: "HTTP://A.test:81", dest: dest("a.test:81"), minor: 1, host: "A.test:81", length: -1}},
		"empty host field":     {lines("GET http://a.test/ HTTP/1.1", "Host:"), head{method: "GET", target: "http://a.test/", dest: dest("a.test:80"), minor: 1, length: -1}},
		"length":               {lines("POST http://a.test/ HTTP/1.1", "Host: a", "Content-Length: \t 007 "), head{method: "POST", target: "http://a.test/", dest: dest("a.test:80"), minor: 1, host: "a", length: 7}},
		"longest length":       {lines("POST http://a.test/ HTTP/1.1", "Host: a", "Content-Length: 999999999999999999"), head{method: "POST", target: "http://a.test/", dest: dest("a.test:80"), minor: 1, host: "a", length: 999999999999999999}},
		"chunked":              {lines("POST http://a.test/ HTTP/1.1", "Host: a", "TRANSFER-ENCODING: Chunked"), head{method: "POST", target: "http://a.test/", dest: dest("a.test:80"), minor: 1, host: "a", length: -1, chunked: true}},
		"expect":               {lines("PUT http://a.test/ HTTP/1.1", "Host: a", "Expect: 100-Continue", "Content-Length: 1"), head{method: "PUT", target: "http://a.test/", dest: dest("a.test:80"), minor: 1, host: "a", length: 1, expect: true}},
		"trailer announced":    {lines("GET http://a.test/ HTTP/1.1", "Host: a", "Trailer: X-Sum"), head{method: "GET", target: "http://a.test/", dest: dest("a.test:80"), minor: 1, host: "a", length: -1}},
		"cache control":        {lines("GET http://a.test/ HTTP/1.1", "Host: a", "Cache-Control: x"), head{method: "GET", target: "http://a.test/", dest: dest("a.test:80"), minor: 1, host: "a", length: -1, cacheControl: true}},
		"bytes above 0x7f":     {lines("GET http://a.test/\xc3\xa9 HTTP/1.1", "Host: a", "X: \xff"), head{method: "GET", target: "http://a.test/\xc3\xa9", dest: dest("a.test:80"), minor: 1, host: "a", length: -1}},
		"tab in a value":       {lines("GET http://a.test/ HTTP/1.1", "Host: a", "X: a\tb", "Y:"), head{method: "GET", target: "http://a.test/", dest: dest("a.test:80"), minor: 1, host: "a", length: -1}},
		"method of 32 letters": {lines(strings.Repeat("M", 32)+" http://a.test/ HTTP/1.1", "Host: a"), head{method: strings.Repeat("M", 32), target: "http://a.test/", dest: dest("a.test:80"), minor: 1, host: "a", length: -1}},
	} {
		t.Run(name, func(t *testing.T) {
			n, f := scanHead([]byte(tt.in+"more"), 0)
			require.Nil(t, f)
			require.Equal(t, len(tt.in), n)
			h, f := parseHead([]byte(tt.in))
			require.Nil(t, f)
			assert.Equal(t, tt.want, *h)
		})
	}
}

// headFaults is one head for each fault there is.
var headFaults = map[string]struct {
	in     string
	reason policy.Reason
}{
	"method empty":                {lines(" http://a.test/ HTTP/1.1", "Host: a"), policy.ReasonMalformed},
	"method no token":             {lines("G(T http://a.test/ HTTP/1.1", "Host: a"), policy.ReasonBadMethod},
	"method too long":             {lines(strings.Repeat("M", 33)+" http://a.test/ HTTP/1.1", "Host: a"), policy.ReasonBadMethod},
	"connect in lower case":       {lines("connect a.test:443 HTTP/1.1", "Host: a"), policy.ReasonBadMethod},
	"trace":                       {lines("TRACE http://a.test/ HTTP/1.1", "Host: a"), policy.ReasonBadMethod},
	"track":                       {lines("track http://a.test/ HTTP/1.1", "Host: a"), policy.ReasonBadMethod},
	"one word":                    {lines("GET", "Host: a"), policy.ReasonBadVersion},
	"no version":                  {lines("GET http://a.test/", "Host: a"), policy.ReasonBadVersion},
	"version 2":                   {lines("GET http://a.test/ HTTP/2.0", "Host: a"), policy.ReasonBadVersion},
	"version 1.2":                 {lines("GET http://a.test/ HTTP/1.2", "Host: a"), policy.ReasonBadVersion},
	"version and more":            {lines("GET http://a.test/ HTTP/1.1\r", "Host: a"), policy.ReasonBadVersion},
	"preface":                     {lines("PRI * HTTP/2.0"), policy.ReasonBadVersion},
	"space in the target":         {lines("GET http://a.test/a b HTTP/1.1", "Host: a"), policy.ReasonMalformedTarget},
	"two spaces":                  {lines("GET  http://a.test/ HTTP/1.1", "Host: a"), policy.ReasonMalformedTarget},
	"space behind the target":     {lines("GET http://a.test/  HTTP/1.1", "Host: a"), policy.ReasonMalformedTarget},
	"tab for a space":             {lines("GET\thttp://a.test/ HTTP/1.1", "Host: a"), policy.ReasonBadMethod},
	"another separator":           {lines("GET http://a.test/ x/1.1", "Host: a"), policy.ReasonMalformedTarget},
	"origin form":                 {lines("GET / HTTP/1.1", "Host: a"), policy.ReasonNotProxyRequest},
	"asterisk":                    {lines("OPTIONS * HTTP/1.1", "Host: a"), policy.ReasonNotProxyRequest},
	"no host in the target":       {lines("GET http:///x HTTP/1.1", "Host: a"), policy.ReasonMalformedTarget},
	"credentials":                 {lines("GET http://u:p@a.test/ HTTP/1.1", "Host: a"), policy.ReasonMalformedTarget},
	"https":                       {lines("GET https://a.test/ HTTP/1.1", "Host: a"), policy.ReasonBadScheme},
	"bad percent":                 {lines("GET http://a.test/%zz HTTP/1.1", "Host: a"), policy.ReasonMalformedTarget},
	"percent at the end":          {lines("GET http://a.test/100% HTTP/1.1", "Host: a"), policy.ReasonMalformedTarget},
	"bare CR in the target":       {lines("GET http://a.test/\rx HTTP/1.1", "Host: a"), policy.ReasonMalformedTarget},
	"NUL in the host":             {lines("GET http://a\x00.test/ HTTP/1.1", "Host: a"), policy.ReasonMalformedTarget},
	"number as host":              {lines("GET http://2130706433/ HTTP/1.1", "Host: a"), policy.ReasonAmbiguousIP},
	"port 0":                      {lines("GET http://a.test:0/ HTTP/1.1", "Host: a"), policy.ReasonBadPort},
	"connect without port":        {lines("CONNECT a.test HTTP/1.1", "Host: a"), policy.ReasonMalformedAuthority},
	"connect in absolute form":    {lines("CONNECT http://a.test:443/ HTTP/1.1", "Host: a"), policy.ReasonMalformedAuthority},
	"connect, IPv6 bare":          {lines("CONNECT 2001:db8::1:443 HTTP/1.1", "Host: a"), policy.ReasonMalformedAuthority},
	"connect with length":         {lines("CONNECT a.test:443 HTTP/1.1", "Content-Length: 1"), policy.ReasonBadFraming},
	"connect chunked":             {lines("CONNECT a.test:443 HTTP/1.1", "Transfer-Encoding: chunked"), policy.ReasonBadFraming},
	"folded":                      {lines("GET http://a.test/ HTTP/1.1", "Host: a", "X: 1", " 2"), policy.ReasonBadHeader},
	"folded by a tab":             {lines("GET http://a.test/ HTTP/1.1", "Host: a", "X: 1", "\t2"), policy.ReasonBadHeader},
	"folded first":                {lines("GET http://a.test/ HTTP/1.1", " Host: a"), policy.ReasonBadHeader},
	"no colon":                    {lines("GET http://a.test/ HTTP/1.1", "Host: a", "X"), policy.ReasonBadHeader},
	"no name":                     {lines("GET http://a.test/ HTTP/1.1", "Host: a", ": x"), policy.ReasonBadHeader},
	"space before the colon":      {lines("GET http://a.test/ HTTP/1.1", "Host: a", "X : 1"), policy.ReasonBadHeader},
	"name no token":               {lines("GET http://a.test/ HTTP/1.1", "Host: a", "X\x80: 1"), policy.ReasonBadHeader},
	"NUL in a value":              {lines("GET http://a.test/ HTTP/1.1", "Host: a", "X: a\x00b"), policy.ReasonBadHeader},
	"bare CR in a value":          {lines("GET http://a.test/ HTTP/1.1", "Host: a", "X: a\rY: b"), policy.ReasonBadHeader},
	"CR before the line's end":    {lines("GET http://a.test/ HTTP/1.1", "Host: a\r", "X: b"), policy.ReasonBadHeader},
	"DEL in a value":              {lines("GET http://a.test/ HTTP/1.1", "Host: a", "X: \x7f"), policy.ReasonBadHeader},
	"bare LF":                     {"GET http://a.test/ HTTP/1.1\r\nHost: a\nX: b\r\n\r\n", policy.ReasonBadHeader},
	"bare LF in the first line":   {"GET http://a.test/ HTTP/1.1\nHost: a\r\n\r\n", policy.ReasonBadHeader},
	"bare LF for the empty line":  {"GET http://a.test/ HTTP/1.1\r\nHost: a\r\n\n", policy.ReasonBadHeader},
	"host twice":                  {lines("GET http://a.test/ HTTP/1.1", "Host: a", "hOST: a"), policy.ReasonBadHeader},
	"no host field":               {lines("GET http://a.test/ HTTP/1.1"), policy.ReasonBadHeader},
	"bad host field":              {lines("GET http://a.test/ HTTP/1.1", "Host: a b"), policy.ReasonBadHeader},
	"host field with a path":      {lines("GET http://a.test/ HTTP/1.1", "Host: a.test/"), policy.ReasonBadHeader},
	"host field not ASCII":        {lines("GET http://a.test/ HTTP/1.1", "Host: \xc3\xa9"), policy.ReasonBadHeader},
	"length twice":                {lines("POST http://a.test/ HTTP/1.1", "Host: a", "Content-Length: 3", "Content-Length: 3"), policy.ReasonBadFraming},
	"length list":                 {lines("POST http://a.test/ HTTP/1.1", "Host: a", "Content-Length: 3, 3"), policy.ReasonBadFraming},
	"length empty":                {lines("POST http://a.test/ HTTP/1.1", "Host: a", "Content-Length:"), policy.ReasonBadFraming},
	"length plus":                 {lines("POST http://a.test/ HTTP/1.1", "Host: a", "Content-Length: +3"), policy.ReasonBadFraming},
	"length minus":                {lines("POST http://a.test/ HTTP/1.1", "Host: a", "Content-Length: -3"), policy.ReasonBadFraming},
	"length hexadecimal":          {lines("POST http://a.test/ HTTP/1.1", "Host: a", "Content-Length: 0x3"), policy.ReasonBadFraming},
	"length too long":             {lines("POST http://a.test/ HTTP/1.1", "Host: a", "Content-Length: 9999999999999999999"), policy.ReasonBadFraming},
	"chunked twice":               {lines("POST http://a.test/ HTTP/1.1", "Host: a", "Transfer-Encoding: chunked", "Transfer-Encoding: chunked"), policy.ReasonBadFraming},
	"chunked in a list":           {lines("POST http://a.test/ HTTP/1.1", "Host: a", "Transfer-Encoding: gzip, chunked"), policy.ReasonBadFraming},
	"another coding":              {lines("POST http://a.test/ HTTP/1.1", "Host: a", "Transfer-Encoding: identity"), policy.ReasonBadFraming},
	"coding empty":                {lines("POST http://a.test/ HTTP/1.1", "Host: a", "Transfer-Encoding:"), policy.ReasonBadFraming},
	"chunked and length":          {lines("POST http://a.test/ HTTP/1.1", "Host: a", "Transfer-Encoding: chunked", "Content-Length: 3"), policy.ReasonBadFraming},
	"chunked in 1.0":              {lines("POST http://a.test/ HTTP/1.0", "Transfer-Encoding: chunked"), policy.ReasonBadFraming},
	"another expectation":         {lines("POST http://a.test/ HTTP/1.1", "Host: a", "Expect: x"), policy.ReasonBadHeader},
	"framing as a trailer":        {lines("POST http://a.test/ HTTP/1.1", "Host: a", "Transfer-Encoding: chunked", "Trailer: X, content-length"), policy.ReasonBadHeader},
	"coding as a trailer":         {lines("POST http://a.test/ HTTP/1.1", "Host: a", "Transfer-Encoding: chunked", "Trailer: Transfer-Encoding"), policy.ReasonBadHeader},
	"SOCKS5":                      {"\x05\x01\x00", policy.ReasonUnsupported},
	"SOCKS4":                      {"\x04\x01\x00\x50", policy.ReasonUnsupported},
	"TLS":                         {"\x16\x03\x01\x02\x00\x01", policy.ReasonMalformed},
	"anything else":               {"\x00\x00", policy.ReasonMalformed},
	"two empty lines":             {"\r\n\r\n" + lines("GET http://a.test/ HTTP/1.1", "Host: a"), policy.ReasonMalformed},
	"line feed before the method": {"\n" + lines("GET http://a.test/ HTTP/1.1", "Host: a"), policy.ReasonMalformed},
}

// received feeds segments to a connection and returns what it makes of them.
func received(t *testing.T, limit int, segments ...string) (*head, *fault, string) {
	t.Helper()
	rc := &requestConn{limits: Limits{HeaderBytes: limit}.withDefaults(), in: make([]byte, 0, headBuffer)}
	for i, s := range segments {
		rc.in = append(rc.in, s...)
		h, n, f := rc.parse()
		if h != nil || f != nil {
			rc.consume(n)
			return h, f, string(rc.in) + strings.Join(segments[i+1:], "")
		}
	}
	return nil, nil, string(rc.in)
}

func TestHeadFaults(t *testing.T) {
	details := map[string]bool{}
	for name, tt := range headFaults {
		t.Run(name, func(t *testing.T) {
			h, f, _ := received(t, 0, tt.in)
			require.NotNil(t, f)
			require.NotNil(t, h)
			assert.Equal(t, tt.reason, f.reason, f.detail)
			assert.NotEmpty(t, f.detail)
			assert.NotContains(t, f.detail, "\"", "a detail quotes nothing")
			details[f.detail] = true
		})
	}
	assert.Greater(t, len(details), 35, "each fault has its own words")
}

// What is made of a stream does not depend on where it is cut.
func TestHeadCutAnywhere(t *testing.T) {
	inputs := map[string]string{
		"connect with early bytes": connectTo("a.test:443") + "early",
		"get with another":         get("http://a.test/") + get("http://b.test/"),
		"empty line first":         "\r\n" + get("http://a.test/"),
		"length":                   post("http://a.test/", "body"),
	}
	for name, tt := range headFaults {
		inputs[name] = tt.in
	}
	for name, in := range inputs {
		t.Run(name, func(t *testing.T) {
			h, f, rest := received(t, 0, in)
			for i := range in {
				ch, cf, crest := received(t, 0, in[:i], in[i:])
				require.Equal(t, f, cf, "cut at %d", i)
				if f == nil {
					require.Equal(t, h, ch, "cut at %d", i)
					require.Equal(t, rest, crest, "cut at %d", i)
				}
			}
			bh, bf, brest := received(t, 0, strings.Split(in, "")...)
			require.Equal(t, f, bf)
			if f == nil {
				require.Equal(t, h, bh)
				require.Equal(t, rest, brest)
			}
		})
	}
}

func TestHeadLimit(t *testing.T) {
	in := get("http://a.test/")
	h, f, rest := received(t, len(in), in+"more")
	require.Nil(t, f)
	assert.Equal(t, "http://a.test/", h.target)
	assert.Equal(t, "more", rest)
	for name, segments := range map[string][]string{
		"at once": {in + "more"}, "byte by byte": strings.Split(in, ""), "without end": {"GET http://a.test/" + strings.Repeat("x", 100)},
	} {
		t.Run(name, func(t *testing.T) {
			h, f, _ := received(t, len(in)-1, segments...)
			require.NotNil(t, f)
			assert.Equal(t, policy.ReasonTooLarge, f.reason)
			assert.Equal(t, "GET", h.method)
		})
	}
}

// What the record gets of a head that is not served ends with its first line.
func TestPartialHead(t *testing.T) {
	for in, want := range map[string]head{
		"GET http://a.test/x HTTP/1.1\r\nCookie: SECRET": {method: "GET", target: "http://a.test/x", minor: 1, length: -1},
		"GET http://a.test/x HTTP/1.1\nCookie: SECRET":   {method: "GET", target: "http://a.test/x", minor: 1, length: -1},
		"GET http://a.test/x":                            {method: "GET", target: "http://a.test/x", length: -1},
		"GE":                                             {method: "GE", length: -1},
		"":                                               {length: -1},
		"\x16\x03":                                       {length: -1},
	} {
		h := partialHead([]byte(in))
		want.dest = h.dest
		assert.Equal(t, want, *h, "%q", in)
		assert.Equal(t, h.target != "", h.dest.IsValid())
	}
}

// A head that began to arrive has a time to be complete by, which an empty line
// or other bytes do not move.
func TestHeadDeadlineIsNotMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rc := &requestConn{limits: Limits{}.withDefaults()}
		rc.in = []byte("\r\n")
		_, _, f := rc.parse()
		require.Nil(t, f)
		first := rc.first
		require.False(t, first.IsZero())
		time.Sleep(time.Second)
		rc.in = append(rc.in, "GET "...)
		_, _, f = rc.parse()
		require.Nil(t, f)
		assert.Equal(t, first, rc.first)
	})
}
