package network

import (
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/cgi"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/caisson-run/caisson/tests/harness"
	"github.com/caisson-run/caisson/tests/need"
)

// Where the server of git and the one that it redirects to are, in the world.
const (
	forgeIP = "93.184.215.77"
	forgeAt = forgeIP + ":443"
	movedAt = forgeIP + ":8080"
)

// forge is a server of git, https://git.example, with the repositories acme/tools and
// other/tools. It answers those alone that have the canary, and redirects acme/moved to
// another server, which wants no key.
type forge struct {
	dir, ca string
	backend *cgi.Handler
	lfs     *lfsStore // of large files; nil: it has none

	mu    sync.Mutex
	seen  []string // methods and paths
	moved []http.Header
}

func startForge(t *testing.T) *forge {
	t.Helper()
	need.Tools(t, "git", "dpkg")
	f := &forge{dir: t.TempDir()}
	f.backend = &cgi.Handler{
		Path: strings.TrimSpace(f.git(t, "--exec-path")) + "/git-http-backend", Stderr: io.Discard,
		Env: []string{"GIT_PROJECT_ROOT=" + f.dir, "GIT_HTTP_EXPORT_ALL=1"},
	}
	for _, repository := range []string{"acme/tools.git", "other/tools.git"} {
		bare := filepath.Join(f.dir, repository)
		f.git(t, "init", "-q", "--bare", "-b", "main", bare)
		f.git(t, "-C", bare, "config", "http.receivepack", "true")
		tree := strings.TrimSpace(f.git(t, "-C", bare, "write-tree"))
		first := strings.TrimSpace(f.git(t, "-C", bare, "-c", "user.name=a", "-c", "user.email=a@example.com", "commit-tree", "-m", "first", tree))
		f.git(t, "-C", bare, "update-ref", "refs/heads/main", first)
	}
	if _, err := host.far.command(address(forgeIP, "lo")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { host.far.run(t, "ip addr del "+forgeIP+" dev lo") })
	cert, root := issued(t, "git.example")
	f.ca = writeFile(t, "ca.pem", root)
	f.listen(t, "git.example", forgeAt, f.guarded, &tls.Config{Certificates: []tls.Certificate{cert}})
	f.listen(t, "moved.example", movedAt, f.open, nil)
	return f
}

func (f *forge) listen(t *testing.T, name, at string, h http.HandlerFunc, with *tls.Config) {
	t.Helper()
	l, err := host.far.listenSoon(at)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: h, TLSConfig: with, ErrorLog: log.New(io.Discard, "", 0)}
	if with != nil {
		l = tls.NewListener(l, with)
	}
	go server.Serve(l) // it ends with its listener
	host.dns.set(name, forgeIP)
	t.Cleanup(func() {
		host.dns.forget(name)
		_ = server.Close()
	})
}

func (f *forge) guarded(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.seen = append(f.seen, r.Method+" "+r.URL.RequestURI())
	f.mu.Unlock()
	user, said, _ := r.BasicAuth()
	switch below, moved := strings.CutPrefix(r.URL.Path, "/acme/moved"); {
	case user != "x-access-token" || said != canary:
		w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
		http.Error(w, "who are you?", http.StatusUnauthorized)
	case moved:
		http.Redirect(w, r, "http://moved.example:8080/acme/tools.git"+below+"?"+r.URL.RawQuery, http.StatusFound)
	case f.lfs.serve(w, r):
	default:
		r.TransferEncoding = nil // package cgi refuses chunks, the program does not
		f.backend.ServeHTTP(w, r)
	}
}

func (f *forge) open(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.moved = append(f.moved, r.Header.Clone())
	f.mu.Unlock()
	r.TransferEncoding = nil
	f.backend.ServeHTTP(w, r)
}

// take returns the requests that came since the last call.
func (f *forge) take() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer func() { f.seen = nil }()
	return f.seen
}

