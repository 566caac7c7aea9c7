// Package layering holds the project's import rules: who may know whom.
package layering

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/caisson-run/caisson/"

// leaves know nothing of ours but the error codes, the list of settings, the form of findings and what lies below themselves. Of
// each other they know at most small packages without imports of ours: the gateway reads
// what the rules of netns log.
var leaves = []string{"oci", "seccomp", "netns", "cgroups", "rootfs", "gateway", "initproto"}

// rules say what the packages of a room may import of ours. The first room
// whose name is the package, or a folder above it, counts.
var rules = []struct {
	room string
	may  []string // rooms; every package may import its own room
}{
	{"api/sbxerr", nil},
	{"api/units", []string{"api/sbxerr"}},
	{"api/settings", []string{"api/caisson/v1", "api/sbxerr", "api/units"}},
	{"finding", nil},
	{"owndir", nil},
	{"kernelfile", nil},
	{"audit", []string{"api/sbxerr", "owndir"}},
	{"backup", []string{"api/sbxerr", "owndir"}},
	{"bundle", []string{"api/sbxerr"}},
	{"oci", []string{"api/sbxerr"}},
	{"seccomp/decide", nil}, // judges what the compiler makes, so shares nothing with it
	{"seccomp", []string{"api/sbxerr"}},
	{"netns/nflog", nil},
	{"netns/reserved", nil},
	{"netns", []string{"api/sbxerr", "owndir", "kernelfile", "finding", "netns/nflog", "netns/reserved"}},
	{"cgroups", []string{"api/sbxerr", "api/settings", "finding", "kernelfile"}},
	{"rootfs/imagejobs", []string{"api/sbxerr", "rootfs"}},
	{"rootfs/imageproc", []string{"api/sbxerr", "seccomp"}},
	{"rootfs", []string{"api/sbxerr", "owndir"}},
	{"gateway/route/budget", []string{"gateway/route/tokens"}},
	{"gateway/route/tokens", nil},
	{"gateway/route/git", nil},                                           // reads hostile bytes, and knows neither the connection nor the credential
	{"gateway", []string{"api/sbxerr", "netns/nflog", "netns/reserved"}}, // the other end of a socket that netns opens, and the reasons of its rules
	{"initproto", []string{}},
	{"config", []string{"api/sbxerr", "api/settings", "api/units"}},
	{"runtime/events", []string{"api/sbxerr", "runtime/peer"}},
	{"runtime/failpoint", []string{"api/sbxerr"}},
	{"runtime/files", []string{"api/sbxerr", "initproto"}},
	{"runtime/idblock", []string{"api/sbxerr", "owndir"}},
	{"runtime/images", []string{"api/sbxerr", "rootfs/image", "runtime/peer", "runtime/registry"}},
	{"runtime/imageservice", []string{"api/sbxerr", "api/units", "gateway/policy", "netns", "owndir", "rootfs", "runtime/events", "runtime/failpoint", "runtime/images", "runtime/peer", "runtime/plan", "runtime/registry"}},
	{"runtime/journal", []string{"api/sbxerr", "owndir"}},
	{"runtime/memwatch", []string{"api/sbxerr", "cgroups", "kernelfile", "rootfs"}},
	{"runtime/output", []string{"api/sbxerr", "owndir"}},
	{"runtime/peer", []string{"api/sbxerr", "api/settings"}},
	{"runtime/queue", []string{"api/sbxerr", "runtime/peer"}},
	{"runtime/registry", []string{"api/sbxerr", "gateway/policy", "owndir", "rootfs/image", "rootfs/imageproc", "rootfs/imagework"}},
	{"runtime/pid1", []string{"api/sbxerr", "initproto"}},
	{"runtime/pipes", []string{"api/sbxerr"}},
	{"runtime/plan", append([]string{"api/caisson/v1", "api/sbxerr", "api/settings", "finding", "runtime/idblock", "runtime/idle", "runtime/images", "runtime/peer", "runtime/pid1", "runtime/ports", "runtime/volumes", "runtime/owned"}, leaves...)},
	{"runtime/pool", []string{"api/caisson/v1", "api/sbxerr", "api/settings", "cgroups", "netns", "runtime/events", "runtime/failpoint", "runtime/peer", "runtime/plan"}},
	{"runtime/ports", []string{"api/sbxerr"}},
	{"runtime/posture", []string{"api/sbxerr", "kernelfile", "seccomp"}},
	{"runtime/ctrd/shimcall", []string{}},
	{"runtime/ctrd", []string{"api/sbxerr", "owndir", "runtime", "rootfs"}},
	{"runtime/egress", []string{"api/sbxerr", "gateway", "kernelfile", "netns", "runtime/traffic"}},
	{"runtime/traffic", []string{"api/sbxerr", "owndir", "gateway"}},
	{"runtime/clock", []string{"api/sbxerr"}},
	{"runtime/idle", []string{"runtime/clock"}},
	{"runtime/usage", []string{"api/sbxerr", "owndir"}},
	{"runtime/observe", []string{"cgroups", "rootfs/mount", "runtime/events", "runtime/plan", "runtime/usage"}},
	{"runtime/spend", []string{"api/sbxerr", "gateway/route/budget", "owndir"}},
	{"runtime/secrets", nil},
	{"runtime/staging", []string{"api/sbxerr", "runtime/output"}},
	{"runtime/forward", []string{"api/sbxerr"}},
	{"runtime/capacity", []string{"cgroups", "rootfs/disk", "runtime/peer"}},
	{"runtime/layers", []string{"api/sbxerr"}},
	{"runtime/owned", []string{"api/sbxerr"}},
	{"runtime/apply", []string{"api/sbxerr", "api/units", "owndir", "runtime/changes", "runtime/failpoint", "runtime/peer"}},
	{"runtime/changes", []string{}},
	{"runtime/patches", []string{"api/sbxerr", "rootfs/imageproc", "rootfs/patch", "runtime/changes", "runtime/peer"}},
	{"runtime/snapshots", []string{"api/sbxerr", "owndir", "rootfs/disk", "rootfs/image", "rootfs/layertar", "rootfs/mount", "runtime/changes", "runtime/events", "runtime/failpoint", "runtime/images", "runtime/owned", "runtime/peer", "runtime/plan"}},
	{"runtime/workspaces", []string{"api/sbxerr", "owndir", "rootfs/disk", "rootfs/imageproc", "rootfs/mount", "runtime/apply", "runtime/changes", "runtime/events", "runtime/failpoint", "runtime/patches", "runtime/peer"}},
	{"runtime/volumes", []string{"api/sbxerr", "api/units", "owndir", "rootfs/disk", "rootfs/mount", "runtime/events", "runtime/failpoint", "runtime/owned", "runtime/peer"}},
	{"runtime/templates", []string{"api/sbxerr", "gateway/policy", "netns", "owndir", "rootfs/buildplan", "rootfs/layertar", "runtime/events", "runtime/images", "runtime/imageservice", "runtime/peer", "runtime/plan"}},
	{"runtime/doctor", append([]string{"api/sbxerr", "api/settings", "finding", "runtime"}, leaves...)}, // the host as a whole
	{"runtime", append([]string{"api/caisson/v1", "api/sbxerr", "api/settings", "api/units", "finding", "owndir"}, leaves...)},
	{"keys", []string{"api/sbxerr", "owndir"}},
	{"server/remote", []string{"api", "keys", "runtime/peer", "server"}},
	{"server", []string{"runtime", "api"}},
	{"api", []string{"api/sbxerr"}},
	{"metrics", []string{"api/sbxerr", "runtime"}},
	{"tracing", []string{"api/sbxerr", "runtime/events"}},
	{"webhook", []string{"runtime/events"}},
	{"page", []string{"api", "runtime/peer", "server/rest"}},
	{"cmd/internal/man", nil},
	{"cmd/caisson-init", []string{"initproto"}},
	{"cmd/caisson-gateway", []string{"api/sbxerr", "gateway", "netns/nflog", "seccomp"}},
	{"cmd/caisson-images", []string{"rootfs/imagejobs"}},
	{"cmd/caisson-shim", []string{"runtime/ctrd/shimcall"}},
	{"mcp", []string{"api"}},
	{"plug", []string{"api"}},
	{"cmd/caisson", []string{"cmd/internal/man", "mcp", "plug", "api", "audit", "backup", "bundle", "keys"}},
	{"cmd/caissond", append([]string{"cmd/internal/man", "server", "api", "audit", "config", "keys", "metrics", "owndir", "page", "runtime", "tracing", "webhook"}, leaves...)},
	{"tests/need", nil}, // every package's tests may use it
	{"tests", append([]string{"server", "api", "audit", "config", "runtime"}, leaves...)},
}

