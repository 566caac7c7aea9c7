package need

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"testing"
)

// ending notes how a test would end, at first: nothing stops it there.
type ending struct {
	testing.TB
	as string
}

func (e *ending) Helper()           {}
func (e *ending) Fatal(args ...any) { e.as = cmp.Or(e.as, "fatal: "+fmt.Sprint(args...)) }
func (e *ending) Skip(args ...any)  { e.as = cmp.Or(e.as, "skip: "+fmt.Sprint(args...)) }

func TestMissing(t *testing.T) {
	for strict, want := range map[string]string{"": "skip", "1": "fatal"} {
		t.Setenv("CAISSON_TEST_STRICT", strict)
		t.Setenv("CAISSON_TEST_NEED", "")
		for name, tt := range map[string]struct {
			needs func(testing.TB)
			want  string
		}{
			"a tool":     {func(t testing.TB) { Tools(t, "sh", "no-such-tool") }, ": needs no-such-tool"},
			"a variable": {func(t testing.TB) { Env(t, "CAISSON_TEST_NEED", "a file") }, ": needs CAISSON_TEST_NEED, a file"},
			"anything":   {func(t testing.TB) { Missing(t, "a moon") }, ": needs a moon"},
		} {
			e := &ending{}
			if tt.needs(e); e.as != want+tt.want {
				t.Errorf("without %s, strict %q: %q, want %q", name, strict, e.as, want+tt.want)
			}
		}
	}
}

func TestThere(t *testing.T) {
	t.Setenv("CAISSON_TEST_STRICT", "1")
	t.Setenv("CAISSON_TEST_NEED", "value")
	e := &ending{}
	Tools(e, "sh")
	if got := Env(e, "CAISSON_TEST_NEED", "a file"); got != "value" || e.as != "" {
		t.Errorf("got %q, the test ended with %q", got, e.as)
	}
	if Root(e, "to test"); (e.as == "") != (os.Geteuid() == 0) {
		t.Errorf("as user %d it ended with %q", os.Geteuid(), e.as)
	}
}

// Three runs go through all of a sweep, and a short one is never parted.
func TestTurn(t *testing.T) {
	all := []int{0, 1, 2, 3, 4, 5, 6, 7}
	var seen []int
	for _, number := range []string{"1684/3", "1685/3", "1686/3"} {
		t.Setenv("CAISSON_TEST_TURN", number)
		some := Turn(t, all)
		if len(some) == 0 || len(some) > 3 {
			t.Errorf("run %s takes %v", number, some)
		}
		seen = append(seen, some...)
	}
	if slices.Sort(seen); !slices.Equal(seen, all) {
		t.Errorf("three runs take %v", seen)
	}
	if short := Turn(t, all[:2]); len(short) != 2 {
		t.Errorf("of two it takes %v", short)
	}
	t.Setenv("CAISSON_TEST_TURN", "")
	if got := Turn(t, all); !slices.Equal(got, all) {
		t.Errorf("without the variable it takes %v", got)
	}
}
