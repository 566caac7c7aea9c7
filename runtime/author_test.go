package runtime

import (
	"testing"
	"time"

	"github.com/caisson-run/caisson/netns"
	"github.com/caisson-run/caisson/runtime/egress"
	"github.com/caisson-run/caisson/runtime/plan"
)

// at is a time without a monotonic part, as the gateway tells it.
func at(begin time.Time, after time.Duration) time.Time { return begin.Add(after).Round(0) }

func TestAuthors(t *testing.T) {
	a, begin := newAuthors(), time.Now()
	second := time.Second
	a.of["s"] = []era{
		{1, begin, true, true}, {2, begin.Add(10 * second), false, true}, {3, begin.Add(20 * second), true, false}, {4, begin.Add(30 * second), true, true},
	}
	for _, tt := range []struct {
		name          string
		after, before time.Duration
		want          string
	}{
		{"before all", -second, -second, ""},
		{"across the first begin", -second, second, ""},
		{"of the first", 0, 9 * second, "1"},
		{"across the end of the first", 9 * second, 10 * second, ""},
		{"when two were there", 11 * second, 11 * second, ""},
		{"from when two were there", 19 * second, 21 * second, ""},
		{"of the third", 21 * second, 21 * second, "3"},
		{"of the last", 31 * second, 32 * second, "4"},
		{"no time at all", 22 * second, 21 * second, ""},
	} {
		if got := a.who("s", at(begin, tt.after), at(begin, tt.before)); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
	for after, want := range map[time.Duration]string{-second: "", second: "1", 11 * second: "", 21 * second: "", 31 * second: "4"} {
		if got := a.who("s", time.Time{}, at(begin, after)); got != want {
			t.Errorf("heard of after %s: %q, want %q", after, got, want)
		}
	}
	if got := a.who("s", time.Time{}, time.Time{}); got != "" {
		t.Errorf("a time that is not known: %q", got)
	}
	if got := a.who("other", at(begin, second), at(begin, second)); got != "" {
		t.Errorf("another sandbox: %q", got)
	}
	a.forget("s")
	if got := a.who("s", at(begin, second), at(begin, second)); got != "" || len(a.of) != 0 {
		t.Errorf("one that is gone: %q", got)
	}
}

func TestAuthorsBegin(t *testing.T) {
	a := newAuthors()
	now := func() string { return a.who("s", time.Now().Round(0), time.Now().Round(0)) }
	a.begin("s", 1)
	if got := now(); got != "" {
		t.Errorf("before it was looked who is there: %q", got)
	}
	if a.alone("s", 1, true); now() != "1" {
		t.Errorf("alone: %q", now())
	}
	a.begin("s", 2)
	a.begin("s", 3)
	if a.alone("s", 2, true); now() != "" {
		t.Errorf("another one began meanwhile: %q", now())
	}
	a.alone("gone", 1, true)
	for n := range uint32(2 * maxEras) {
		a.begin("s", n)
	}
	if len(a.of["s"]) != maxEras || len(a.of) != 1 {
		t.Errorf("%d are kept, of %d sandboxes", len(a.of["s"]), len(a.of))
	}
}

// By a clock that was set nothing is certain.
func TestClockThatWasSet(t *testing.T) {
	for _, tt := range []struct {
		wall, steady time.Duration
		want         bool
	}{
		{time.Hour, time.Hour, false}, {time.Hour + maxSlip/2, time.Hour, false}, {time.Hour + time.Second, time.Hour, true}, {time.Hour - time.Second, time.Hour, true}, {-time.Hour, time.Second, true},
	} {
		if got := slipped(tt.wall, tt.steady); got != tt.want {
			t.Errorf("%s in %s: %v", tt.wall, tt.steady, got)
		}
	}
}

// Where the kernel does not say that only PID 1 is there, nobody is the author.
func TestClaimNeedsTheKernelsWord(t *testing.T) {
	f, gateway := newPublishing(t)
	id := f.session(t, plan.CreateRequest{}).ID
	counted(t, f, gateway, id, netns.ModeAllow)
	gateway.views[id] = egress.View{}
	run := func() string {
		t.Helper()
		r, err := f.Exec(callerContext(t), id, script("exit:0"), IO{})
		if err != nil {
			t.Fatal(err)
		}
		if got := f.authors.who(id, time.Now().Round(0), time.Now().Round(0)); got != "" && got != r.ExecID {
			t.Errorf("%q is the author of what command %s did", got, r.ExecID)
		} else {
			return got
		}
		return ""
	}
	s, err := f.find(callerContext(t), id)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		procs string
		sole  bool
	}{{"", false}, {number(uint32(s.process.pid)) + "\n", true}, {number(uint32(s.process.pid)) + "\n1\n", false}, {"x", false}} {
		f.engine.count(t, id, "cgroup.procs", tt.procs)
		if got := run(); (got != "") != tt.sole {
			t.Errorf("with the processes %q, the author is %q", tt.procs, got)
		}
	}
}