// only say which packages alone may import something from outside.
var only = []struct {
	path string // and everything below it
	by   []string
}{
	{"github.com/containerd/containerd/v2/client", []string{"runtime/ctrd"}},
	{"github.com/containerd/containerd/v2/core/remotes", []string{"rootfs/registry", "runtime/registry"}},
	{"github.com/aymanbagabas/go-udiff", []string{"rootfs/patch/unified"}},
	{"github.com/coreos/go-iptables", []string{"netns"}},
	{"github.com/vishvananda/netlink", []string{"netns"}},
	{"github.com/seccomp/libseccomp-golang", []string{"seccomp"}},
	{"github.com/spf13/cobra", []string{"cmd"}},
	{"go.yaml.in/yaml/v3", []string{"config", "cmd/caisson"}},
	{"github.com/modelcontextprotocol/go-sdk", []string{"mcp", "tests"}},
	{"github.com/coder/websocket", []string{"plug/codex", "tests"}},
	{"github.com/miekg/dns", []string{"gateway/dns"}},
	{"golang.org/x/net/idna", []string{"gateway/policy"}}, // one canonical form of a name, made in one place
	{"golang.org/x/net/publicsuffix", []string{"gateway/policy"}},
	{"golang.org/x/net/proxy", []string{"gateway/upstream"}},
}

