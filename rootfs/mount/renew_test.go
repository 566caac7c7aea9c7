package mount

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/tests/need"
)

// TestRenewal: a live sandbox has the new root with a new file system in it, and the mounts that
// it had. Where a step fails, it has the old root or the new one, and the next call does the rest.
func TestRenewal(t *testing.T) {
	need.Root(t, "it mounts")
	for _, failing := range []string{"none", "begun", "attached", "moved", "pivoted"} {
		t.Run(failing, func(t *testing.T) {
			marked := func(text string) string {
				return newRootWith(t, realTemp(t), func(layer string) {
					err := os.WriteFile(filepath.Join(layer, "mark"), []byte(text), 0o644)
					for _, dir := range []string{"fresh", "fresh/in"} {
						err = errors.Join(err, os.Mkdir(filepath.Join(layer, dir), 0o755))
					}
					if err != nil {
						t.Fatal(err)
					}
				})
			}
			own := realTemp(t)
			if err := os.WriteFile(filepath.Join(own, "kept"), nil, 0o644); err != nil {
				t.Fatal(err)
			}
			s := newStand(t, marked("old"), own, "rw,nosuid,nodev")
			sandbox := s.handles(t)["pidfd"]
			scratch := Live{Target: "/fresh", On: OnAny, Bytes: 1 << 20, Inodes: 100, Owner: testBase}
			if err := scratch.AttachInto(sandbox); err != nil {
				t.Fatal(err)
			}
			inside := func(name string) string { return fmt.Sprintf("/proc/%d/root/%s", s.pid, name) }
			if err := errors.Join(os.WriteFile(inside("fresh/lost"), nil, 0o644), os.Mkdir(inside("fresh/in"), 0o755)); err != nil {
				t.Fatal(err)
			}
			if err := (Live{Target: "/fresh/in", On: OnAny, Bytes: 1 << 20, Inodes: 100, Owner: testBase}).AttachInto(sandbox); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(inside("fresh/in/kept"), nil, 0o644); err != nil {
				t.Fatal(err)
			}
			r := Renewal{Root: marked("new"), Owner: testBase, Fresh: []Fresh{{Target: "/fresh", Options: map[string]string{"mode": "0755"}, Attributes: unix.MOUNT_ATTR_NOSUID}}}
			if err := CheckPoints(r.Root, []string{"/fresh", "/workspace"}); err != nil {
				t.Error(err)
			}
			if err := CheckPoints(r.Root, []string{"/absent"}); err == nil || !strings.Contains(err.Error(), `no place for a mount on "/absent"`) {
				t.Errorf("a root without a place: %v", err)
			}
			mark := func() string {
				text, err := os.ReadFile(inside("mark"))
				if err != nil {
					t.Fatal(err)
				}
				return string(text)
			}
			stop := errors.New("stop")
			err := r.Apply(s.pid, sandbox, func(name string) error {
				if name == failing {
					return stop
				}
				return nil
			})
			if want := failing == "none"; (err == nil) != want || err != nil && !errors.Is(err, stop) {
				t.Fatal(err)
			}
			if got := mark(); (got == "new") != (failing == "none" || failing == "pivoted") {
				t.Errorf("after the failure it has the %s root", got)
			}
			for range 2 { // the second time nothing is missing
				if err := r.Apply(s.pid, sandbox, func(string) error { return nil }); err != nil {
					t.Fatal(err)
				}
			}
			if got := mark(); got != "new" {
				t.Errorf("it has the %s root", got)
			}
			for name, there := range map[string]bool{"workspace/kept": true, "fresh/in/kept": true, "fresh/lost": false} {
				if _, err := os.Stat(inside(name)); (err == nil) != there {
					t.Errorf("%s: %v", name, err)
				}
			}
			for point, want := range map[string]int{"/": 1, "/fresh": 1, "/fresh/in": 1, "/workspace": 1} {
				if got := s.mounts(t, point); len(got) != want {
					t.Errorf("on %s are %q", point, got)
				}
			}
		})
	}
}
