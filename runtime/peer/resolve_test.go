package peer

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/tests/need"
)

// openRun is openTemp where others than root can write nothing on the way.
func openRun(t *testing.T) string {
	t.Helper()
	need.Root(t, "only root writes there")
	dir, err := os.MkdirTemp("/run", "caisson-peer-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func symlink(t *testing.T, to, at string) {
	t.Helper()
	if err := os.Symlink(to, at); err != nil {
		t.Fatal(err)
	}
}

// TestCheckWorkspaceFollowsSafeLinks: those of root and of the caller, and no others.
func TestCheckWorkspaceFollowsSafeLinks(t *testing.T) {
	base := openRun(t)
	mkdir(t, base+"/data", 0, 0, 0o755)
	mkdir(t, base+"/data/own", testUID, testGID, 0o755)
	mkdir(t, base+"/data/own/ws", testUID, testGID, 0o755)
	mkdir(t, base+"/group", testUID, testGID, 0o775)
	mkdir(t, base+"/other", testUID+5, testGID, 0o755)
	mkdir(t, base+"/other/root", 0, 0, 0o755)
	symlink(t, base+"/data", base+"/home")
	symlink(t, "../../home/own/./ws", base+"/data/own/back")
	symlink(t, base+"/data/own/ws", base+"/group/link")
	symlink(t, base+"/data/own/ws", base+"/other/link")
	symlink(t, base+"/data/own/ws", base+"/other/root/link")
	symlink(t, "loop", base+"/loop")
	r := rule(func(r *Rule) { r.UIDs = []uint32{testUID} })
	g := grant(t, policy(t, r), testCaller)
	ws := base + "/data/own/ws"
	for _, dir := range []string{"/home/own/ws", "/data/own/back", "/home/own/back", "/data/own/ws"} {
		d, err := g.CheckWorkspace(context.Background(), base+dir, true)
		if err != nil {
			t.Errorf("%s: %v", dir, err)
			continue
		}
		if d.File.Name() != ws {
			t.Errorf("%s is %s", dir, d.File.Name())
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
	for dir, want := range map[string]string{
		"/group/link": "group/link", "/other/link": "other/link", "/other/root/link": "other/root/link", "/loop": "too many symbolic links",
	} {
		err := try(g, base+dir, true)
		refused(t, dir, err, sbxerr.Workspace, want)
		if dir != "/loop" && sbxerr.RemedyOf(err) != "name the directory by its real path (realpath DIR)" {
			t.Errorf("%s: remedy %q", dir, sbxerr.RemedyOf(err))
		}
	}
	r.Workspaces = []string{base + "/home"}
	narrow := grant(t, policy(t, r), testCaller)
	refused(t, "led out of the roots", try(narrow, base+"/home/own/ws", true), sbxerr.Peer, "lies outside of")
	refused(t, "root, by another's link", try(grant(t, Policy{}, User(0, 0, nil, 1)), base+"/data/own/back", true), sbxerr.Workspace, "others than root and uid 0")
}

// TestWorkspaceIsNotLedElsewhere: another user swaps a directory and a link to one of
// the caller's all the time. The control resolves the path first and opens it then.
func TestWorkspaceIsNotLedElsewhere(t *testing.T) {
	base := openRun(t)
	mkdir(t, base+"/secret", testUID, testGID, 0o755)
	mkdir(t, base+"/other", testUID+5, testGID, 0o755)
	mkdir(t, base+"/other/ws", testUID, testGID, 0o755)
	symlink(t, base+"/secret", base+"/other/link")
	done, stopped := make(chan struct{}), make(chan error, 1)
	go func() {
		var err error
		for err == nil {
			select {
			case <-done:
				stopped <- nil
				return
			default:
				err = unix.Renameat2(unix.AT_FDCWD, base+"/other/ws", unix.AT_FDCWD, base+"/other/link", unix.RENAME_EXCHANGE)
			}
		}
		stopped <- err
	}()
	g := grant(t, policy(t, rule(func(r *Rule) { r.UIDs = []uint32{testUID} })), testCaller)
	opened, led, ledControl := 0, 0, 0
	for range 300 {
		if resolved, err := filepath.EvalSymlinks(base + "/other/ws"); err == nil && resolved == base+"/secret" && try(g, resolved, true) == nil {
			ledControl++
		}
		d, err := g.CheckWorkspace(context.Background(), base+"/other/ws", true)
		if err != nil {
			if !errors.Is(err, sbxerr.Workspace) {
				t.Fatal(err)
			}
			continue
		}
		opened++
		if name, err := os.Readlink("/proc/self/fd/" + fdOf(d.File)); err != nil || name == base+"/secret" {
			led++
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	close(done)
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
	if led > 0 || opened == 0 || ledControl == 0 {
		t.Errorf("of %d opened %d were led elsewhere; control: %d of 300", opened, led, ledControl)
	}
	t.Logf("control: led elsewhere in %d of 300 races; here in %d of %d", ledControl, led, opened)
}

func fdOf(f *os.File) string { return strconv.Itoa(int(f.Fd())) }
