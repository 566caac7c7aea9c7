package idblock

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

func TestClaimAndRelease(t *testing.T) {
	a, err := NewAllocator(filepath.Join(t.TempDir(), "ids"), Range{Base: 1 << 20, Blocks: 3})
	if err != nil {
		t.Fatal(err)
	}
	var blocks []Block
	for _, id := range []string{"a", "b", "c"} {
		b, err := a.Claim(id)
		if err != nil {
			t.Fatal(err)
		}
		blocks = append(blocks, b)
	}
	if want := []Block{{1 << 20}, {1<<20 + Size}, {1<<20 + 2*Size}}; fmt.Sprint(blocks) != fmt.Sprint(want) {
		t.Errorf("blocks = %v, want %v", blocks, want)
	}
	if _, err := a.Claim("d"); !errors.Is(err, sbxerr.IDRange) {
		t.Errorf("a claim past the range: %v", err)
	}
	if held, err := a.Held("c"); err != nil || len(held) != 1 || held[0] != blocks[2] || a.Number(held[0]) != 2 {
		t.Errorf("Held = %v, %v", held, err)
	}
	if held, err := a.Held("d"); err != nil || len(held) != 0 {
		t.Errorf("Held by nobody = %v, %v", held, err)
	}
	for range 2 { // absent is success
		if err := a.Release("b"); err != nil {
			t.Fatal(err)
		}
	}
	if b, err := a.Claim("d"); err != nil || b != blocks[1] {
		t.Errorf("Claim = %v, %v, want the released block", b, err)
	}
}

// Two allocators on one directory, as around a restart, never give one block
// to two sandboxes, whatever the order.
func TestClaimsAreExclusive(t *testing.T) {
	dir := t.TempDir()
	var mu sync.Mutex
	owner := map[Block]string{}
	var wg sync.WaitGroup
	for n := range 4 {
		a, err := NewAllocator(dir, Range{Base: 1 << 20, Blocks: 40})
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			for i := range 10 {
				id := fmt.Sprintf("s%d-%d", n, i)
				b, err := a.Claim(id)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if other, taken := owner[b]; taken {
					t.Errorf("%v went to %s and %s", b, other, id)
				}
				owner[b] = id
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if len(owner) != 40 {
		t.Errorf("%d blocks were handed out, want 40", len(owner))
	}
}

// A foreign file is no claim and hinders none; the allocator tells of it.
func TestForeignFiles(t *testing.T) {
	dir := t.TempDir()
	a, err := NewAllocator(dir, Range{Base: 1 << 20, Blocks: 2})
	if err != nil {
		t.Fatal(err)
	}
	foreign := []string{filepath.Join(dir, "0"), filepath.Join(dir, "01"), filepath.Join(dir, "x")}
	for _, path := range foreign {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if b, err := a.Claim("a"); err != nil || a.Number(b) != 1 {
		t.Errorf("Claim = %v, %v", b, err)
	}
	if held, err := a.Held("a"); err != nil || len(held) != 1 {
		t.Errorf("Held = %v, %v", held, err)
	}
	if err := a.Release("a"); err != nil {
		t.Errorf("Release = %v", err)
	}
	if claimed, err := anyIn(dir); err != nil || claimed {
		t.Errorf("after the release: claimed %v, %v", claimed, err)
	}
	if found, err := a.Foreign(); err != nil || !slices.Equal(found, foreign) {
		t.Errorf("Foreign = %q, %v", found, err)
	}
}

// What is no reservation in the registry keeps no daemon from starting, and one that
// nobody can lock is not handed out.
func TestReserveBesideForeignFiles(t *testing.T) {
	registry := t.TempDir()
	first := Range{Base: firstID, Blocks: 4}
	for _, name := range []string{"ids-x", "ids-1-2x"} {
		if err := os.WriteFile(filepath.Join(registry, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(filepath.Join(registry, first.name()), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := Reserve(registry, t.TempDir(), 0, 4)
	if err != nil || overlap(r.Range, first) {
		t.Fatalf("Reserve = %+v, %v", r, err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

func TestReserve(t *testing.T) {
	registry := filepath.Join(t.TempDir(), "registry")
	first, err := Reserve(registry, t.TempDir(), 0, 1024)
	if err != nil {
		t.Fatal(err)
	}
	second, err := Reserve(registry, t.TempDir(), 0, 1024)
	if err != nil {
		t.Fatal(err)
	}
	if first.Base != firstID || uint64(second.Base) != first.end() {
		t.Errorf("ranges start at %d and %d", first.Base, second.Base)
	}
	if _, err := Reserve(registry, t.TempDir(), first.Base+Size, 1); !errors.Is(err, sbxerr.IDRange) {
		t.Errorf("a range inside another's: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Reserve(registry, t.TempDir(), firstID, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []*Reservation{second, again} {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(registry, "ids-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// A daemon that was killed leaves its file, but the lock dies with it.
func TestReserveSweepsTheDead(t *testing.T) {
	registry := t.TempDir()
	stale := filepath.Join(registry, Range{Base: firstID, Blocks: 1024}.name())
	if err := os.WriteFile(stale, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := Reserve(registry, t.TempDir(), 0, 4)
	if err != nil || r.Base != firstID {
		t.Fatalf("Reserve = %+v, %v", r, err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

func TestChooseIsExhausted(t *testing.T) {
	all := Range{Base: firstID, Blocks: (lastID - firstID + 1) / Size}
	if _, err := choose(Range{Blocks: 1}, []Range{all}); err == nil {
		t.Error("a range was found where none is free")
	}
}

// TestRangesOutliveTheirDaemon: sandboxes of a daemon that was killed keep their
// ids to themselves, and the daemon that comes after gets the same range.
func TestRangesOutliveTheirDaemon(t *testing.T) {
	registry, claims := t.TempDir(), t.TempDir()
	first, err := Reserve(registry, claims, 0, 4)
	if err != nil {
		t.Fatal(err)
	}
	a, err := NewAllocator(claims, first.Range)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Claim("sandbox"); err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil { // as good as killed: there is a claim
		t.Fatal(err)
	}
	other, err := Reserve(registry, t.TempDir(), 0, 4)
	if err != nil || overlap(other.Range, first.Range) {
		t.Fatalf("another daemon gets %+v, %v", other, err)
	}
	if r, err := Reserve(registry, t.TempDir(), first.Base, 4); sbxerr.Of(err) != sbxerr.IDRange {
		t.Errorf("another daemon that insists gets %+v, %v", r, err)
	}
	if r, err := Reserve(registry, claims, 0, 5); sbxerr.Of(err) != sbxerr.IDRange {
		t.Errorf("another size: %+v, %v", r, err)
	}
	next, err := Reserve(registry, claims, 0, 4)
	if err != nil || next.Range != first.Range {
		t.Fatalf("the next daemon gets %+v, %v", next, err)
	}
	if err := a.Release("sandbox"); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(next.Close(), other.Close()); err != nil {
		t.Error(err)
	}
	if r, err := Reserve(registry, t.TempDir(), first.Base, 4); err != nil || r.Range != first.Range {
		t.Errorf("with no claim left: %+v, %v", r, err)
	} else if err := r.Close(); err != nil {
		t.Error(err)
	}
}

func TestRangeHolds(t *testing.T) {
	r := Range{Base: 100_000, Blocks: 2}
	for id, want := range map[uint32]bool{99_999: false, 100_000: true, 100_000 + 2*Size - 1: true, 100_000 + 2*Size: false} {
		if r.Holds(id) != want {
			t.Errorf("%+v holds %d: %v", r, id, !want)
		}
	}
}
