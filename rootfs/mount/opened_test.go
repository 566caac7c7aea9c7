package mount

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/tests/need"
)

func openPath(t *testing.T, dir string) *os.File {
	t.Helper()
	f, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// openOwned makes a workspace of dir in which a sandbox acts as its owner.
func openOwned(t *testing.T, dir string) *Workspace {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		t.Fatal(err)
	}
	w, err := Allowed{}.Opened(openPath(t, dir), Identity{UID: st.Uid, GID: st.Gid})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestMap(t *testing.T) {
	w := &Workspace{UID: 7, GID: 8, groups: []uint32{9, 10}}
	uids, gids, err := w.Map(testBase, 1000, 1001)
	if err != nil {
		t.Fatal(err)
	}
	if want := []IDMap{{7, testBase + 1000, 1}}; !slices.Equal(uids, want) {
		t.Errorf("uids %v, want %v", uids, want)
	}
	want := []IDMap{{8, testBase + 1001, 1}, {9, testBase + FirstGroupSlot, 1}, {10, testBase + FirstGroupSlot + 1, 1}}
	if !slices.Equal(gids, want) {
		t.Errorf("gids %v, want %v", gids, want)
	}
	for _, gid := range []uint32{FirstGroupSlot, FirstGroupSlot + GroupSlots - 1} {
		if _, _, err := w.Map(testBase, 1000, gid); sbxerr.Of(err) != sbxerr.Config {
			t.Errorf("gid %d: %v", gid, err)
		}
	}
	if ids := GroupSlotIDs(); len(ids) != GroupSlots || ids[0] != FirstGroupSlot || ids[GroupSlots-1] != FirstGroupSlot+GroupSlots-1 {
		t.Errorf("slots %v", ids)
	}
}

func TestOpenedRefuses(t *testing.T) {
	gone := t.TempDir()
	removed := openPath(t, gone)
	if err := os.Remove(gone); err != nil {
		t.Fatal(err)
	}
	for want, open := range map[string]func() (*os.File, Identity){
		"host's /etc":   func() (*os.File, Identity) { return openPath(t, "/etc"), Identity{} },
		"has 33 groups": func() (*os.File, Identity) { return openPath(t, t.TempDir()), Identity{Groups: make([]uint32, 33)} },
		"any more":      func() (*os.File, Identity) { return removed, Identity{} },
	} {
		dir, as := open()
		_, err := Allowed{}.Opened(dir, as)
		if !errors.Is(err, sbxerr.Workspace) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		if err := dir.Close(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("%s: the refused directory is still open: %v", want, err)
		}
	}
}

// asSandbox runs fn with the ids that a command of the sandbox at testBase has
// on the host, its group slots included.
func asSandbox(slots int, fn func() error) error {
	return onThrowawayThread(func() error {
		groups := make([]int, slots)
		for i := range groups {
			groups[i] = testBase + FirstGroupSlot + i
		}
		if err := errors.Join(unix.Setgroups(groups), unix.Setfsgid(testBase+1000), unix.Setfsuid(testBase+1000)); err != nil {
			return err
		}
		return fn()
	})
}

// attachAs attaches host at point for a sandbox that acts as the given identity.
func attachAs(t *testing.T, host, point string, as Identity) {
	t.Helper()
	w, err := Allowed{}.Opened(openPath(t, host), as)
	if err != nil {
		t.Fatal(err)
	}
	uids, gids, err := w.Map(testBase, 1000, 1000)
	if err != nil {
		t.Fatal(err)
	}
	ns, err := NewUserNS(uids, gids)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Attach(point, false, ns), ns.Close(), w.Close()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := Detach(point); err != nil {
			t.Error(err)
		}
	})
}

// TestOpenedIsNoWayToTheOwner: a directory of somebody else's that everybody
// may read. Who acts as its owner writes in it; who acts as itself does not.
func TestOpenedIsNoWayToTheOwner(t *testing.T) {
	need.Root(t, "it mounts")
	base := realTemp(t)
	dirs := map[string]string{}
	for _, name := range []string{"host", "owner", "peer"} {
		dirs[name] = filepath.Join(base, name)
		if err := os.Mkdir(dirs[name], 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(dirs["host"], 4321, 4322); err != nil {
		t.Fatal(err)
	}
	attachAs(t, dirs["host"], dirs["owner"], Identity{UID: 4321, GID: 4322})
	if err := asSandbox(0, func() error { return os.WriteFile(filepath.Join(dirs["owner"], "a"), nil, 0o600) }); err != nil {
		t.Fatalf("the probe does not work as the owner: %v", err)
	}
	attachAs(t, dirs["host"], dirs["peer"], Identity{UID: 5321, GID: 5322})
	for name, attack := range map[string]func(string) error{
		"create": func(p string) error { return os.WriteFile(filepath.Join(p, "b"), nil, 0o600) },
		"remove": func(p string) error { return os.Remove(filepath.Join(p, "a")) },
		"read":   func(p string) error { _, err := os.ReadFile(filepath.Join(p, "a")); return err },
		"chmod":  func(p string) error { return os.Chmod(p, 0o777) },
		"chown":  func(p string) error { return os.Chown(p, testBase+1000, testBase+1000) },
	} {
		err := asSandbox(GroupSlots, func() error { return attack(dirs["peer"]) })
		// EOVERFLOW: the kernel changes nothing of an inode whose owner has no id here.
		if !errors.Is(err, unix.EACCES) && !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EOVERFLOW) {
			t.Errorf("%s as another user: %v", name, err)
		}
	}
	if err := asSandbox(0, func() error { _, err := os.ReadDir(dirs["peer"]); return err }); err != nil {
		t.Errorf("reading what everybody may read: %v", err)
	}
}

// TestOpenedCarriesGroups: what is made in a directory of a supplementary group
// belongs to it, and its members still may not read what others may.
func TestOpenedCarriesGroups(t *testing.T) {
	need.Root(t, "it mounts")
	base := realTemp(t)
	host, point := filepath.Join(base, "host"), filepath.Join(base, "point")
	shared, closed := filepath.Join(host, "shared"), filepath.Join(host, "closed")
	for dir, mode := range map[string]os.FileMode{host: 0o755, point: 0o755} {
		if err := os.Mkdir(dir, mode); err != nil {
			t.Fatal(err)
		}
	}
	err := errors.Join(
		os.Mkdir(shared, 0o700), os.Chown(shared, 5321, 6322), os.Chmod(shared, os.ModeSetgid|0o770),
		os.Mkdir(closed, 0o700), os.Chown(closed, 0, 6322), os.Chmod(closed, 0o705))
	if err != nil {
		t.Fatal(err)
	}
	attachAs(t, host, point, Identity{UID: 5321, GID: 5322, Groups: []uint32{6322}})
	list := func() error { _, err := os.ReadDir(filepath.Join(point, "closed")); return err }
	if err := asSandbox(0, list); err != nil {
		t.Fatalf("without the slots the mode for others counts, or the probe is wrong: %v", err)
	}
	if err := asSandbox(GroupSlots, list); !errors.Is(err, unix.EACCES) {
		t.Errorf("listing what the group may not: %v", err)
	}
	err = asSandbox(GroupSlots, func() error { return os.WriteFile(filepath.Join(point, "shared", "new"), nil, 0o640) })
	if err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(shared, "new"), &st); err != nil || st.Uid != 5321 || st.Gid != 6322 {
		t.Errorf("on the host: %d:%d, %v, want 5321:6322", st.Uid, st.Gid, err)
	}
}
