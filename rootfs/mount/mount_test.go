package mount

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/owndir"
	"github.com/caisson-run/caisson/tests/need"
)

func TestAllowedCheck(t *testing.T) {
	host := Allowed{Private: []string{"/data/caisson", "/run/caisson"}}
	limited := Allowed{Roots: []string{"/data/projects", "/usr/src/app"}, Private: host.Private}
	for _, tt := range []struct {
		name    string
		allowed Allowed
		dir     string
		want    string // part of the refusal; empty: allowed
	}{
		{"a project", host, "/home/ann/project", ""},
		{"below root's home", host, "/root/project", ""},
		{"below tmp", host, "/tmp/x", ""},
		{"relative", host, "project", "not a clean absolute path"},
		{"dots", host, "/home/ann/../bob", "not a clean absolute path"},
		{"NUL", host, "/home/\x00", "not a clean absolute path"},
		{"the host", host, "/", "shared by the whole host"},
		{"etc", host, "/etc", "host's /etc"},
		{"below etc", host, "/etc/ssl", "host's /etc"},
		{"looks like etc", host, "/etcetera", "where people keep their work"},
		{"looks like etc, and allowed", Allowed{Roots: []string{"/etcetera"}}, "/etcetera", ""},
		{"scheduled programs", host, "/var/spool/cron/crontabs", "where people keep their work"},
		{"logs", host, "/var/log", "where people keep their work"},
		{"caches", host, "/var/cache/x", "where people keep their work"},
		{"another disk", host, "/work", "where people keep their work"},
		{"settings of root", host, "/root/.config/x", "settings or keys of root"},
		{"keys of root", host, "/root/.ssh", "directory for keys"},
		{"settings of root that are allowed", Allowed{Roots: []string{"/root/.config"}}, "/root/.config/x", ""},
		{"where a link of home leads", Allowed{Linked: []string{"/export/home"}}, "/export/home/ann", ""},
		{"beside it", Allowed{Linked: []string{"/export/home"}}, "/export/homes", "where people keep their work"},
		{"all homes", host, "/home", "shared by the whole host"},
		{"docker's socket place", host, "/var/run", "host's /var/run"},
		{"parent of the state", host, "/data", "daemon's own"},
		{"the state", host, "/data/caisson", "daemon's own"},
		{"inside the state", host, "/data/caisson/x", "daemon's own"},
		{"keys", host, "/home/ann/.ssh", "directory for keys"},
		{"below keys", host, "/home/ann/.config/gcloud/x", "directory for keys"},
		{"in a root, as the default", host, "/var/tmp/x", ""},
		{"in a root", limited, "/data/projects/a", ""},
		{"the root itself", limited, "/data/projects", ""},
		{"a neighbour of a root", limited, "/data/projects2", "outside the allowed roots"},
		{"elsewhere", limited, "/home/ann", "outside the allowed roots"},
		{"a root in a sensitive tree", limited, "/usr/src/app/x", ""},
		{"beside it", limited, "/usr/src", "host's /usr"},
		{"a root never opens the host", Allowed{Roots: []string{"/"}}, "/etc", "host's /etc"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.allowed.Check(tt.dir)
			if tt.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if !errors.Is(err, sbxerr.Workspace) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Check(%q) = %v, want %s with %q", tt.dir, err, sbxerr.Workspace, tt.want)
			}
		})
	}
}

func TestWritePrivate(t *testing.T) {
	dir := realTemp(t)
	if err := WritePrivate(dir, uint32(os.Geteuid()), []string{"opt/data"}, HostFiles("abc")); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"proc", "var/tmp", "opt/data"} {
		if st, err := os.Lstat(filepath.Join(dir, p)); err != nil || !st.IsDir() {
			t.Errorf("%s: %v, %v, want a directory", p, st, err)
		}
	}
	hosts, err := os.ReadFile(filepath.Join(dir, "etc/hosts"))
	if err != nil || !strings.Contains(string(hosts), "abc") {
		t.Errorf("etc/hosts = %q, %v", hosts, err)
	}
	if err := WritePrivate(dir, 0, []string{"../out"}, nil); !errors.Is(err, sbxerr.StateDir) {
		t.Errorf("a mount point outside the root: %v", err)
	}
	if err := RemovePrivate(dir); err != nil {
		t.Fatal(err)
	}
	if err := RemovePrivate(dir); err != nil {
		t.Errorf("a second removal: %v", err)
	}
}

func TestDetachAbsent(t *testing.T) {
	need.Root(t, "it mounts")
	dir := realTemp(t)
	for _, p := range []string{dir, filepath.Join(dir, "absent")} {
		if err := Detach(p); err != nil {
			t.Errorf("Detach(%q) = %v", p, err)
		}
	}
}

