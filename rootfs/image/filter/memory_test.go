package filter

import (
	"archive/tar"
	"fmt"
	"io"
	goruntime "runtime"
	"testing"
)

// Two imports at the limit of entries stay below 100 MB, with a quarter more that the
// collector has not found yet.
func TestFilterMemory(t *testing.T) {
	const entries = 100_000
	f := NewFilter(DefaultLimits())
	w := f.layer(io.Discard, nil)
	before := heap()
	for i := range entries {
		h := &tar.Header{Name: fmt.Sprintf("d%d/some-file-%d", i/100, i), Typeflag: tar.TypeReg, Mode: 0o644}
		if err := w.Entry(h, nil); err != nil {
			t.Fatal(err)
		}
	}
	each := (heap() - before) / entries
	if both := 2 * each * DefaultLimits().Entries * 5 / 4; both > 100<<20 {
		t.Errorf("an entry takes %d bytes, and two imports %d MiB", each, both>>20)
	}
	goruntime.KeepAlive(w)
}

func heap() int64 {
	var m goruntime.MemStats
	goruntime.GC()
	goruntime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
