//go:build unix

package main_test

import (
	"fmt"

	"github.com/stretchr/testify/assert"
)

// Programs that print what they fetch, or the error, and end with 1.
const (
	pythonFetch = `
import sys, urllib.request
try:
    with urllib.request.urlopen(sys.argv[1], timeout=20) as answer:
        sys.stdout.write(answer.read().decode())
except OSError as e:
    sys.exit(str(e))
`

	nodeFetch = `
const http = require('http'), https = require('https');
const target = new URL(process.argv[1]), proxy = new URL(process.env.PROXY);
const fail = e => { console.error(String(e)); process.exit(1); };
const print = answer => {
  answer.setEncoding('utf8');
  answer.on('data', d => process.stdout.write(d));
  if (answer.statusCode != 200) fail(answer.statusCode + ' ' + answer.statusMessage);
};
const common = { host: proxy.hostname, port: proxy.port, agent: false };
if (target.protocol == 'http:') {
  http.get({ ...common, path: target.href, headers: { host: target.host } }, print).on('error', fail);
} else {
  const authority = target.hostname + ':' + (target.port || 443);
  http.request({ ...common, method: 'CONNECT', path: authority, headers: { host: authority } })
    .on('error', fail)
    .on('connect', (answer, socket) => {
      if (answer.statusCode != 200) return fail(answer.statusCode + ' ' + answer.statusMessage);
      https.get(target, { socket, agent: false, servername: target.hostname }, print).on('error', fail);
    }).end();
}
`
)

// pythonClient is Python's own client, which takes the gate from the
// environment like pip and requests do.
func pythonClient(s *tale) {
	python := needs(s.t, "python3")
	fetch := func(url string) result {
		return s.execEnv([]string{
			"HTTPS_PROXY=" + s.proxy, "http_proxy=" + s.proxy, "SSL_CERT_FILE=" + s.ca.file,
		}, python, "-c", pythonFetch, url)
	}
	s.script(fetch)
	assert.Contains(s.t, fetch("http://forbidden.example.net/").stderr, "HTTP Error 403: Forbidden")
	s.expect("egress.denied deny not_listed http forbidden.example.net:80 http=403")
}

// nodeClient asks for a tunnel as the proxy agents of npm do.
func nodeClient(s *tale) {
	node := needs(s.t, "node")
	s.script(func(url string) result {
		return s.execEnv([]string{"PROXY=" + s.proxy, "NODE_EXTRA_CA_CERTS=" + s.ca.file}, node, "-e", nodeFetch, url)
	})
}

// script wants a client that fetches URLs to get what is allowed, and to be told
// why not and under which event otherwise.
func (s *tale) script(fetch func(url string) result) {
	s.t.Helper()
	assert.Equal(s.t, result{stdout: greeting}, fetch(s.secureURL("/hello")))
	s.expectTunnel()
	assert.Equal(s.t, result{stdout: greeting}, fetch(s.plainURL("/hello")))
	s.expect(fmt.Sprintf("egress.closed allow rule http plain.example.com:%d rule=plain http=200 end=orderly", s.plain.port))

	r := fetch("https://forbidden.example.net/")
	assert.Equal(s.t, 1, r.code)
	denied := s.expect("egress.denied deny not_listed connect forbidden.example.net:443 http=403")
	assert.Contains(s.t, r.stderr, "403 Blocked by egress policy (not_listed) "+denied[0].ID)
}