// realTemp is a temporary directory on a disk, under its real name: the
// kernel's tmpfs cannot map ids before Linux 6.3.
func realTemp(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "caisson-mount-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil { // others act in it
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := owndir.RemoveTree(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func TestRootAttach(t *testing.T) {
	need.Root(t, "it mounts")
	base := realTemp(t)
	r := newRoot(t, base)
	if err := os.WriteFile(filepath.Join(r.Layers[0], "who"), []byte("upper"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(r.Layers[1], "who"), []byte("lower"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := r.Attach(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := Detach(r.Target); err != nil {
			t.Error(err)
		}
	}()
	who := filepath.Join(r.Target, "who")
	if got, err := os.ReadFile(who); err != nil || string(got) != "upper" {
		t.Errorf("who = %q, %v, want the upper layer's", got, err)
	}
	var st unix.Stat_t
	if err := unix.Stat(who, &st); err != nil || st.Uid != testBase {
		t.Errorf("uid of a layer's file = %d, %v, want %d", st.Uid, err, testBase)
	}
	if err := os.WriteFile(filepath.Join(r.Target, "new"), nil, 0o600); !errors.Is(err, unix.EROFS) {
		t.Errorf("writing into the root: %v, want EROFS", err)
	}
	if entries, err := os.ReadDir(r.Scratch); err != nil || len(entries) > 0 {
		t.Errorf("scratch holds %v, %v", entries, err)
	}
	if err := RemovePrivate(filepath.Dir(r.Target)); err == nil {
		t.Error("RemovePrivate crossed a mount")
	}
}

// testBase is outside the ranges that daemons use.
const testBase = 1_000_000_000

func newRoot(t *testing.T, base string) Root {
	t.Helper()
	dirs := map[string]string{}
	for _, name := range []string{"a", "b", "private", "scratch", "root"} {
		dirs[name] = filepath.Join(base, name)
		if err := os.Mkdir(dirs[name], 0o755); err != nil {
			t.Fatal(err)
		}
	}
	ids := []IDMap{{Disk: 0, Host: testBase, Size: 65536}}
	ns, err := NewUserNS(ids, ids)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ns.Close(); err != nil {
			t.Error(err)
		}
	})
	return Root{Layers: []string{dirs["a"], dirs["b"]}, Private: dirs["private"], Scratch: dirs["scratch"], Target: dirs["root"], IDs: ns}
}

func TestWorkspaceAttach(t *testing.T) {
	need.Root(t, "it mounts")
	base := realTemp(t)
	host, point := filepath.Join(base, "host"), filepath.Join(base, "point")
	for _, d := range []string{host, point} {
		if err := os.Mkdir(d, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(host, 4321, 4322); err != nil {
		t.Fatal(err)
	}
	for _, readOnly := range []bool{false, true} {
		attachWorkspace(t, host, point, readOnly)
		created := filepath.Join(point, "new")
		err := createAs(created, testBase+1000)
		switch {
		case readOnly && !errors.Is(err, unix.EROFS):
			t.Errorf("creating in a read-only workspace: %v", err)
		case !readOnly && err != nil:
			t.Error(err)
		}
		var st unix.Stat_t
		if err := unix.Stat(filepath.Join(host, "new"), &st); err != nil || st.Uid != 4321 || st.Gid != 4322 {
			t.Errorf("on the host: %d:%d, %v, want 4321:4322", st.Uid, st.Gid, err)
		}
		if err := Detach(point); err != nil {
			t.Fatal(err)
		}
	}
}

func attachWorkspace(t *testing.T, host, point string, readOnly bool) {
	t.Helper()
	w := openOwned(t, host)
	ns, err := NewUserNS(w.Owner(testBase+1000, testBase+1000))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Attach(point, readOnly, ns), ns.Close(), w.Close()); err != nil {
		t.Fatal(err)
	}
}

// createAs creates a file with the given file system ids.
func createAs(path string, id int) error {
	return onThrowawayThread(func() error {
		if err := errors.Join(unix.Setfsgid(id), unix.Setfsuid(id)); err != nil {
			return err
		}
		return os.WriteFile(path, nil, 0o600)
	})
}

func TestStage(t *testing.T) {
	need.Root(t, "it mounts")
	dir := filepath.Join(realTemp(t), "sandboxes")
	for range 2 { // a second attach keeps the first
		if err := AttachStage(dir); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "a"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := DetachStage(dir); !errors.Is(err, sbxerr.StateDir) {
		t.Errorf("detaching a stage in use: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, "a")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := DetachStage(dir); err != nil {
			t.Fatal(err)
		}
	}
}

func TestProbe(t *testing.T) {
	need.Root(t, "it mounts")
	if err := Probe(realTemp(t)); err != nil {
		t.Error(err)
	}
	name, err := FSName("/proc")
	if err != nil || name == "" {
		t.Errorf("FSName = %q, %v", name, err)
	}
}

func BenchmarkUserNS(b *testing.B) {
	ids := []IDMap{{Disk: 0, Host: testBase, Size: 65536}}
	for b.Loop() {
		ns, err := NewUserNS(ids, ids)
		if err != nil {
			b.Fatal(err)
		}
		ns.Close()
	}
}
