package network

import (
	"encoding/json"
	"io"
	"net/http"
	"path"
	"strings"
	"sync"
	"testing"

	"github.com/caisson-run/caisson/tests/need"
)

// lfsStore is a server of Git LFS. It tells clients the credential that it got, as some do.
type lfsStore struct {
	mu      sync.Mutex
	objects map[string][]byte
	asked   []string
}

// serve answers what is of Git LFS, and reports whether it was.
func (s *lfsStore) serve(w http.ResponseWriter, r *http.Request) bool {
	if s == nil || !strings.Contains(r.URL.Path, "/info/lfs/") {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, r.Method+" "+path.Base(r.URL.Path))
	body, _ := io.ReadAll(r.Body)
	switch {
	case strings.HasSuffix(r.URL.Path, "/objects/batch"):
		s.batch(w, r, body)
	case r.Method == http.MethodPut:
		s.objects[path.Base(r.URL.Path)] = body
	case r.Method == http.MethodGet && s.objects[path.Base(r.URL.Path)] != nil:
		_, _ = w.Write(s.objects[path.Base(r.URL.Path)])
	default:
		http.NotFound(w, r)
	}
	return true
}

func (s *lfsStore) batch(w http.ResponseWriter, r *http.Request, body []byte) {
	type object = map[string]any
	var asked struct {
		Operation string
		Objects   []struct {
			OID  string `json:"oid"`
			Size int64  `json:"size"`
		}
	}
	_ = json.Unmarshal(body, &asked)
	var list []object
	for _, o := range asked.Objects {
		action := object{"href": "https://" + r.Host + path.Dir(r.URL.Path) + "/" + o.OID, "header": object{"Authorization": r.Header.Get("Authorization")}}
		list = append(list, object{"oid": o.OID, "size": o.Size, "actions": object{asked.Operation: action}})
	}
	w.Header().Set("Content-Type", "application/vnd.git-lfs+json")
	_ = json.NewEncoder(w).Encode(object{"transfer": "basic", "objects": list})
}

func (s *lfsStore) take() (asked []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked, s.asked = s.asked, nil
	return asked
}

// Large files go by the route too, both ways, and only one way where it is read-only.
func TestRouteLFS(t *testing.T) {
	need.Tools(t, "git-lfs")
	f := startForge(t)
	f.lfs = &lfsStore{objects: map[string][]byte{}}
	reaches(t, forgeAt)
	asks(t, "git.example")
	key := writeFile(t, "key", canary+"\n")
	d := launch(t, routedGit(f, key, ", access: write"))
	d.Run(t, "image", "from-host", "tools", "--package", "git", "--package", "git-lfs", "--package", "dash", "--package", "sed", "--package", "coreutils")
	inside := func(s sandbox, script string) (string, int) {
		r := d.Try("exec", "-q", "-e", "HOME=/tmp", "-e", "GIT_TERMINAL_PROMPT=0", s.id, "--", "sh", "-ec", "git config --global user.name a; git config --global user.email a@b.c; git lfs install >/dev/null; "+script)
		return r.Stdout + r.Stderr, r.Code
	}
	s := createFor(t, d, "--profile", "agent")
	if out, code := inside(s, `git clone -q https://git.example/acme/tools /tmp/tools; cd /tmp/tools
git lfs track '*.bin' >/dev/null; echo large >a.bin; git add .; git commit -q -m large; git push -q origin HEAD:main`); code != 0 {
		t.Fatalf("the push failed: %s", out)
	}
	if asked := strings.Join(f.lfs.take(), ", "); !strings.Contains(asked, "POST batch, PUT ") || len(f.lfs.objects) != 1 {
		t.Errorf("the server was asked %s", asked)
	}
	if out, code := inside(s, "git clone -q https://git.example/acme/tools /tmp/again; cat /tmp/again/a.bin"); code != 0 || out != "large\n" {
		t.Errorf("the clone: %d, %q", code, out)
	}
	if asked := strings.Join(f.lfs.take(), ", "); !strings.Contains(asked, "POST batch, GET ") {
		t.Errorf("the server was asked %s", asked)
	}
	searchCanary(t, d, s, "forge-key", "git.example")

	d.Configure(t, routedGit(f, key, ""))
	d.Run(t, "config", "reload")
	reader := createFor(t, d, "--profile", "agent")
	if out, code := inside(reader, "git clone -q https://git.example/acme/tools /tmp/tools; cat /tmp/tools/a.bin"); code != 0 || out != "large\n" {
		t.Errorf("a clone by a route that reads: %d, %q", code, out)
	}
	f.lfs.take()
	out, code := inside(reader, "cd /tmp/tools; echo more >b.bin; git add .; git commit -q -m more; git lfs push origin main")
	if asked := f.lfs.take(); code == 0 || !strings.Contains(out, "SBX-711: the route allows no pushes") || len(asked) > 0 || len(f.lfs.objects) != 1 {
		t.Errorf("an upload by a route that reads: %d, %q; the server was asked %q", code, out, asked)
	}
}
