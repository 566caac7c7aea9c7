package programs

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/caisson-run/caisson/tests/harness"
	"github.com/caisson-run/caisson/tests/need"
	"github.com/caisson-run/caisson/tests/regtest"
)

// guarded is a registry that wants the token of TestPackageRoutes, or one that it gives for that.
type guarded struct {
	*regtest.Registry
	bearer bool
	grants atomic.Int64
	pushes atomic.Int64
}

const grantedToken = "granted-9d1c5b7a3e0f"

func (g *guarded) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, password, _ := r.BasicAuth()
	switch {
	case g.bearer && r.URL.Path == "/token" && password == token:
		g.grants.Add(1)
		_ = json.NewEncoder(w).Encode(map[string]any{"token": grantedToken})
	case g.bearer && r.Header.Get("Authorization") != "Bearer "+grantedToken:
		w.Header().Set("Www-Authenticate", fmt.Sprintf(`Bearer realm="http://%s/token",service="tests"`, r.Host))
		w.WriteHeader(http.StatusUnauthorized)
	case !g.bearer && password != token:
		w.Header().Set("Www-Authenticate", `Basic realm="tests"`)
		w.WriteHeader(http.StatusUnauthorized)
	default:
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			g.pushes.Add(1)
		}
		g.Registry.ServeHTTP(w, r)
	}
}

// TestRegistryRoutes pulls with skopeo from registries that want a password or a token, which no
// sandbox has.
func TestRegistryRoutes(t *testing.T) {
	need.Tools(t, "skopeo", "dpkg")
	reg := regtest.Start(t)
	reg.Push(t, "acme/tools", "1", regtest.Tar(t, "mark", "pulled"))
	reg.Push(t, "acme/secret", "1", regtest.Tar(t, "mark", "secret"))
	basic, bearer := &guarded{Registry: reg}, &guarded{Registry: reg, bearer: true}
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	maps, routes := "", ""
	for label, g := range map[string]*guarded{"basic": basic, "bearer": bearer} {
		server := httptest.NewServer(g)
		t.Cleanup(server.Close)
		maps += fmt.Sprintf("%s.example: %q, ", label, server.Listener.Addr())
		routes += fmt.Sprintf("      %s: {preset: oci, upstream: \"http://%[1]s.example\", credential: index, repositories: [acme/tools]}\n", label)
	}
	d := harness.StartWith(t, fmt.Sprintf("network: {map: {%s}}\nsecrets: {index: \"file:%s\"}\nprofiles:\n  images:\n    image: tools\n    memory: 1G\n    routes:\n%s", strings.TrimSuffix(maps, ", "), file, routes))
	d.Run(t, "image", "from-host", "tools", "--package", "skopeo", "--package", "dash", "--package", "coreutils")
	conf := filepath.Join(t.TempDir(), "registries.conf")
	text := "[[registry]]\nprefix = \"images.example\"\nlocation = \"bearer.caisson.internal\"\ninsecure = true\n"
	if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	id := strings.TrimSpace(d.Run(t, "create", "--profile", "images").Stdout)
	t.Cleanup(func() { d.Run(t, "rm", "--force", id) })
	const skopeo = "skopeo --insecure-policy --tmpdir /tmp "
	for _, tt := range []struct{ script, want string }{
		{skopeo + "copy -q --src-tls-verify=false docker://basic.caisson.internal/acme/tools:1 dir:/tmp/basic; ls /tmp/basic | grep -c manifest", "1\n"},
		{skopeo + "copy -q --src-tls-verify=false docker://bearer.caisson.internal/acme/tools:1 dir:/tmp/bearer; ls /tmp/bearer | grep -c manifest", "1\n"},
		{skopeo + "--registries-conf /tmp/registries.conf inspect --no-tags --format {{.Name}} docker://images.example/acme/tools:1", "images.example/acme/tools\n"},
		{skopeo + "inspect --tls-verify=false docker://basic.caisson.internal/acme/secret:1 2>&1 | grep -c SBX-711", "1\n"},
		{skopeo + "copy -q --dest-tls-verify=false dir:/tmp/basic docker://basic.caisson.internal/acme/tools:2 2>&1 | grep -c SBX-711", "1\n"},
		{"env | grep -c " + token + " || true", "0\n"},
	} {
		if r := d.Try("exec", "--input", conf+":/tmp/registries.conf:0444", id, "--", "sh", "-ec", tt.script); r.Code != 0 || r.Stdout != tt.want {
			t.Errorf("%s: exit code %d, want %q:\n%s%s", tt.script, r.Code, tt.want, r.Stdout, r.Stderr)
		}
	}
	if n := basic.pushes.Load(); n != 0 {
		t.Errorf("%d requests to push arrived", n)
	}
	if n := bearer.grants.Load(); n == 0 {
		t.Error("no token was asked for")
	}
}