// heavy must not be linked into programs that have to be small.
var heavy = map[string][]string{
	"cmd/caisson":         {"github.com/containerd", module + "runtime", module + "server", "google.golang.org/grpc", "go.yaml.in/yaml", "encoding/gob", "github.com/google/jsonschema-go", module + "mcp", module + "plug/codex"},
	"cmd/caisson-gateway": {"github.com/containerd", module + "runtime", "google.golang.org/", "github.com/spf13"},
	// What parses hostile bytes does not run as root: caisson-images does that.
	"cmd/caissond":     {module + "gateway/proxy", module + "gateway/dns", "github.com/miekg/dns", module + "rootfs/imagejobs", module + "rootfs/dockerfile", module + "rootfs/fromhost", module + "rootfs/image/filter", module + "rootfs/image/signed", module + "rootfs/registry", module + "rootfs/patch/unified", "github.com/aymanbagabas/go-udiff", "github.com/moby/buildkit", "github.com/sigstore/sigstore/pkg/signature"},
	"cmd/caisson-shim": {"net/http", "github.com/containerd", "google.golang.org/grpc", "google.golang.org/protobuf/proto"},
	"cmd/caisson-init": {"net/http", "github.com/", "google.golang.org/", "encoding/json"},
}

type listed struct {
	ImportPath string
	Imports    []string
	Deps       []string
	Error      *struct{ Err string }
}

func list(t *testing.T) []listed {
	t.Helper()
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,Imports,Deps,Error", module+"...")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var packages []listed
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			return packages
		}
		if err != nil {
			t.Fatal(err)
		}
		if p.Error != nil {
			t.Fatalf("%s: %s", p.ImportPath, p.Error.Err)
		}
		packages = append(packages, p)
	}
}

func under(path, room string) bool { return path == room || strings.HasPrefix(path, room+"/") }

func underAny(path string, rooms []string) bool {
	return slices.ContainsFunc(rooms, func(r string) bool { return under(path, r) })
}

func TestImports(t *testing.T) {
	for _, p := range list(t) {
		name := strings.TrimPrefix(p.ImportPath, module)
		i := slices.IndexFunc(rules, func(r struct {
			room string
			may  []string
		}) bool {
			return under(name, r.room)
		})
		if i < 0 {
			t.Errorf("%s has no rule: give it a room", name)
			continue
		}
		for _, imported := range p.Imports {
			checkOwn(t, name, rules[i].room, rules[i].may, imported)
			checkForeign(t, name, imported)
		}
	}
}

func checkOwn(t *testing.T, name, room string, may []string, imported string) {
	t.Helper()
	other, ours := strings.CutPrefix(imported, module)
	if !ours || under(other, room) || underAny(other, may) {
		return
	}
	t.Errorf("%s imports %s; it may import of ours only %q", name, other, may)
}

func checkForeign(t *testing.T, name, imported string) {
	t.Helper()
	for _, o := range only {
		if under(imported, o.path) && !underAny(name, o.by) {
			t.Errorf("%s imports %s, which is for %q alone", name, imported, o.by)
		}
	}
}

// Only the place where everything meets may know both the engine and the API.
func TestEngineMeetsServerInOnePlace(t *testing.T) {
	for _, p := range list(t) {
		engine, server := slices.Contains(p.Imports, module+"runtime/ctrd"), slices.Contains(p.Imports, module+"server")
		if name := strings.TrimPrefix(p.ImportPath, module); engine && server && name != "cmd/caissond" {
			t.Errorf("%s imports both", name)
		}
	}
}

func TestSmallProgramsStaySmall(t *testing.T) {
	for _, p := range list(t) {
		for _, dep := range p.Deps {
			for _, h := range heavy[strings.TrimPrefix(p.ImportPath, module)] {
				if strings.HasPrefix(dep, h) && !strings.HasPrefix(dep, module+"initproto") {
					t.Errorf("%s links %s", p.ImportPath, dep)
				}
			}
		}
	}
}