func (f *forge) git(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Env = f.dir, append(cmd.Environ(), "HOME="+f.dir, "GIT_CONFIG_NOSYSTEM=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %q: %v: %s", args, err, out)
	}
	return string(out)
}

// refs are the branches and tags of acme/tools, each with its commit.
func (f *forge) refs(t *testing.T) string {
	t.Helper()
	return f.git(t, "-C", f.dir+"/acme/tools.git", "for-each-ref", "--format=%(refname) %(objectname)")
}

// routedGit is a configuration with a route to f, with more keys of it.
func routedGit(f *forge, secret, more string) string {
	return fmt.Sprintf(`network: {dns: [%s]}
secrets: {forge-key: "file:%s"}
profiles:
  agent:
    image: tools
    network: {allow: ["moved.example:8080"]}
    routes:
      forge: {preset: git, upstream: "https://git.example", credential: forge-key, repositories: ["acme/*"], ca: "file:%s"%s}
`, resolver, secret, f.ca, more)
}

// workshop is a sandbox with git, and a clone of acme/tools in /tmp/tools.
func workshop(t *testing.T, d *harness.Daemon) sandbox {
	t.Helper()
	d.Run(t, "image", "from-host", "tools", "--package", "git", "--package", "dash", "--package", "sed", "--package", "coreutils")
	s := createFor(t, d, "--profile", "agent")
	if out, code := s.git("clone", "-q", "https://git.example/acme/tools", "/tmp/tools"); code != 0 {
		t.Fatalf("the clone failed: %s", out)
	}
	return s
}

// git runs it in s, which is told nothing of the route.
func (s sandbox) git(args ...string) (said string, code int) {
	r := s.of.Try(append([]string{"exec", "-q", "-e", "HOME=/tmp", "-e", "GIT_TERMINAL_PROMPT=0", s.id, "--", "git", "-c", "user.name=a", "-c", "user.email=a@example.com"}, args...)...)
	return r.Stdout + r.Stderr, r.Code
}

