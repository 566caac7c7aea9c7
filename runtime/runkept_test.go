package runtime

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/api/sbxerr/errtest"
	"github.com/caisson-run/caisson/runtime/plan"
)

// A run that keeps its sandbox leaves it live, with the output and the result of its command.
// Without that the sandbox goes with its command, and the refusal says how it would stay.
func TestRunKept(t *testing.T) {
	f := newFixture(t)
	for _, keep := range []bool{false, true} {
		var of ExecInfo
		r := request("out:hello", "exit:3")
		r.Create.Name, r.Keep = "box", keep
		result, err := f.Run(callerContext(t), r, IO{Started: func(_ Info, e ExecInfo) { of = e }})
		if err != nil || result.ExitCode != 3 {
			t.Fatalf("keep %v: %+v, %v", keep, result, err)
		}
		if !keep {
			if s, err := f.find(callerContext(t), result.SandboxID); err == nil {
				within(t, "the removal", s.gone)
			}
		}
		var out, errOut bytes.Buffer
		logs := f.Logs(callerContext(t), result.SandboxID, LogOptions{}, &out, &errOut)
		detail, inspected := f.Inspect(callerContext(t), "box")
		ended, waited := f.WaitExec(callerContext(t), result.SandboxID, of.ID)
		if !keep {
			for _, err := range []error{logs, inspected, waited} {
				errtest.Want(t, err, sbxerr.NotFound, "no sandbox")
				if remedy := sbxerr.RemedyOf(err); !strings.Contains(remedy, "--keep") {
					t.Errorf("remedy %q", remedy)
				}
			}
			continue
		}
		if logs != nil || out.String() != "hello" {
			t.Errorf("logs: %q, %v", out.String(), logs)
		}
		if inspected != nil || detail.State != StateRunning {
			t.Errorf("inspect: %+v, %v", detail, inspected)
		}
		if waited != nil || ended.Result == nil || ended.Result.ExitCode != 3 {
			t.Errorf("the command: %+v, %v", ended, waited)
		}
		if again, err := f.Exec(callerContext(t), "box", plan.ExecRequest{Args: []string{"exit:4"}}, IO{}); err != nil || again.ExitCode != 4 {
			t.Errorf("another command: %+v, %v", again, err)
		}
		if _, err := f.Remove(callerContext(t), "box", true); err != nil {
			t.Error(err)
		}
	}
}

// Where the command of such a run does not start, nothing stays.
func TestRunKeptStartsOrLeavesNothing(t *testing.T) {
	f := newFixture(t)
	r := request("exit:0")
	r.Create.Name, r.Keep = "box", true
	r.Exec.User = "nobody-such"
	_, err := f.Run(callerContext(t), r, IO{})
	errtest.Want(t, err, sbxerr.ImageUser)
	f.wantNothingLeft(t)
	ctx, cancel := context.WithCancel(callerContext(t))
	cancel()
	r.Exec.User = ""
	if _, err := f.Run(ctx, r, IO{}); err == nil {
		t.Error("a caller that had left got a sandbox")
	}
	f.wantNothingLeft(t)
}
