package keys

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
)

var now = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

func made(t *testing.T, root string, k Key) string {
	t.Helper()
	k.Created = now
	secret, err := Create(root, k)
	if err != nil {
		t.Fatal(err)
	}
	return secret
}

// Only the whole secret of a key that is there and has not expired is found.
func TestFind(t *testing.T) {
	root := t.TempDir()
	ann, bob := made(t, root, Key{Name: "ann", UID: 1000, GID: 1000}), made(t, root, Key{Name: "bob", UID: 1001, Expires: now.Add(time.Hour)})
	b, err := Open(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(ann) < 40 || ann == bob {
		t.Fatalf("secrets %q and %q", ann, bob)
	}
	for secret, want := range map[string]string{ann: "ann", bob: "bob"} {
		if k, err := b.Find(secret, now); err != nil || k.Name != want {
			t.Errorf("%s: %+v, %v", want, k, err)
		}
	}
	for _, wrong := range []string{"", ann[:len(ann)-1], ann + "x", " " + ann, b.list[0].Hash, strings.ToUpper(ann)} {
		if k, err := b.Find(wrong, now); sbxerr.Of(err) != sbxerr.KeyRefused || k != (Key{}) {
			t.Errorf("%q is %+v, %v", wrong, k, err)
		}
	}
	if _, err := b.Find(bob, now.Add(time.Hour)); sbxerr.Of(err) != sbxerr.KeyRefused {
		t.Errorf("an expired key: %v", err)
	}
	data, err := os.ReadFile(File(root))
	if err != nil || strings.Contains(string(data), ann) || strings.Contains(string(data), ann[len(prefix):]) {
		t.Errorf("the file holds the key: %v\n%s", err, data)
	}
	if st, err := os.Stat(File(root)); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
}

// A change is noticed, and a file that cannot be read has no key.
func TestRefresh(t *testing.T) {
	root := t.TempDir()
	b, err := Open(root)
	if err != nil {
		t.Fatal(err)
	}
	secret := made(t, root, Key{Name: "ann", UID: 1000})
	added, removed, err := b.Refresh()
	if err != nil || len(added) != 1 || len(removed) != 0 {
		t.Fatalf("%v, %v, %v", added, removed, err)
	}
	k, err := b.Find(secret, now)
	if err != nil || !b.Counts(k, now) {
		t.Fatal(err)
	}
	if added, removed, err := b.Refresh(); err != nil || len(added)+len(removed) > 0 {
		t.Errorf("%v, %v, %v", added, removed, err)
	}
	good, err := os.ReadFile(File(root))
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{
		"{", `[{"name": "a", "uid": 0, "sha256": "` + k.Hash + `"}]`, `[{"name": "a", "uid": 5, "admin": true, "sha256": "` + k.Hash + `"}]`,
		`[{"name": "a", "uid": 65534, "sha256": "` + k.Hash + `"}]`, `[{"name": "a", "uid": 5}]`, `[{"name": "a b", "uid": 5, "sha256": "` + k.Hash + `"}]`,
	} {
		if err := os.WriteFile(File(root), []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := b.Refresh(); err == nil {
			t.Errorf("%s is read", bad)
		}
		if b.Counts(k, now) {
			t.Errorf("after %s the key counts", bad)
		}
	}
	if err := os.WriteFile(File(root), good, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.Refresh(); err != nil || !b.Counts(k, now) {
		t.Errorf("the mended file: %v", err)
	}
	if err := os.Chmod(File(root), 0o620); err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.Refresh(); err == nil || b.Counts(k, now) {
		t.Errorf("a file that others may write: %v", err)
	}
	if err := os.Chmod(File(root), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Remove(root, "ann"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.Refresh(); err != nil {
		t.Fatal(err)
	}
	if b.Counts(k, now) {
		t.Error("a removed key counts")
	}
	if err := Remove(root, "ann"); sbxerr.Of(err) != sbxerr.KeyNotFound {
		t.Errorf("removed twice: %v", err)
	}
}

// A certificate is that of one entry by its names, and never of a key.
func TestNamed(t *testing.T) {
	root := t.TempDir()
	made(t, root, Key{Name: "build.example.com", UID: 1000, Certificate: true})
	made(t, root, Key{Name: "other.example.com", UID: 1001, Certificate: true})
	made(t, root, Key{Name: "key", UID: 1002})
	b, err := Open(root)
	if err != nil {
		t.Fatal(err)
	}
	if k, err := b.Named([]string{"x", "build.example.com"}, now); err != nil || k.UID != 1000 {
		t.Errorf("%+v, %v", k, err)
	}
	for _, names := range [][]string{nil, {""}, {"key"}, {"build.example"}, {"build.example.com", "other.example.com"}} {
		if k, err := b.Named(names, now); sbxerr.Of(err) != sbxerr.KeyRefused {
			t.Errorf("%q is %+v, %v", names, k, err)
		}
	}
}

func TestCreateRefuses(t *testing.T) {
	root := t.TempDir()
	made(t, root, Key{Name: "ann", UID: 1000})
	for _, k := range []Key{
		{Name: "", UID: 1}, {Name: "a b", UID: 1}, {Name: "../x", UID: 1}, {Name: "root", UID: 0}, {Name: "x", UID: 5, Admin: true}, {Name: "x", UID: 65534}, {Name: "x", UID: 1<<32 - 1},
	} {
		if _, err := Create(root, k); sbxerr.Of(err) != sbxerr.APIUsage {
			t.Errorf("%+v: %v", k, err)
		}
	}
	if _, err := Create(root, Key{Name: "ann", UID: 7}); sbxerr.Of(err) != sbxerr.Exists {
		t.Errorf("%v", err)
	}
	if _, err := Create(root, Key{Name: "boss", Admin: true}); err != nil {
		t.Error(err)
	}
}

// When keys were used outlives the daemon, and what is no such file is none.
func TestUsed(t *testing.T) {
	root := t.TempDir()
	secret := made(t, root, Key{Name: "ann", UID: 1000})
	b, err := Open(root)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Find(secret, now); err != nil {
		t.Fatal(err)
	}
	if err := b.Save(); err != nil {
		t.Fatal(err)
	}
	if used := Used(root)["ann"]; !used.Equal(now) {
		t.Errorf("used at %s", used)
	}
	if err := os.WriteFile(filepath.Join(root, "keys-used.json"), []byte("null"), 0o600); err != nil {
		t.Fatal(err)
	}
	if used := Used(root); used == nil || len(used) > 0 {
		t.Errorf("%v", used)
	}
}