// Git works inside as it does outside, and its key stays there.
func TestRouteGit(t *testing.T) {
	f := startForge(t)
	reaches(t, forgeAt, movedAt)
	asks(t, "git.example", "moved.example")
	d := launch(t, routedGit(f, writeFile(t, "key", canary+"\n"), `, access: write, branches: ["agent/**"]`))
	s := workshop(t, d)
	git := func(args ...string) string {
		t.Helper()
		out, code := s.git(append([]string{"-C", "/tmp/tools"}, args...)...)
		if code != 0 {
			t.Errorf("git %q: code %d: %s", args, code, out)
		}
		return out
	}
	t.Run("clone, fetch and push", func(t *testing.T) {
		git("commit", "-q", "--allow-empty", "-m", "second")
		git("push", "-q", "origin", "HEAD:agent/one")
		if head := strings.TrimSpace(git("rev-parse", "HEAD")); !strings.Contains(f.refs(t), "refs/heads/agent/one "+head) {
			t.Errorf("the push did not arrive: %s", f.refs(t))
		}
		git("fetch", "-q", "origin")
		git("fetch", "-q", "ssh://git@git.example/acme/tools")
		git("fetch", "-q", "git@git.example:acme/tools.git")
		if seen := f.take(); len(seen) < 8 || seen[0] != "GET /acme/tools/info/refs?service=git-upload-pack" {
			t.Errorf("the server was asked %q", seen)
		}
	})
	t.Run("submodules", func(t *testing.T) {
		git("submodule", "--quiet", "add", "../tools", "part")
		git("commit", "-q", "-m", "third")
		git("push", "-q", "origin", "HEAD:agent/whole")
		if out, code := s.git("clone", "-q", "--recurse-submodules", "-b", "agent/whole", "https://git.example/acme/tools", "/tmp/whole"); code != 0 {
			t.Errorf("the clone failed: %s", out)
		}
		if head, _ := s.git("-C", "/tmp/whole/part", "rev-parse", "HEAD"); !strings.Contains(f.refs(t), "refs/heads/main "+head) {
			t.Errorf("the submodule is at %q", head)
		}
	})
	t.Run("a redirect elsewhere is followed without the key", func(t *testing.T) {
		if out, code := s.git("clone", "-q", "https://git.example/acme/moved", "/tmp/moved"); code != 0 {
			t.Errorf("the clone failed: %s", out)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		if len(f.moved) == 0 {
			t.Error("the other server was not asked")
		}
		for _, h := range f.moved {
			if h.Get("Authorization") != "" || strings.Contains(fmt.Sprint(h), canary) {
				t.Errorf("the other server got %v", h)
			}
		}
	})
	t.Run("each request has a record", func(t *testing.T) {
		list := requests(s.recorded(t, func(list []entry) bool { return len(requests(list)) > 8 }))
		if r := list[0]; r.Type != "GET /acme/tools/info/refs" || r.Rule != "route forge" || !strings.Contains(r.Reason, `credential "forge-key"`) {
			t.Errorf("%+v", r)
		}
		if !slices.ContainsFunc(list, func(r entry) bool {
			return r.Type == "POST /acme/tools/git-receive-pack" && r.Verdict == "allowed" && strings.Contains(r.Reason, "updates refs/heads/agent/one")
		}) {
			t.Errorf("no record tells of the push: %+v", list)
		}
	})
	for _, file := range []string{"tools", "moved"} {
		if b := d.Run(t, "exec", s.id, "--", "cat", "/tmp/"+file+"/.git/config").Stdout; strings.Contains(b, canary) || !strings.Contains(b, "url = https://git.example/acme/"+file) {
			t.Errorf("the configuration of the clone is %s", b)
		}
	}
	searchCanary(t, d, s, "forge-key", "git.example")
}

// What a route does not allow is refused so that git says why, and nothing of it arrives.
func TestRouteGitRefused(t *testing.T) {
	f := startForge(t)
	reaches(t, forgeAt)
	asks(t, "git.example")
	key := writeFile(t, "key", canary)
	// The control: without the route, the server takes the same requests of any who has the
	// key, and none without it.
	control := func(user, what string) error {
		_, err := host.far.command("env GIT_SSL_CAINFO=" + f.ca + " HOME=" + f.dir + " git -c http.proxy= -c http.curloptResolve=git.example:443:" + forgeIP + " -c core.askPass=true " +
			strings.ReplaceAll(what, "URL", "https://"+user+"git.example"))
		return err
	}
	with := "x-access-token:" + canary + "@"
	clone := filepath.Join(t.TempDir(), "clone")
	for what, ok := range map[string]bool{with: true, "": false} {
		if err := control(what, "ls-remote URL/other/tools"); (err == nil) != ok {
			t.Fatalf("the control as %q: %v", what, err)
		}
	}
	if err := control(with, "clone -q URL/acme/tools "+clone); err != nil {
		t.Fatal(err)
	}
	for _, ref := range []string{"refs/heads/control", "refs/tags/control"} {
		if err := control(with, "-C "+clone+" push -q URL/acme/tools HEAD:"+ref); err != nil || !strings.Contains(f.refs(t), ref) {
			t.Fatalf("the control: %v", err)
		}
	}
	before := f.refs(t)
	good := routedGit(f, key, `, access: write, branches: ["agent/**"]`)
	d := launch(t, good)
	s := workshop(t, d)
	try := func(t *testing.T, want string, args ...string) {
		t.Helper()
		if out, code := s.git(append([]string{"-C", "/tmp/tools"}, args...)...); code == 0 || !strings.Contains(out, want) || strings.Contains(out, canary) {
			t.Errorf("git %q: code %d: %s; want %q", args, code, out, want)
		}
	}
	s.git("-C", "/tmp/tools", "commit", "-q", "--allow-empty", "-m", "second")
	f.take()
	t.Run("pushes", func(t *testing.T) {
		try(t, "! [remote rejected] HEAD -> main (SBX-711: only agent/** may be pushed)", "push", "origin", "HEAD:main")
		try(t, "remote: SBX-711: the route does not allow the push to refs/heads/main", "push", "-f", "origin", "HEAD:main", "HEAD:agent/one")
		try(t, "HEAD -> v1 (SBX-711: only branches may be pushed)", "push", "origin", "HEAD:refs/tags/v1")
		try(t, "(SBX-711: branches may not be deleted)", "push", "origin", ":refs/heads/control")
		for _, request := range f.take() {
			if strings.HasPrefix(request, "POST") {
				t.Errorf("the server was asked %s", request)
			}
		}
	})
	t.Run("other repositories", func(t *testing.T) {
		for _, verb := range [][]string{{"ls-remote"}, {"push"}} {
			try(t, `remote: the route does not allow the repository "other/tools"`, append(verb, "https://git.example/other/tools", "HEAD")...)
		}
		if seen := f.take(); len(seen) != 0 {
			t.Errorf("the server was asked %q", seen)
		}
	})
	t.Run("records", func(t *testing.T) {
		refused := func(list []entry) (n int) {
			for _, r := range requests(list) {
				if r.Verdict == "refused" && r.Code == "SBX-711" {
					n++
				}
			}
			return n
		}
		const all = 6
		if n := refused(s.recorded(t, func(list []entry) bool { return refused(list) >= all })); n != all {
			t.Errorf("%d refusals are recorded", n)
		}
	})
	t.Run("configurations", func(t *testing.T) {
		for _, tt := range []struct{ from, to, says string }{
			{"access: write", "access: admin", `profiles.agent: routes.forge.access: there is no access "admin", only read and write`},
			{"access: write, ", "", `profiles.agent.routes.forge: route "forge": branches are of pushes, which need access: write`},
			{`["agent/**"]`, `["refs/heads/agent/*"]`, `branches: "refs/heads/agent/*" is a ref`},
			{`["agent/**"]`, `[]`, "routes.forge.branches: the list is empty"},
			{`repositories: ["acme/*"], `, "", "repositories names none"},
			{"acme/*", "acme/**/x", `repositories: "acme/**/x" has ** before its end`},
			{"acme/*", "acme/x.git", `repositories: "acme/x.git" ends in .git`},
			{"branches:", "branchs:", `did you mean "branches"?`},
			{"preset: git, ", "", "routes.forge.repositories: only a route with preset: git has it"},
			{"preset: git, ", "preset: git, paths: [/acme], ", "a route for git has repositories and access in place of methods and paths"},
			{"    image: tools\n", "    image: tools\n    env: [GIT_CONFIG_COUNT=0]\n", "routes.forge.preset: it sets GIT_CONFIG_COUNT, as env does"},
		} {
			if !strings.Contains(good, tt.from) {
				t.Fatalf("%q is not there", tt.from)
			}
			d.Configure(t, strings.Replace(good, tt.from, tt.to, 1))
			r := d.Try("config", "reload")
			if said := r.Stdout + r.Stderr; r.Code == 0 || !strings.Contains(said, tt.says) || !strings.Contains(said, "SBX-105") {
				t.Errorf("%q: code %d, %s; want %q", tt.to, r.Code, said, tt.says)
			}
		}
	})
	t.Run("pushes where it only reads", func(t *testing.T) {
		d.Configure(t, routedGit(f, key, ""))
		d.Run(t, "config", "reload")
		reader := createFor(t, d, "--profile", "agent")
		if out, code := reader.git("clone", "-q", "https://git.example/acme/tools", "/tmp/tools"); code != 0 {
			t.Fatalf("the clone failed: %s", out)
		}
		if out, code := reader.git("-C", "/tmp/tools", "push", "origin", "HEAD:agent/two"); code == 0 || !strings.Contains(out, "remote: the route allows no pushes") {
			t.Errorf("code %d: %s", code, out)
		}
	})
	if after := f.refs(t); after != before {
		t.Errorf("the server has %s, had %s", after, before)
	}
}
