package netns

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// newStock has n ready, and says what it discarded.
func newStock(t *testing.T, n int) (s *Stock, discarded *[]error) {
	t.Helper()
	needRoot(t)
	discarded = new([]error)
	s = &Stock{Discarded: func(err error) { *discarded = append(*discarded, err) }}
	t.Cleanup(func() {
		if err := s.Close(); err != nil || s.Len() > 0 {
			t.Errorf("close: %v, %d are left", err, s.Len())
		}
	})
	for range n {
		if err := s.Add(); err != nil {
			t.Fatal(err)
		}
	}
	return s, discarded
}

func TestStock(t *testing.T) {
	eachBackend(t, func(t *testing.T, _ backend) {
		stock, discarded := newStock(t, 2)
		seen := map[uint64]bool{}
		for left := 1; left >= 0; left-- {
			path := newPath(t)
			if taken, err := stock.Take(path); !taken || err != nil || stock.Len() != left {
				t.Fatalf("take = %t, %v; %d are left", taken, err, stock.Len())
			}
			seen[inodeOf(t, path)] = true
			if diffs, err := Check(path, nil); err != nil || len(diffs) > 0 {
				t.Errorf("before it leads: %v, %v", diffs, err)
			}
			s, err := InstallRedirect(path, Redirect{Prefixes: []netip.Prefix{pool}})
			if err != nil {
				t.Fatal(err)
			}
			wantNoDifference(t, path, pool)
			wantLed(t, open(t, path), s, "198.18.0.5:443")
			if err := errors.Join(s.Close(), Remove(path)); err != nil {
				t.Error(err)
			}
		}
		if taken, err := stock.Take(newPath(t)); taken || err != nil || len(seen) != 2 || len(*discarded) > 0 {
			t.Errorf("an empty stock: %t, %v; it gave %d before, and discarded %v", taken, err, len(seen), *discarded)
		}
	})
}

// What is programmed is told, once.
func TestProgramSaysWhatDiffered(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		path := create(t)
		for i, want := range []int{3, 0, 1, 0} { // tables, nothing, a chain, nothing
			if i == 2 {
				runInside(t, open(t, path), fmt.Sprintf("iptables-%s -w -F FORWARD", b))
			}
			if before, err := Program(path); err != nil || len(before) != want {
				t.Errorf("call %d: %v, %v; want %d differences", i, before, err, want)
			}
		}
	})
}

// Whoever changes a namespace that waits changes none of a sandbox.
//
//caisson:host runs iptables four hundred times; TestRulesAreListedOnce compares digests here
func TestStockDiscardsWhatWasChanged(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		for _, line := range []string{"-F OUTPUT", "-I OUTPUT -j ACCEPT", "-R OUTPUT 4 -j ACCEPT", "-P OUTPUT DROP", "-N MINE", "-t nat -F", "-t mangle -A OUTPUT -j ACCEPT"} {
			stock, discarded := newStock(t, 2)
			runInside(t, stock.ready[0], fmt.Sprintf("iptables-%s -w %s", b, line))
			second := stock.ready[1]
			var want unix.Stat_t
			if err := unix.Fstat(int(second.file.Fd()), &want); err != nil {
				t.Fatal(err)
			}
			path := newPath(t)
			taken, err := stock.Take(path)
			if !taken || err != nil || inodeOf(t, path) != want.Ino || len(*discarded) != 1 || sbxerr.Of((*discarded)[0]) != sbxerr.Posture {
				t.Errorf("%s: %t, %v, discarded %v", line, taken, err, *discarded)
			}
		}
	})
}

func TestStockFails(t *testing.T) {
	stock, _ := newStock(t, 1)
	if _, err := stock.Take("relative"); sbxerr.Of(err) != sbxerr.Internal || stock.Len() > 0 {
		t.Errorf("a path that is not absolute: %v", err)
	}
	if err := stock.Add(); err != nil {
		t.Fatal(err)
	}
	path := newPath(t)
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if taken, err := stock.Take(path); taken || !errors.Is(err, fs.ErrExist) {
		t.Errorf("a path that exists: %t, %v", taken, err)
	}
	useCommands(t, nil)
	if err := stock.Add(); sbxerr.Of(err) != sbxerr.NetRule || stock.Len() > 0 {
		t.Errorf("without iptables: %v", err)
	}
	dir := useCommands(t, commandsFor(backendNFT))
	fakeCommand(t, dir, "ip6tables", "exit 1")
	if err := stock.Add(); sbxerr.Of(err) != sbxerr.NetRule || stock.Len() > 0 {
		t.Errorf("iptables that fails: %v", err)
	}
}

// A namespace of a stock is in a descriptor of the process, and has no name before it is
// handed out.
func TestStockHasNoNames(t *testing.T) {
	stock, _ := newStock(t, 1)
	link, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", stock.ready[0].file.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	named := func() bool {
		t.Helper()
		text, err := os.ReadFile("/proc/self/mountinfo")
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(string(text), " "+link+" ")
	}
	if named() {
		t.Errorf("%s is mounted while it waits", link)
	}
	if taken, err := stock.Take(newPath(t)); !taken || err != nil || !named() {
		t.Errorf("the control: %t, %v; it is mounted: %t", taken, err, named())
	}
}
