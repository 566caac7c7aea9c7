package output

import (
	"math"
	"slices"
	"testing"
	"time"
)

const ms = int64(time.Millisecond)

func TestTimes(t *testing.T) {
	three := []mark{{0, 100 * ms, 100 * ms}, {10, 200 * ms, 500 * ms}, {30, 600 * ms, 600 * ms}}
	for _, tt := range []struct {
		name   string
		times  times
		offset int64
		came   int64 // ms; 0: not known
		to     int64
	}{
		{"first byte", times{three, math.MaxInt64}, 0, 100, 10},
		{"before the next", times{three, math.MaxInt64}, 9, 100, 10},
		{"at a mark", times{three, math.MaxInt64}, 10, 200, 30},
		{"merged", times{three, math.MaxInt64}, 29, 200, 30},
		{"past the last", times{three, math.MaxInt64}, 1 << 40, 600, math.MaxInt64},
		{"before what is lost", times{three, 35}, 34, 600, 35},
		{"lost", times{three, 35}, 35, 0, math.MaxInt64},
		{"all lost", times{nil, 0}, 0, 0, math.MaxInt64},
	} {
		came, to := tt.times.at(tt.offset)
		if want := time.UnixMilli(tt.came); tt.came > 0 && !came.Equal(want) || tt.came == 0 && !came.IsZero() || to != tt.to {
			t.Errorf("%s: %v up to %d, want %d ms up to %d", tt.name, came, to, tt.came, tt.to)
		}
	}
	for _, tt := range []struct {
		name         string
		times        times
		from         int64 // ms
		end, offsets int64
	}{
		{"before all", times{three, math.MaxInt64}, 0, 99, 0},
		{"within the resolution of the first", times{three, math.MaxInt64}, 110, 99, 0},
		{"after it", times{three, math.MaxInt64}, 111, 99, 10},
		{"what was merged", times{three, math.MaxInt64}, 450, 99, 10},
		{"the last", times{three, math.MaxInt64}, 600, 99, 30},
		{"after all", times{three, math.MaxInt64}, 1000, 99, 99},
		{"after all of which a time is known", times{three, 40}, 1000, 99, 40},
		{"nothing is known", times{}, 1000, 99, 0},
		{"nothing came", times{nil, math.MaxInt64}, 1000, 0, 0},
	} {
		if got := tt.times.since(time.UnixMilli(tt.from), tt.end); got != tt.offsets {
			t.Errorf("since %s: %d, want %d", tt.name, got, tt.offsets)
		}
	}
}

func TestThin(t *testing.T) {
	dense := make([]mark, mostMarks)
	for i := range dense {
		at := int64(i) * 10 * ms
		dense[i] = mark{int64(i) * 100, at, at}
	}
	got := thin(dense, span{})
	if n := len(got); n > mostMarks*3/4 || n < mostMarks/2 {
		t.Errorf("%d of %d marks stay", n, len(dense))
	}
	if !slices.Equal(got[len(got)-mostMarks/4:], dense[mostMarks*3/4:]) {
		t.Error("the newest marks changed")
	}
	checkThinned(t, dense, got)

	// Marks of a hole go first, and nothing is merged then.
	out := span{100_050, 300_050}
	got = thin(dense, out)
	if !slices.Contains(got, dense[1000]) || slices.Contains(got, dense[1001]) || slices.Contains(got, dense[2999]) || !slices.Contains(got, dense[3000]) {
		t.Error("not the marks of the hole are gone")
	}
	if want := mostMarks - 1999; len(got) != want {
		t.Errorf("%d marks stay, want %d", len(got), want)
	}

	// Again and again, as a command that writes for a day, the bound holds.
	all, kept := 0, []mark(nil)
	for all < 20*mostMarks {
		for ; len(kept) < mostMarks; all++ {
			at := int64(all) * 10 * ms
			kept = append(kept, mark{int64(all) * 100, at, at})
		}
		kept = thin(kept, span{})
	}
	if kept[0].offset != 0 || len(kept) > mostMarks*3/4 {
		t.Errorf("%d marks from byte %d on", len(kept), kept[0].offset)
	}
	for i, m := range kept[:len(kept)-1] {
		if span := time.Duration(kept[i+1].first - m.first); span > 3*time.Second {
			t.Fatalf("mark %d stands for %v", i, span)
		}
	}
}

// checkThinned: each byte came within what its mark says.
func checkThinned(t *testing.T, before, after []mark) {
	t.Helper()
	at := 0
	for _, m := range before {
		for at+1 < len(after) && after[at+1].offset <= m.offset {
			at++
		}
		if in := after[at]; m.first < in.first || m.last > in.last {
			t.Fatalf("byte %d came at %d, its mark says from %d to %d", m.offset, m.first, in.first, in.last)
		}
	}
}

func FuzzParseMarks(f *testing.F) {
	f.Add(appendMark(appendMark(nil, mark{0, 1, 2}), mark{3, 2, 9}))
	f.Add([]byte("torn"))
	f.Add(appendMark(appendMark(nil, mark{5, 1, 2}), mark{5, 3, 4}))
	f.Fuzz(func(t *testing.T, data []byte) {
		marks, err := parseMarks(data)
		if err != nil {
			return
		}
		var again []byte
		for _, m := range marks {
			again = appendMark(again, m)
		}
		if string(again) != string(data[:len(again)]) || len(data)-len(again) >= markSize {
			t.Errorf("%d bytes are read as %v", len(data), marks)
		}
		for i, m := range marks {
			if came, to := (times{marks, math.MaxInt64}).at(m.offset); came.UnixNano() != m.first || to <= m.offset {
				t.Errorf("mark %d: %v up to %d", i, came, to)
			}
		}
	})
}
