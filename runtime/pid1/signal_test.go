package pid1

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
)

func TestSignalAll(t *testing.T) {
	r := runPID1(t)
	tree := `sh -c 'sleep 100 & setsid sleep 100 & setsid sh -c "sleep 100 & wait" & wait' & echo ready; wait`
	out := newPipe(t)
	cmd := inside(tree)
	cmd.Stdout = out.w
	other, err := r.Start(testContext(t), inside("exec sleep 100"))
	if err != nil {
		t.Fatal(err)
	}
	e, err := r.Start(testContext(t), cmd)
	if err != nil {
		t.Fatal(err)
	}
	out.w.Close()
	count := func() int {
		stdout, _, _ := r.run(t, inside(`for p in /proc/[0-9]*; do [ "$(cat $p/comm 2>/dev/null)" = sleep ] && echo; done; true`), "")
		return strings.Count(stdout, "\n")
	}
	deadline := time.Now().Add(soon)
	for count() != 4 && time.Now().Before(deadline) { // three of the command's and the other's
	}
	n, err := e.SignalAll(testContext(t), syscall.SIGKILL)
	if err != nil || n != 6 {
		t.Errorf("SignalAll: %d, %v; want 6", n, err)
	}
	if exit, err := e.Wait(testContext(t)); err != nil || exit.Signal != syscall.SIGKILL {
		t.Errorf("%+v, %v", exit, err)
	}
	readAll(t, out.r) // ends with the last of them
	if got := count(); got != 1 {
		t.Errorf("%d left, want the other command alone", got)
	}
	_, err = e.SignalAll(testContext(t), syscall.SIGKILL)
	wantCode(t, err, sbxerr.State)
	if err := other.Signal(testContext(t), syscall.SIGKILL); err != nil {
		t.Error(err)
	}
}

// What an ended command has left in its session can still be ended.
func TestSignalAllOfTheRest(t *testing.T) {
	r := runPID1(t)
	out := newPipe(t)
	cmd := inside("sleep 100 & sleep 100 & exit 3")
	cmd.Stdout = out.w
	e, err := r.Start(testContext(t), cmd)
	if err != nil {
		t.Fatal(err)
	}
	out.w.Close()
	if exit, err := e.Wait(testContext(t)); err != nil || exit.Code != 3 || exit.Remaining != 2 {
		t.Errorf("%+v, %v", exit, err)
	}
	if n, err := e.SignalAll(testContext(t), syscall.SIGTERM); err != nil || n != 2 {
		t.Errorf("SignalAll: %d, %v", n, err)
	}
	readAll(t, out.r)
	if err := e.Release(); err != nil {
		t.Fatal(err)
	}
	_, err = e.SignalAll(testContext(t), syscall.SIGTERM)
	wantCode(t, err, sbxerr.State)
}

func TestSignalAllEndsAForkBomb(t *testing.T) {
	r := runPID1(t)
	out := newPipe(t)
	cmd := inside("f() { f & f & wait; f; }; (f 2>/dev/null) & echo; exec sleep 100")
	cmd.Stdout = out.w
	e, err := r.Start(testContext(t), cmd)
	if err != nil {
		t.Fatal(err)
	}
	out.w.Close()
	if _, err := out.r.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	time.Sleep(20 * time.Millisecond) // lets it grow; nothing depends on how far
	if n, err := e.SignalAll(testContext(t), syscall.SIGKILL); err != nil {
		t.Errorf("SignalAll: %d, %v", n, err)
	}
	readAll(t, out.r)
	if exit, err := e.Wait(testContext(t)); err != nil || exit.Signal != syscall.SIGKILL {
		t.Errorf("%+v, %v", exit, err)
	}
	settled(t, "processes", 2, func() int { // what is dead takes a moment to be reaped
		stdout, _, _ := r.run(t, inside("echo /proc/[0-9]*"), "")
		return len(strings.Fields(stdout))
	})
}
