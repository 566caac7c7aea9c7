package journal

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
)

type value struct {
	Text string `json:"text"`
}

func newJournal(t *testing.T) *Journal[value] {
	t.Helper()
	path := filepath.Join(t.TempDir(), "journal")
	if err := Create(path); err != nil {
		t.Fatal(err)
	}
	j := New[value](path)
	t.Cleanup(func() {
		if err := j.Close(); err != nil {
			t.Error(err)
		}
	})
	return j
}

func put(t *testing.T, j *Journal[value], number uint32, text string) {
	t.Helper()
	if err := j.Put(number, value{text}); err != nil {
		t.Fatal(err)
	}
}

// wantLoaded compares what another process would find.
func wantLoaded(t *testing.T, path string, want map[uint32]value) {
	t.Helper()
	got, err := New[value](path).Load()
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("loaded %v, %v, want %v", got, err, want)
	}
}

func TestLastValueCounts(t *testing.T) {
	j := newJournal(t)
	wantLoaded(t, j.path, map[uint32]value{})
	put(t, j, 1, "a")
	put(t, j, 2, "b\nb")
	put(t, j, 1, "c")
	wantLoaded(t, j.path, map[uint32]value{1: {"c"}, 2: {"b\nb"}})
	for range 2 { // the second time there is nothing
		if err := j.Drop(1); err != nil {
			t.Fatal(err)
		}
	}
	wantLoaded(t, j.path, map[uint32]value{2: {"b\nb"}})
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	put(t, j, 3, "after a close")
	wantLoaded(t, j.path, map[uint32]value{2: {"b\nb"}, 3: {"after a close"}})
}

func TestGoesOnAfterLoad(t *testing.T) {
	j := newJournal(t)
	put(t, j, 1, "a")
	other := New[value](j.path)
	if _, err := other.Load(); err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	put(t, other, 2, "b")
	if err := other.Drop(1); err != nil {
		t.Fatal(err)
	}
	wantLoaded(t, j.path, map[uint32]value{2: {"b"}})
}

// A line without its end is one whose Put never returned.
func TestTornLine(t *testing.T) {
	j := newJournal(t)
	put(t, j, 1, "a")
	whole, err := os.ReadFile(j.path)
	if err != nil {
		t.Fatal(err)
	}
	put(t, j, 2, "b")
	for _, lost := range []int64{1, 5} {
		if err := os.Truncate(j.path, j.size-lost); err != nil {
			t.Fatal(err)
		}
		other := New[value](j.path)
		if got, err := other.Load(); err != nil || len(got) != 1 {
			t.Fatalf("loaded %v, %v", got, err)
		}
		put(t, other, 3, "c")
		if err := other.Close(); err != nil {
			t.Fatal(err)
		}
		wantLoaded(t, j.path, map[uint32]value{1: {"a"}, 3: {"c"}})
		if err := os.WriteFile(j.path, append(whole, `{"number":2,"value":{"text":"b"}}`+"\n"...), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestForeignLine(t *testing.T) {
	j := newJournal(t)
	if err := os.WriteFile(j.path, []byte("{\"number\":1}\nhello\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := j.Load(); !errors.Is(err, sbxerr.StateDir) || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("got %v", err)
	}
	if _, err := New[value](j.path + "x").Load(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a file: %v", err)
	}
	if err := New[value](j.path+"x").Put(1, value{}); !errors.Is(err, sbxerr.StateDir) {
		t.Errorf("a change without a file: %v", err)
	}
	if err := Create(j.path); !errors.Is(err, os.ErrExist) {
		t.Errorf("created twice: %v", err)
	}
}

// What is out of date does not pile up.
func TestCompacts(t *testing.T) {
	j := newJournal(t)
	put(t, j, 1, "stays")
	for n := uint32(2); n < 3*slack; n++ {
		put(t, j, n, strings.Repeat("x", 100))
		if err := j.Drop(n); err != nil {
			t.Fatal(err)
		}
	}
	put(t, j, 2, "new")
	if j.lines > slack+4 {
		t.Errorf("%d lines for 2 values", j.lines)
	}
	if st, err := os.Stat(j.path); err != nil || st.Size() != j.size {
		t.Errorf("%v, %v, want %d bytes", st.Size(), err, j.size)
	}
	if _, err := os.Stat(Next(j.path)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("left beside it: %v", err)
	}
	wantLoaded(t, j.path, map[uint32]value{1: {"stays"}, 2: {"new"}})
}
