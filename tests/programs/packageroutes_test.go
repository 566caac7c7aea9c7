package programs

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/caisson-run/caisson/tests/harness"
	"github.com/caisson-run/caisson/tests/need"
)

// token is what the index of TestPackageRoutes asks for.
const token = "pk-5f1c0a9e7d3b2846"

// TestPackageRoutes installs packages with the token of an index that no sandbox has: npm, pip
// and go ask routes, by their presets.
func TestPackageRoutes(t *testing.T) {
	need.Tools(t, "mkfs.ext4", "npm", "node", "python3", "go")
	s := &setup{mux: http.NewServeMux()}
	var mu sync.Mutex
	asked := map[string]int{} // by the header of authentication
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		mu.Lock()
		asked[strings.SplitN(r.URL.Path[1:], "/", 2)[0]+" "+user]++
		mu.Unlock()
		if password != token && r.Header.Get("Authorization") != "Bearer "+token {
			http.Error(w, "who are you?", http.StatusForbidden)
			return
		}
		s.mux.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	s.Daemon = harness.StartWith(t, fmt.Sprintf(`network: {map: {%s: %q}}
secrets: {index: "file:%s"}
profiles:
  packages:
    image: tools
    user: root
    root_user: setup
    rootfs: rw
    memory: 2G
    seccomp: compat
    env: [npm_config_update_notifier=false, PIP_DISABLE_PIP_VERSION_CHECK=1, GONOSUMDB=*, GOFLAGS=-mod=mod, CGO_ENABLED=0]
    routes:
      js: {preset: npm, upstream: "http://%[1]s/npm", credential: index}
      py: {preset: pip, upstream: "http://%[1]s/simple", credential: index}
      mod: {preset: go, upstream: "http://%[1]s/go", credential: index}
`, index, server.Listener.Addr(), file))
	s.tools(t)

	dir := t.TempDir()
	write(t, filepath.Join(dir, "left/package.json"), `{"name": "@our/left", "version": "1.2.0", "main": "index.js"}`)
	write(t, filepath.Join(dir, "left/index.js"), `module.exports = "left"`)
	command(t, filepath.Join(dir, "left"), "npm", "pack", "--silent", "--cache", filepath.Join(dir, "cache"), "--pack-destination", dir)
	s.publish(t, filepath.Join(dir, "left"), "@our/left", "1.2.0")
	s.serve("/npm/-/", dir)
	wheels := t.TempDir()
	wheel(t, wheels, "words", "words.py", "word = 'world'\n", "", "")
	s.serve("/simple/", wheels)
	s.module(t)

	id := strings.TrimSpace(s.Run(t, "create", "--profile", "packages", "--cpus", "2", "--mount", "type=bind,src="+toolchain(t)+",dst=/toolchain,ro").Stdout)
	t.Cleanup(func() { s.Run(t, "rm", "--force", id) })
	for script, want := range map[string]string{
		"npm install --loglevel=error --prefix /opt @our/left; cd /opt; node -p 'require(\"@our/left\")'":                                          "left\n",
		"python3 -m venv /env; /env/bin/pip -q install words; /env/bin/python -c 'import words; print(words.word)'":                                "world\n",
		"export PATH=/toolchain/bin:$PATH; mkdir /app; cd /app; go mod init app 2>/dev/null; go get " + index + "/lib 2>/dev/null; go list -m all": "app\n" + index + "/lib v1.0.0\n",
		"env | grep -c " + token + " || true": "0\n",
	} {
		if r := s.Try("exec", id, "--", "sh", "-ec", script); r.Code != 0 || !strings.HasSuffix(r.Stdout, want) {
			t.Errorf("%s: exit code %d, want %q:\n%s%s", script, r.Code, want, r.Stdout, r.Stderr)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	for _, want := range []string{"npm ", "simple __token__", "go "} {
		if asked[want] == 0 {
			t.Errorf("nobody asked as %q: %v", want, asked)
		}
	}
}
