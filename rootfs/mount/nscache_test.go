package mount

import (
	"errors"
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// fakeNS makes namespaces out of nothing and counts them.
func fakeNS(t *testing.T, limit int) (*UserNSCache, *int) {
	t.Helper()
	made := new(int)
	var mu sync.Mutex
	c := NewUserNSCache(limit)
	c.make = func(_, _ []IDMap) (*UserNS, error) {
		mu.Lock()
		defer mu.Unlock()
		*made++
		f, err := os.Open(os.DevNull)
		return &UserNS{file: f}, err
	}
	return c, made
}

func ids(n uint32) []IDMap { return []IDMap{{Disk: n, Host: n, Size: 1}} }

func TestUserNSCache(t *testing.T) {
	c, made := fakeNS(t, 2)
	get := func(uid, gid uint32) {
		t.Helper()
		ns, err := c.Get(ids(uid), ids(gid))
		if err != nil {
			t.Fatal(err)
		}
		var st unix.Stat_t
		if err := unix.Fstat(int(ns.file.Fd()), &st); err != nil { // also when it was dropped meanwhile
			t.Error(err)
		}
		if err := ns.Close(); err != nil {
			t.Error(err)
		}
	}
	for i, step := range []struct {
		uid, gid uint32
		made     int
	}{{1, 1, 1}, {1, 1, 1}, {1, 2, 2}, {1, 1, 2}, {2, 1, 3}, {1, 1, 3}, {1, 2, 4}, {2, 1, 5}} {
		if get(step.uid, step.gid); *made != step.made {
			t.Errorf("step %d: %d were made, want %d", i, *made, step.made)
		}
	}
	if len(c.kept) != 2 {
		t.Errorf("%d are kept", len(c.kept))
	}
	for range 2 {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	if get(2, 1); *made != 6 || len(c.kept) != 0 {
		t.Errorf("after Close: %d made, %d kept", *made, len(c.kept))
	}
}

func TestUserNSCacheFails(t *testing.T) {
	c, _ := fakeNS(t, 2)
	broken := errors.New("broken")
	c.make = func(_, _ []IDMap) (*UserNS, error) { return nil, broken }
	if ns, err := c.Get(ids(1), ids(1)); ns != nil || !errors.Is(err, broken) || len(c.kept) > 0 {
		t.Errorf("Get = %v, %v", ns, err)
	}
	if _, err := NewUserNSCache(0).Get(nil, nil); !errors.Is(err, sbxerr.Internal) {
		t.Errorf("Get of no mapping = %v", err)
	}
}

func TestUserNSCacheConcurrently(t *testing.T) {
	c, made := fakeNS(t, 3)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 100 {
				ns, err := c.Get(ids(uint32(i+j)%5), ids(1))
				if err != nil {
					t.Error(err)
					return
				}
				if err := ns.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if *made == 0 || len(c.kept) > 3 {
		t.Errorf("%d made, %d kept", *made, len(c.kept))
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}
