package route_test

import (
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/gateway/route/git"
	"github.com/caisson-run/caisson/tests/need"
)

// forge is an upstream with the repositories acme/tools and other/tools, which answers those
// alone that have the key.
type forge struct {
	*upstream
	dir string
}

func newForge(t *testing.T) *forge {
	t.Helper()
	need.Tools(t, "git")
	f := &forge{dir: t.TempDir()}
	for _, repository := range []string{"acme/tools", "other/tools"} {
		bare := filepath.Join(f.dir, repository+".git")
		gitIn(t, f.dir, "init", "-q", "--bare", "-b", "main", bare)
		gitIn(t, bare, "config", "http.receivepack", "true")
		gitIn(t, bare, "config", "receive.advertisePushOptions", "true")
		work := t.TempDir()
		gitIn(t, work, "clone", "-q", bare, ".")
		commit(t, work, "first")
		gitIn(t, work, "push", "-q", "origin", "HEAD:main")
	}
	backend := &cgi.Handler{
		Path: strings.TrimSpace(gitIn(t, f.dir, "--exec-path")) + "/git-http-backend", Stderr: io.Discard,
		Env: []string{"GIT_PROJECT_ROOT=" + f.dir, "GIT_HTTP_EXPORT_ALL=1"},
	}
	f.upstream = newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		if user, said, _ := r.BasicAuth(); user != "x-access-token" || said != key {
			w.Header().Set("WWW-Authenticate", "Basic")
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		r.TransferEncoding = nil // package cgi refuses chunks, the program does not
		backend.ServeHTTP(w, r)
	})
	return f
}

// has returns the commit of a branch, empty for none.
func (f *forge) has(t *testing.T, branch string) string {
	t.Helper()
	return strings.TrimSpace(gitIn(t, f.dir+"/acme/tools.git", "for-each-ref", "--format=%(objectname)", "refs/heads/"+branch))
}

func gitIn(t *testing.T, dir string, args ...string) string {
	t.Helper()
	out, err := tryGit(dir, args...)
	if err != nil {
		t.Fatalf("git %q: %v: %s", args, err, out)
	}
	return out
}

func tryGit(dir string, args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HOME="+dir, "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0", "LC_ALL=C", "no_proxy=", "NO_PROXY=",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func commit(t *testing.T, work, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(work, "file"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	gitIn(t, work, "add", "file")
	gitIn(t, work, "commit", "-q", "-m", "a commit")
}

// through are the arguments by which git asks the route for what is at https://up.example.com.
func (f *fixture) through(args ...string) []string {
	return append([]string{"-c", "http.proxy=http://" + f.address, "-c", "url.http://" + string(name) + "/.insteadOf=https://up.example.com/"}, args...)
}

func gitRoute(s git.Scope) policy.Route {
	return policy.Route{Upstream: "http://up.example.com", Credential: "key", Placement: policy.Basic, Parameter: "x-access-token", Git: &s}
}

const tools = "https://up.example.com/acme/tools"

