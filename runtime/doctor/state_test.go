package doctor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
)

func TestSpace(t *testing.T) {
	for name, tt := range map[string]struct {
		space     space
		sandboxes int
		want      string
	}{
		"enough":            {space{bytes: 10 << 20, inodes: 1280}, 80, ""},
		"too few bytes":     {space{dir: "/s", bytes: 10<<20 - 1, inodes: 1280}, 80, `9 MiB and 1280 inodes are free in "/s"; 80 sandboxes (sandboxes.max) need 10 MiB and 1280 inodes`},
		"too few inodes":    {space{bytes: 10 << 20, inodes: 1279}, 80, "1279 inodes"},
		"inodes as needed":  {space{bytes: 10 << 20, endless: true}, 80, ""},
		"no sandbox at all": {space{}, 0, ""},
	} {
		err := tt.space.forSandboxes(tt.sandboxes)
		if got := err != nil; got != (tt.want != "") || got && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}

// A directory that others cannot pass is named, also where a link leads to it.
func TestStatePath(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	closed, link := filepath.Join(dir, "closed"), filepath.Join(dir, "link")
	state := filepath.Join(closed, "state")
	for _, err := range []error{os.MkdirAll(state, 0o711), os.Symlink(state, link)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if c := one(t, examineStatePath(state)); c.Status != OK {
		t.Errorf("a way that is open: %+v", c)
	}
	if err := os.Chmod(closed, 0o710); err != nil {
		t.Fatal(err)
	}
	for _, way := range []string{state, link, filepath.Join(closed, "not", "there", "yet")} {
		c := one(t, examineStatePath(way))
		if c.Status != Fail || c.Code != string(sbxerr.StatePath) || !strings.Contains(c.Detail, `closed" has mode 0710`) || !strings.Contains(c.Remedy, "chmod o+x") {
			t.Errorf("%s: %+v", way, c)
		}
	}
}
