//go:build unix

package main_test

import (
	"net/http"
	"net/http/cgi"
	"os"
	"path/filepath"
	"strings"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// repository is one that the secure origin serves at /git/project.git.
type repository struct {
	source, content string
	run             func(args ...string) result
	must            func(args ...string) string
}

func newRepository(s *tale) *repository {
	s.t.Helper()
	git := needs(s.t, "git")
	env := []string{
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_TERMINAL_PROMPT=0",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com",
		"GIT_SSL_CAINFO=" + s.ca.file, "https_proxy=" + s.proxy,
	}
	run := func(args ...string) result { return s.execEnv(env, git, args...) }
	must := func(args ...string) string {
		s.t.Helper()
		r := run(args...)
		require.Zero(s.t, r.code, "git %s\n%s", strings.Join(args, " "), r.stderr)
		return strings.TrimSpace(r.stdout)
	}

	source, served := filepath.Join(s.dir, "source"), filepath.Join(s.dir, "served")
	must("-c", "init.defaultBranch=main", "init", "--quiet", source)
	content := strings.Repeat("a line that git must bring through the tunnel\n", 5000)
	write(s.t, filepath.Join(source, "file.txt"), content)
	must("-C", source, "add", "file.txt")
	must("-C", source, "commit", "--quiet", "--message", "first")
	must("clone", "--quiet", "--bare", source, filepath.Join(served, "project.git"))
	must("-C", filepath.Join(served, "project.git"), "update-server-info")
	s.secure.mux.Handle("/git/", gitServer(must("--exec-path"), served, git, s.env, env))
	return &repository{source: source, content: content, run: run, must: must}
}

// gitClone fetches a repository through the gate. git has its own idea of
// proxies, certificates and retries.
func gitClone(s *tale) {
	repo := newRepository(s)
	run, must := repo.run, repo.must
	before, clone := s.secure.conns.Load(), filepath.Join(s.dir, "clone")
	must("-c", "http.maxRequests=1", "clone", "--quiet", s.secureURL("/git/project.git"), clone)
	got, err := os.ReadFile(filepath.Join(clone, "file.txt"))
	require.NoError(s.t, err)
	assert.Equal(s.t, repo.content, string(got))
	assert.Equal(s.t, must("-C", repo.source, "rev-parse", "HEAD"), must("-C", clone, "rev-parse", "HEAD"))

	// As many tunnels as the origin saw connections, one after the other.
	for range s.secure.conns.Load() - before {
		s.expectTunnel()
	}

	r := run("clone", "--quiet", "https://forbidden.example.net/project.git", filepath.Join(s.dir, "none"))
	assert.Equal(s.t, 128, r.code)
	assert.Contains(s.t, r.stderr, "403", "git says what the gate answered")
	s.expect("egress.denied deny not_listed connect forbidden.example.net:443 http=403")
}

// gitServer serves the repositories below root: by git's own program where it is
// installed, else as plain files, which git can clone too.
func gitServer(execPath, root, git string, envs ...[]string) http.Handler {
	backend := filepath.Join(execPath, "git-http-backend")
	if info, err := os.Stat(backend); err != nil || info.Mode()&0o111 == 0 {
		return http.StripPrefix("/git/", http.FileServer(http.Dir(root)))
	}
	h := &cgi.Handler{
		Path: backend, Root: "/git", Dir: root,
		Env: []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1", "PATH=" + filepath.Dir(git) + ":" + os.Getenv("PATH")},
	}
	for _, env := range envs {
		for _, v := range env {
			// The server is no client: it must not know the proxy.
			if !strings.HasPrefix(v, "https_proxy=") && !strings.HasPrefix(v, "PATH=") {
				h.Env = append(h.Env, v)
			}
		}
	}
	return h
}
