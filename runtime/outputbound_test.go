package runtime

import (
	"bytes"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/api/sbxerr/errtest"
	"github.com/caisson-run/caisson/api/settings"
	"github.com/caisson-run/caisson/runtime/plan"
)

// TestOutputLimitsFitTheSandbox: no command may keep more than is kept of all of
// its sandbox.
func TestOutputLimitsFitTheSandbox(t *testing.T) {
	m := newTestManager(func(o *Options) { o.KeptOutput = 1 << 20 })
	for _, tt := range []struct {
		asked *int64
		tty   bool
		want  int64 // 0 is a refusal
	}{
		{nil, false, 1 << 19}, {nil, true, 1 << 20}, {new(int64(100)), false, 100},
		{new(int64(1 << 19)), false, 1 << 19}, {new(int64(1<<19 + 1)), false, 0},
		{new(int64(1 << 20)), true, 1 << 20}, {new(int64(1<<20 + 1)), true, 0},
	} {
		p := &plan.Command{OutputLimit: settings.DefaultOutputLimit}
		plan.Override(&p.OutputLimit, tt.asked)
		if tt.tty {
			p.TTY = &plan.WinSize{}
		}
		err := m.boundOutput(plan.ExecRequest{OutputLimit: tt.asked}, p)
		switch {
		case tt.want == 0:
			errtest.Want(t, err, sbxerr.Limits, "of one sandbox 1048576 bytes are kept (sandboxes.kept_output)")
			if remedy := sbxerr.RemedyOf(err); !strings.Contains(remedy, number(uint32(*tt.asked-1))) {
				t.Errorf("the remedy is %q", remedy)
			}
		case err != nil || p.OutputLimit != tt.want:
			t.Errorf("%+v: %d, %v", tt, p.OutputLimit, err)
		}
	}
	f := newFixture(t)
	limit := int64(1 << 40)
	r := plan.ExecRequest{Args: []string{"exit:0"}, OutputLimit: &limit}
	_, err := f.Run(callerContext(t), plan.Request{Exec: r}, IO{})
	errtest.Want(t, err, sbxerr.Limits, "output limit 1099511627776")
	f.session(t, plan.CreateRequest{Name: "s"})
	_, err = f.StartExec(callerContext(t), "s", r)
	errtest.Want(t, err, sbxerr.Limits, "output limit 1099511627776")
}

// TestResultsOutliveOutput: where too much was written, the oldest output goes, and
// neither a result nor what the last command wrote.
func TestResultsOutliveOutput(t *testing.T) {
	f := newFixture(t)
	f.opts.KeptOutput = 40
	ctx := callerContext(t)
	f.session(t, plan.CreateRequest{Name: "s"})
	text := strings.Repeat("x", 20)
	for _, steps := range [][]string{{"out:" + text, "exit:5"}, {"out:" + text, "exit:0"}, {"out:" + text, "err:" + text, "exit:7"}} {
		e, err := f.StartExec(ctx, "s", script(steps...))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WaitExec(ctx, "s", e.ID); err != nil {
			t.Fatal(err)
		}
	}
	var out, errOut bytes.Buffer
	logs := func(id string) error {
		out.Reset()
		return f.Logs(ctx, "s", LogOptions{Exec: id}, &out, &errOut)
	}
	s, err := f.find(ctx, "s")
	if err != nil {
		t.Fatal(err)
	}
	second, err := s.execution("2")
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the second output is dropped", func() bool { return second.keptBytes() == 0 })
	for id, code := range map[string]int{"1": 5, "2": 0} {
		errtest.Want(t, logs(id), sbxerr.Limits, "the output was dropped")
		if out.String() != "" {
			t.Errorf("%s: logs gave %q", id, &out)
		}
		if e, err := f.WaitExec(ctx, "s", id); err != nil || e.Result.ExitCode != code || e.StdoutBytes != 20 {
			t.Errorf("%s: %+v, %v", id, e, err)
		}
		if r, err := f.Attach(ctx, "s", id, AttachOptions{}, IO{Stdout: &out}); err != nil || r.ExitCode != code {
			t.Errorf("%s: attach gave %+v, %v", id, r, err)
		}
	}
	if err := logs("3"); err != nil || out.Len()+errOut.Len() != 40 {
		t.Errorf("the last one: %q, %v", &out, err)
	}
}
