package usage_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/caisson-run/caisson/runtime/usage"
)

func newStore(t *testing.T, most int) *usage.Store {
	return &usage.Store{Dir: t.TempDir(), Max: most, Age: time.Hour}
}

// What is read is what was written, a full series too, goes on like it, and is small.
func TestStoreKeepsASeries(t *testing.T) {
	store := newStore(t, 2)
	for _, seconds := range []int{0, 5, 4 * 24 * 3600} {
		var s usage.Series
		fill(&s, seconds, 3)
		if err := store.Put("a", map[string]int{"n": seconds}, &s); err != nil {
			t.Fatal(err)
		}
		var about map[string]int
		got, err := store.Get("a", &about)
		if err != nil || about["n"] != seconds || !reflect.DeepEqual(got.Samples(), s.Samples()) {
			t.Errorf("%d seconds: %v, %v, %d samples of %d", seconds, about, err, len(got.Samples()), len(s.Samples()))
		}
		more := usage.Point{At: time.Duration(seconds+1) * time.Second, CPU: time.Hour}
		s.Add(more)
		if got.Add(more); !reflect.DeepEqual(got.Samples(), s.Samples()) {
			t.Errorf("%d seconds: it goes on in another way", seconds)
		}
	}
	if f, err := os.Stat(filepath.Join(store.Dir, "a")); err != nil || f.Size() > 200<<10 || f.Mode() != 0o600 {
		t.Errorf("a full one: %v, %v", f, err)
	}
	if _, err := store.Get("b", new(any)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("one that is not there: %v", err)
	}
}

// It holds as many as it may, the newest, and none for longer than it may.
func TestStoreIsBounded(t *testing.T) {
	store := newStore(t, 3)
	if err := os.WriteFile(filepath.Join(store.Dir, "torn.new"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		id := fmt.Sprint(i)
		if err := store.Put(id, i, &usage.Series{}); err != nil {
			t.Fatal(err)
		}
		at := time.Now().Add(time.Duration(i-10) * time.Minute)
		if err := os.Chtimes(filepath.Join(store.Dir, id), at, at); err != nil {
			t.Fatal(err)
		}
	}
	list := func() (ids []string) {
		if err := store.Each(func(id string, about func(any) error) bool {
			var n int
			if err := about(&n); err != nil || fmt.Sprint(n) != id {
				t.Errorf("%s is about %d, %v", id, n, err)
			}
			ids = append(ids, id)
			return true
		}); err != nil {
			t.Fatal(err)
		}
		return ids
	}
	if got := list(); !reflect.DeepEqual(got, []string{"4", "3", "2"}) {
		t.Errorf("kept: %q", got)
	}
	old := time.Now().Add(-2 * time.Hour)
	if err := os.Chtimes(filepath.Join(store.Dir, "3"), old, old); err != nil {
		t.Fatal(err)
	}
	if got := list(); !reflect.DeepEqual(got, []string{"4", "2"}) {
		t.Errorf("kept, without what is too old: %q", got)
	}
	if err := store.Put("5", 5, &usage.Series{}); err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(store.Dir); err != nil || len(entries) != 3 {
		t.Errorf("files %v, %v", entries, err)
	}
	none := newStore(t, 0)
	if err := none.Put("a", 1, &usage.Series{}); err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(none.Dir); err != nil || len(entries) != 0 {
		t.Errorf("a store for none has %v, %v", entries, err)
	}
}

func BenchmarkPut(b *testing.B) {
	store := &usage.Store{Dir: b.TempDir(), Max: 10, Age: time.Hour}
	var s usage.Series
	fill(&s, 600, 3)
	for b.Loop() {
		if err := store.Put("a", 1, &s); err != nil {
			b.Fatal(err)
		}
	}
}