// Git's own client works by a route: the key is added outside, and only what the route allows
// gets there.
func TestGit(t *testing.T) {
	up := newForge(t)
	f := newFixture(t, up.Server, gitRoute(git.Scope{Repositories: []string{"acme/*"}, Write: true, Branches: []string{"agent/**"}}))
	dir := t.TempDir()
	for i, args := range [][]string{{"clone"}, {"-c", "protocol.version=0", "clone"}, {"clone", "--depth", "1"}, {"clone", "--filter=blob:none"}} {
		work := filepath.Join(dir, fmt.Sprint(i))
		gitIn(t, dir, f.through(append(args, "-q", tools, work)...)...)
		if b, err := os.ReadFile(filepath.Join(work, "file")); err != nil || string(b) != "first" {
			t.Errorf("%q: %q, %v", args, b, err)
		}
	}
	work := filepath.Join(dir, "work")
	gitIn(t, dir, f.through("clone", "-q", tools+".git", work)...)
	commit(t, work, "second")
	head := strings.TrimSpace(gitIn(t, work, "rev-parse", "HEAD"))
	gitIn(t, work, f.through("push", "-q", "origin", "HEAD:agent/one", "HEAD:agent/two/three")...)
	if up.has(t, "agent/one") != head || up.has(t, "agent/two/three") != head {
		t.Error("the push did not arrive")
	}
	large := make([]byte, 3<<20) // past http.postBuffer: git sends a probe, and then chunks
	_, _ = rand.Read(large)      // it never fails
	commit(t, work, string(large))
	if out, err := tryGit(work, f.through("push", "origin", "HEAD:main")...); err == nil || !strings.Contains(out, "HEAD -> main (SBX-711: only agent/** may be pushed)") {
		t.Errorf("a large push: %v: %s", err, out)
	}
	gitIn(t, work, f.through("push", "-q", "origin", "HEAD:agent/large")...)
	if up.has(t, "agent/large") == "" {
		t.Error("the large push did not arrive")
	}
	main := up.has(t, "main")
	for _, tt := range []struct {
		args []string
		says []string
	}{
		{[]string{"push", "origin", "HEAD:main"}, []string{"remote: SBX-711: the route does not allow the push to refs/heads/main: only agent/** may be pushed", "! [remote rejected] HEAD -> main (SBX-711: only agent/** may be pushed)"}},
		{[]string{"push", "-f", "origin", "HEAD:main", "HEAD:agent/four"}, []string{"HEAD -> main (SBX-711: only agent/** may be pushed)", "HEAD -> agent/four (SBX-711: another ref of this push was refused)"}},
		{[]string{"push", "origin", "HEAD:refs/tags/v1"}, []string{"HEAD -> v1 (SBX-711: only branches may be pushed)"}},
		{[]string{"push", "origin", ":agent/one"}, []string{"agent/one (SBX-711: branches may not be deleted)"}},
		{[]string{"push", "-o", "merge", "origin", "HEAD:agent/five"}, []string{"remote: SBX-711: the route does not pass on the push: push options are refused"}},
		{[]string{"fetch", "https://up.example.com/other/tools"}, []string{"remote: SBX-711", `remote: the route does not allow the repository "other/tools"`, "403"}},
		{[]string{"push", "https://up.example.com/other/tools", "HEAD:agent/one"}, []string{`remote: the route does not allow the repository "other/tools"`}},
	} {
		out, err := tryGit(work, f.through(tt.args...)...)
		for _, want := range tt.says {
			if err == nil || !strings.Contains(out, want) {
				t.Errorf("git %q: %v: %s; want %q", tt.args, err, out, want)
			}
		}
	}
	if up.has(t, "main") != main || up.has(t, "agent/one") != head || up.has(t, "agent/four")+up.has(t, "agent/five") != "" {
		t.Error("a refused push arrived")
	}
	var refused int
	var pushed []string
	for refused < 8 {
		if u := f.use(t); u.Code == sbxerr.EgressRoute {
			refused++
			if u.Status != 200 && u.Status != 403 || u.Reason == "" {
				t.Errorf("%+v", u)
			}
		} else if u.Code != "" {
			t.Errorf("%+v", u)
		} else if u.Reason != "" {
			pushed = append(pushed, u.Reason)
		}
	}
	if want := []string{"updates refs/heads/agent/one, refs/heads/agent/two/three", "updates refs/heads/agent/large"}; !slices.Equal(pushed, want) {
		t.Errorf("the records have %q", pushed)
	}
	// The control: the same push passes where the route names no branches.
	f.mu.Lock()
	f.routed = compiled(t, gitRoute(git.Scope{Repositories: []string{"acme/*"}, Write: true}))
	f.mu.Unlock()
	gitIn(t, work, f.through("push", "-q", "origin", "HEAD:main")...)
	gitIn(t, work, f.through("push", "-q", "-o", "merge", "origin", "HEAD:five")...)
	if up.has(t, "main") == main || up.has(t, "five") == "" {
		t.Error("the control did not arrive")
	}
	f.mu.Lock()
	f.routed = compiled(t, gitRoute(git.Scope{Repositories: []string{"acme/*"}}))
	f.mu.Unlock()
	gitIn(t, work, f.through("fetch", "-q", "origin")...)
	if out, err := tryGit(work, f.through("push", "origin", "HEAD:agent/six")...); err == nil || !strings.Contains(out, "remote: the route allows no pushes: it can only read") || up.has(t, "agent/six") != "" {
		t.Errorf("a push where it only reads: %v: %s", err, out)
	}
}

