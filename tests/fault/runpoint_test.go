package fault

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A detached run whose daemon is killed at any point of it is known to the next one
// by what it wrote and how it ended, and holds nothing else (F03, F04, F12).
func TestKilledInDetachedRun(t *testing.T) {
	b := newBreakable(t, "")
	lost, whole := kept{137, "lost"}, kept{3, "exited"}
	for point, want := range map[string]kept{
		"create/record": lost, "exec/recorded": lost,
		"exec/started": whole, "exec/ending": whole, "exec/settled": whole, "exec/kept": whole, "remove/container": whole, "remove/ids": whole,
	} {
		t.Run(point, func(t *testing.T) {
			b.arm(t, point+"=kill")
			run := begin(t, b.Daemon, "run", "--json", "-d", "--name", "job", "--", "sh", "-c", counts)
			b.died(t, point)
			if r := run.end(t); r.Code != 0 {
				checkTyped(t, r)
			}
			checkEnded(t, b, "job", want)
			b.Run(t, "rm", "job")
			b.empty(t)
		})
	}
}

// So is why it ended, of which PID 1 knows only the signal.
func TestKilledAtTimeout(t *testing.T) {
	b := newBreakable(t, "")
	for _, point := range []string{"exec/ending", "exec/settled"} {
		t.Run(point, func(t *testing.T) {
			b.arm(t, point+"=kill")
			b.Run(t, "run", "-d", "--name", "job", "--timeout", "1s", "--", "sh", "-c", strings.Replace(counts, "exit 3", "exec sleep 60", 1))
			b.died(t, point)
			checkEnded(t, b, "job", kept{124, "timeout"})
			b.Run(t, "rm", "job")
			b.empty(t)
		})
	}
}

// checkEnded fails t unless the run ref is over, tells how, and holds on the host
// only what it is to keep.
func checkEnded(t *testing.T, b *breakable, ref string, want kept) {
	t.Helper()
	await(t, "end of "+ref, func() bool {
		return slices.ContainsFunc(list(t, b.Daemon), func(s listed) bool { return s.Name == ref && s.State == "exited" })
	})
	if r := b.Try("wait", ref); r.Code != want.ExitCode {
		t.Errorf("wait: %+v", r)
	}
	output := counted
	if want.Reason == "lost" {
		output = ""
	}
	if out := b.Run(t, "logs", ref).Stdout; out != output {
		t.Errorf("the output that was kept is %q", out)
	}
	var detail struct {
		ID     string
		Result kept
	}
	b.Run(t, "inspect", ref, "-o", "json").JSONIn(t, "sandbox", &detail)
	if detail.Result != want {
		t.Errorf("the result that was kept is %+v, want %+v", detail.Result, want)
	}
	keeps := []string{filepath.Join(b.State, "sandboxes", detail.ID), filepath.Join(b.Root, "output", detail.ID)}
	await(t, "end of what "+ref+" held", func() bool {
		have := traces(t, b.Daemon)[detail.ID]
		return len(have) == len(keeps) && slices.Contains(have, keeps[0]) && slices.Contains(have, keeps[1])
	})
	checkSound(t, b.Daemon)
}
