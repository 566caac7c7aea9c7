package fault

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPrunedForRoom: while less is free than the policy wants, images go that nothing needs,
// the ones first that were stored first. Those that something needs stay, and so do all
// that were used lately.
func TestPrunedForRoom(t *testing.T) {
	const size = 6 << 20
	makes := func(t *testing.T, d *tight, name string) {
		t.Helper()
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "Dockerfile"), fmt.Appendf(nil, "FROM base\nUSER root\nRUN head -c %d /dev/urandom > /more\n", size), 0o644); err != nil {
			t.Fatal(err)
		}
		d.Run(t, "image", "build", "--no-cache", name, dir) // stored, and unpacked
	}
	there := func(t *testing.T, d *tight) string {
		t.Helper()
		var list []struct{ Name string }
		d.Run(t, "image", "ls", "-o", "json").JSON(t, &list)
		var all []string
		for _, i := range list {
			all = append(all, i.Name)
		}
		return strings.Join(all, " ")
	}
	fill := func(t *testing.T, d *tight) {
		t.Helper()
		for _, name := range []string{"first", "used", "old", "profiled", "young"} {
			makes(t, d, name)
		}
	}
	const profile = "profiles: {p: {image: profiled}}\nimages: {prune: {min_free: 50%, unused_for: "
	t.Run("unused for no time", func(t *testing.T) {
		d := newTightWith(t, profile+"0s}}\n")
		fill(t, d)
		d.Run(t, "create", "--image", "used")
		if all := there(t, d); all != "base first old profiled used young" {
			t.Fatalf("with room there are %s", all)
		}
		grow := d.shrink(t, "root", d.used(t, "root")-size, much)
		makes(t, d, "latest")
		await(t, "the oldest to go", func() bool { return !strings.Contains(there(t, d), "old ") })
		grow()
		if all := there(t, d); all != "base latest profiled used young" {
			t.Errorf("there are %s", all)
		}
		if out := d.Run(t, "run", "--image", "latest", "--", "sh", "-c", "wc -c < /more").Stdout; strings.TrimSpace(out) != fmt.Sprint(size) {
			t.Errorf("what is left prints %q", out)
		}
		checkSound(t, d.Daemon)
	})
	t.Run("used lately", func(t *testing.T) {
		d := newTightWith(t, profile+"1h}}\n")
		fill(t, d)
		grow := d.shrink(t, "root", d.used(t, "root")/2, much)
		makes(t, d, "latest")
		await(t, "the log to tell", func() bool { return strings.Contains(d.Log(), "room on the disk of images") })
		grow()
		if all := there(t, d); all != "base first latest old profiled used young" {
			t.Errorf("there are %s", all)
		}
	})
}

// TestFullBuildAndLoad: a build or a bundle that there is no room for is refused, in
// whichever step that shows. Nothing of it stays, and it succeeds when there is room.
func TestFullBuildAndLoad(t *testing.T) {
	d := newTight(t)
	const size = 6 << 20
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	recipe := fmt.Sprintf("FROM base\nCOPY file /\nUSER root\nRUN head -c %d /dev/urandom > /more\n", size)
	for name, content := range map[string]string{"Dockerfile": recipe, "file": strings.Repeat("x", size)} {
		if err := os.WriteFile(at(name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	d.Run(t, "image", "import", "--name", "carried", archiveOf(t, size, 100))
	d.Run(t, "bundle", "keygen", at("key"))
	d.Run(t, "bundle", "create", "-f", at("bundle"), "--key", at("key"), "--image", "carried")
	d.Run(t, "image", "rm", "carried")
	before := d.used(t, "root")
	for kind, args := range map[string][]string{
		"build": {"image", "build", "--no-cache", "made", dir},
		"load":  {"bundle", "load", at("bundle"), "--key", at("key.pub")},
	} {
		for _, left := range []int64{size / 2, size * 3 / 2, size * 5 / 2} {
			t.Run(fmt.Sprintf("%s %d", kind, left), func(t *testing.T) {
				grow := d.shrink(t, "root", left, much)
				r := d.Try(args...)
				if r.Code == 0 && left < size {
					t.Error("it succeeded without room")
				}
				if r.Code != 0 && (!strings.Contains(r.Stderr, "[SBX-") || !strings.Contains(r.Stderr, "remedy:")) {
					t.Errorf("no code, or no remedy: %+v", r)
				}
				if out := d.Run(t, "image", "ls").Stdout; r.Code != 0 && (strings.Contains(out, "made") || strings.Contains(out, "carried")) {
					t.Errorf("half an image is listed:\n%s", out)
				}
				grow()
				if out := d.Run(t, "run", "--", "echo", "ok").Stdout; out != "ok\n" {
					t.Errorf("a run printed %q", out)
				}
				d.Try("image", "rm", "made")
				d.Try("image", "rm", "carried")
				d.Run(t, "image", "prune", "--filter", "unused")
				await(t, "room as before", func() bool { return d.used(t, "root") < before+size/4 })
			})
		}
	}
	d.Run(t, "image", "build", "made", dir)
	d.Run(t, "bundle", "load", at("bundle"), "--key", at("key.pub"))
	checkSound(t, d.Daemon)
}
