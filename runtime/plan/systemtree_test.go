package plan

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/layerfs"
	"github.com/caisson-run/caisson/runtime/images"
)

// mountedIn plans binds on targets in an image that has these links.
func mountedIn(t *testing.T, links map[string]string, targets ...string) (*Sandbox, error) {
	t.Helper()
	layer := t.TempDir()
	for name, to := range links {
		path := filepath.Join(layer, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(to, path); err != nil {
			t.Fatal(err)
		}
	}
	pl := testPlanner()
	pl.User = func(images.Stored, string) (Account, error) {
		return Account{User: User{UID: 1000, GID: 1000}, Layers: layerfs.Layers{layer}}, nil
	}
	var r CreateRequest
	for _, target := range targets {
		r.Mounts = append(r.Mounts, bindOn("/srv/a", target))
	}
	return pl.Sandbox(r)
}

// TestMountInSystemTrees: below /etc, /run and /usr there can be mounts, also of files, and
// /var/run is /run.
func TestMountInSystemTrees(t *testing.T) {
	p, err := mountedIn(t, map[string]string{"var/run": "/run"}, "/etc/app", "/etc/app.conf", "/usr/local/share/x", "/var/run/secrets")
	if err != nil {
		t.Fatal(err)
	}
	p.SetFile("/etc/app.conf")
	if dirs, files := p.MountPoints(), p.FilePoints(); !slices.Equal(dirs, []string{"etc/app", "etc", "run/secrets", "usr/local/share/x"}) || !slices.Equal(files, []string{"etc/app.conf"}) {
		t.Errorf("directories %q, files %q", dirs, files)
	}
	if m := p.MountRequests[3]; m.Target != "/var/run/secrets" {
		t.Errorf("it is kept as %q", m.Target)
	}
}

// TestMountBehindLink: what programs find by a link of the image stays there.
func TestMountBehindLink(t *testing.T) {
	for target, tt := range map[string]struct {
		links map[string]string
		want  string
	}{
		"/usr/bin/x":       {map[string]string{"usr/bin": "../bin"}, `the image's /usr/bin is a symbolic link`},
		"/etc/ssl/a/b":     {map[string]string{"etc/ssl": "/opt/ssl"}, `the image's /etc/ssl is a symbolic link`},
		"/etc/localtime":   {map[string]string{"etc/localtime": "/usr/share/x"}, `the image's /etc/localtime is a symbolic link`},
		"/usr/local/x":     {map[string]string{"usr": "opt"}, `the image's /usr is a symbolic link`},
		"/var/run/secrets": {nil, `the image has no link /var/run to /run: name /run/secrets`},
	} {
		if _, err := mountedIn(t, tt.links, target); sbxerr.Of(err) != sbxerr.Workspace || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", target, err)
		}
		if tt.links == nil {
			continue
		}
		if _, err := mountedIn(t, nil, target); err != nil {
			t.Errorf("%s without the link: %v", target, err)
		}
	}
}
