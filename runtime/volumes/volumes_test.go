package volumes

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

var free = func() error { return nil }

// own is the uid of the test, to which it may give files.
var own = uint32(os.Getuid())

func newStore(t *testing.T) (*Store, string) {
	t.Helper()
	dir := t.TempDir()
	return New(dir), dir
}

func names(t *testing.T, s *Store) (list []string) {
	t.Helper()
	all, err := s.List()
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range all {
		list = append(list, v.String())
	}
	return list
}

// holds are the names in dir.
func holds(t *testing.T, dir string) (list []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

func TestParseKey(t *testing.T) {
	for ref, want := range map[string]Key{"a": {Owner: 7, Name: "a"}, "0+a": {Name: "a"}, "1000+a.b-c_d": {Owner: 1000, Name: "a.b-c_d"}, "7": {Owner: 7, Name: "7"}} {
		if got, err := ParseKey(ref, 7); err != nil || got != want {
			t.Errorf("%q: %v, %v", ref, got, err)
		}
	}
	for _, ref := range []string{"", ".", "..", ".new", "a/b", "-a", "a b", "+a", "01+a", "4294967296+a", "-1+a", "1+", "1+.x", "1+2+a", "x+a", "a\n", strings.Repeat("a", 129)} {
		if got, err := ParseKey(ref, 7); !errors.Is(err, sbxerr.Config) {
			t.Errorf("%q: %v, %v", ref, got, err)
		}
	}
}

// TestVolume is the life of a volume: what is written stays until it is removed.
func TestVolume(t *testing.T) {
	s, dir := newStore(t)
	k := Key{Owner: own, Name: "cache"}
	if _, err := s.Get(k); !errors.Is(err, sbxerr.VolumeNotFound) {
		t.Errorf("before: %v", err)
	}
	for i := range 2 {
		d, gid, created, err := s.Open(k, Making{GID: uint32(os.Getgid())})
		if err != nil || created != (i == 0) || gid != uint32(os.Getgid()) {
			t.Fatalf("open %d: %v, %d, %v", i, created, gid, err)
		}
		var st unix.Stat_t
		if err := errors.Join(unix.Fstat(int(d.Fd()), &st), os.WriteFile(d.Name()+"/made", nil, 0o600), d.Close()); err != nil || st.Uid != own || st.Mode&0o777 != 0o755 {
			t.Errorf("%+v, %v", st, err)
		}
		s = New(dir) // as after a restart
	}
	if v, err := s.Get(k); err != nil || v.CreatedAt.IsZero() {
		t.Errorf("%+v, %v", v, err)
	}
	if info, err := os.Lstat(filepath.Join(dir, k.String())); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info, err)
	}
	if got := names(t, s); !slices.Equal(got, []string{k.String()}) {
		t.Errorf("listed %v", got)
	}
	busy := errors.New("busy")
	if _, err := s.Remove(k, func() error { return busy }); !errors.Is(err, busy) || len(names(t, s)) != 1 {
		t.Errorf("in use: %v", err)
	}
	purge, err := s.Remove(k, free)
	if err != nil || len(names(t, s)) != 0 {
		t.Fatalf("%v, %v", names(t, s), err)
	}
	if created, err := s.Create(k, Making{}); err != nil || !created { // another of that name
		t.Fatal(err)
	}
	if err := errors.Join(purge(), s.Sweep()); err != nil || !slices.Equal(holds(t, dir), []string{k.String()}) {
		t.Errorf("%v, %v", holds(t, dir), err)
	}
	if _, err := s.Remove(Key{Owner: own, Name: "none"}, free); !errors.Is(err, sbxerr.VolumeNotFound) {
		t.Errorf("absent: %v", err)
	}
}

// TestVolumesOfOneOwnerAreBounded: those of others do not count.
func TestVolumesOfOneOwnerAreBounded(t *testing.T) {
	s, dir := newStore(t)
	if err := os.Mkdir(filepath.Join(dir, "9+other"), 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		_, err := s.Create(Key{Owner: own, Name: fmt.Sprint("v", i)}, Making{GID: uint32(os.Getgid()), Most: 2})
		if errors.Is(err, sbxerr.Busy) != (i == 2) {
			t.Errorf("%d: %v", i, err)
		}
	}
	if _, err := s.Create(Key{Owner: own, Name: "v1"}, Making{Most: 2}); err != nil {
		t.Errorf("one that is there: %v", err)
	}
}

// TestSweep: what an earlier process left in part goes, and what this one works on stays.
func TestSweep(t *testing.T) {
	s, dir := newStore(t)
	for _, name := range []string{".new/data", ".removed-1/data/deep", "5+kept/data", "foreign"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if got := names(t, s); !slices.Equal(got, []string{"5+kept"}) {
		t.Errorf("listed %v", got)
	}
	purge, err := s.Remove(Key{Owner: 5, Name: "kept"}, free) // .removed-1 is taken
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Sweep(); err != nil || !slices.Equal(holds(t, dir), []string{".removed-2", "foreign"}) {
		t.Errorf("%v, %v", holds(t, dir), err)
	}
	if err := purge(); err != nil || !slices.Equal(holds(t, dir), []string{"foreign"}) {
		t.Errorf("%v, %v", holds(t, dir), err)
	}
}

// TestAtOnce: many open and remove one volume, and each that opens it has it.
func TestAtOnce(t *testing.T) {
	s, dir := newStore(t)
	k := Key{Owner: own, Name: "v"}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				d, _, _, err := s.Open(k, Making{GID: uint32(os.Getgid())})
				if err != nil {
					t.Error(err)
					return
				}
				if err := d.Close(); err != nil {
					t.Error(err)
				}
				purge, err := s.Remove(k, free)
				if err == nil {
					err = purge()
				}
				if err != nil && !errors.Is(err, sbxerr.VolumeNotFound) {
					t.Error(err)
				}
			}
		})
		wg.Go(func() {
			for range 50 {
				if err := s.Sweep(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if left := holds(t, dir); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}
