package runtime

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/api/sbxerr/errtest"
	"github.com/caisson-run/caisson/netns"
)

// TestInitThatEndsIsNotWaitedFor has a PID 1 that never connects. The time for
// its hello is far longer than the test may take.
func TestInitThatEndsIsNotWaitedFor(t *testing.T) {
	f := newFixture(t)
	f.engine.mode = "die"
	_, err := f.Run(callerContext(t), request("exit:0"), IO{})
	if err == nil || !strings.Contains(err.Error(), "caisson-init ended before it connected") {
		t.Errorf("error %v does not say what happened", err)
	}
	errtest.Want(t, err, sbxerr.Init, "create hello of sandbox")
	f.wantNothingLeft(t)
}

func TestProcessWaitCanBeInterruptedAndRepeated(t *testing.T) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{fakeInitEnv + "=" + t.TempDir()}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p, err := openProcess(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(callerContext(t))
	waited := make(chan error, 1)
	go func() { waited <- p.wait(ctx) }()
	cancel(errInjected)
	if err := within(t, "the end of the wait", waited); !errors.Is(err, errInjected) {
		t.Errorf("an interrupted wait: %v", err)
	}
	go func() { waited <- p.wait(callerContext(t)) }()
	if err := p.kill(); err != nil {
		t.Error(err)
	}
	if err := within(t, "the end of the process", waited); err != nil {
		t.Errorf("the second wait: %v", err)
	}
	_ = cmd.Wait() // killed
	if err := errors.Join(p.kill(), p.wait(callerContext(t)), stdin.Close()); err != nil && !strings.Contains(err.Error(), "file already closed") {
		t.Errorf("a process that is gone: %v", err)
	}
	if err := p.close(); err != nil {
		t.Error(err)
	}
	if p.kill() == nil || p.wait(callerContext(t)) == nil {
		t.Error("a closed descriptor was used")
	}
	_, err = openProcess(1 << 30)
	errtest.Want(t, err, sbxerr.Init, "open process 1073741824")
}

// A pid alone is nobody: it may be another's by now, or of one that ended and
// that nobody has reaped.
func TestOpenKnown(t *testing.T) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{fakeInitEnv + "=" + t.TempDir()}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	_, began, err := processStat(pid)
	if err != nil {
		t.Fatal(err)
	}
	p, err := openKnown(pid, began)
	if err != nil {
		t.Fatal(err)
	}
	_, err = openKnown(pid, began+1)
	errtest.Want(t, err, sbxerr.Init, "it has ended")
	if err := errors.Join(p.kill(), p.wait(callerContext(t)), p.close()); err != nil {
		t.Fatal(err)
	}
	_, err = openKnown(pid, began) // a zombie
	errtest.Want(t, err, sbxerr.Init, "it has ended")
	_ = cmd.Wait() // killed
	_, err = openKnown(pid, began)
	errtest.Want(t, err, sbxerr.Init, "open process")
	_ = stdin.Close()
}

func TestNetworkCheckShowsWhatWasFound(t *testing.T) {
	for _, tt := range []struct {
		found []netns.Difference
		err   error
		want  string
	}{
		{nil, nil, "none"},
		{[]netns.Difference{{Name: "link", Declared: "lo", Live: "eth0"}}, nil, `1 differences: [link is "eth0", declared "lo"]`},
		{nil, errInjected, "could not tell: injected"},
		{[]netns.Difference{{}}, errInjected, "could not tell: injected"},
	} {
		got := networkCheck(netns.ModeNone, tt.found, tt.err)
		if got != (PostureCheck{Name: "network", Declared: "none", Live: tt.want}) {
			t.Errorf("%v, %v: %+v", tt.found, tt.err, got)
		}
	}
}