// What is no push that git sends is refused, and gets no further.
func TestGitHostile(t *testing.T) {
	up := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		_, _ = w.Write(b)
	})
	f := newFixture(t, up.Server, gitRoute(git.Scope{Repositories: []string{"acme/*"}, Write: true, Branches: []string{"agent/**"}}))
	const service = "http://" + string(name) + "/acme/tools/git-receive-pack"
	id := strings.Repeat("1", 40)
	line := func(text string) string { return fmt.Sprintf("%04x%s", len(text)+4, text) }
	push := line(id+" "+id+" refs/heads/agent/x\x00report-status") + "0000PACK"
	for _, tt := range []struct {
		body, encoding string
		status         int
	}{
		{push, "", 200}, {push, "identity", 200}, {packed(push), "gzip", 200}, {"0000", "", 200},
		{push, "gzip", 403}, {packed(push), "", 403}, {packed(push), "br", 403}, {push, "gzip, identity", 403}, {packed(packed(push)), "gzip", 403},
		{"", "", 403}, {"PACK", "", 403}, {"0000" + push, "", 403}, {line(id+" "+id+" refs/heads/agent/x") + "0000", "", 403},
		{line(id + " " + id + " refs/heads/main\x00report-status"), "", 200}, {line(id+" "+id+" refs/heads/main\x00") + "0000", "", 403},
	} {
		req, err := http.NewRequest(http.MethodPost, service, strings.NewReader(tt.body))
		if err != nil {
			t.Fatal(err)
		}
		if tt.encoding != "" {
			req.Header.Set("Content-Encoding", tt.encoding)
		}
		before := up.count()
		res, text := f.do(t, req)
		if res.StatusCode != tt.status || (tt.status != 200) != (res.Header.Get("X-Caisson-Code") != "") && !strings.Contains(tt.body, "main") {
			t.Errorf("%.60q in %q: %d %q", tt.body, tt.encoding, res.StatusCode, text)
		}
		if passed := up.count() > before; passed && (text != push && text != "0000" || up.last(t).Header.Get("Content-Encoding") == "gzip") || passed == (res.Header.Get("X-Caisson-Code") != "") {
			t.Errorf("%.60q in %q: the upstream got %q", tt.body, tt.encoding, text)
		}
	}
	req, _ := http.NewRequest(http.MethodGet, "http://"+string(name)+"/acme/tools/info/refs?service=git-upload-pack", nil)
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "websocket")
	req.Header.Set("X-Original-Url", "/other/tools/info/refs")
	req.Header.Set("Git-Protocol", "version=2")
	res, _ := f.do(t, req)
	if h := up.last(t).Header; res.StatusCode != 200 || h.Get("Upgrade")+h.Get("X-Original-Url") != "" || h.Get("Git-Protocol") != "version=2" || h.Get("Authorization") == "" {
		t.Errorf("%d, %v", res.StatusCode, h)
	}
}

// A key that the upstream does not take is told, and git asks nobody for another one.
func TestGitCredentialDenied(t *testing.T) {
	up := newForge(t)
	r := gitRoute(git.Scope{Repositories: []string{"**"}})
	r.Parameter = "other"
	f := newFixture(t, up.Server, r)
	out, err := tryGit(t.TempDir(), f.through("clone", tools, "x")...)
	if err == nil || !strings.Contains(out, `remote: the upstream does not take the credential "key"`) || strings.Contains(out, "Username") {
		t.Errorf("%v: %s", err, out)
	}
}

func packed(text string) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = io.WriteString(z, text)
	_ = z.Close()
	return b.String()
}
