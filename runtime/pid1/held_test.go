package pid1

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/initproto"
)

// Out of descriptors, PID 1 says so and goes on.
func TestOutOfDescriptorsIsAnAnswer(t *testing.T) {
	cmd := exec.Command("sh", "-c", "ulimit -Sn 64; ulimit -Hn 64; exec "+program.Path(t))
	r := runInitOptions(t, tempDir(t), os.Getuid(), os.Getgid(), cmd, Options{OrphanGrace: long})
	var err error
	var list []*Exec
	for len(list) < 64 && err == nil {
		c, p := withPipes(t, sh("exit 0"))
		var e *Exec
		if e, err = r.Start(testContext(t), c); err == nil {
			list = append(list, e)
		}
		p.closeInside()
		p.closeOutside()
	}
	wantCode(t, err, sbxerr.Limits)
	if len(list) < 10 || r.Err() != nil {
		t.Fatalf("%d commands held, %v", len(list), r.Err())
	}
	if held := r.again(t, Options{OrphanGrace: long}); len(held) != len(list) {
		t.Fatalf("%d held, want %d", len(held), len(list))
	} else {
		for _, h := range held {
			if err := h.Exec.Release(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, _, exit := r.run(t, sh("exit 5"), ""); exit.Code != 5 {
		t.Errorf("afterwards: %+v", exit)
	}
}

// As many processes as PID 1 keeps in mind take seconds; with -short, each half
// of the bound has a test of its own: TestAdmit there, TestAdoptIsBounded here.
func TestHeldCommandsAreBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("starts thousands of processes")
	}
	r := runHeld(t, long)
	cmd := command(staticTrue()...)
	var err error
	for n := 0; n <= initproto.MaxHeld && err == nil; n++ {
		cmd.Number++
		_, err = r.Start(testContext(t), cmd)
	}
	wantCode(t, err, sbxerr.Limits)
	held := r.again(t, Options{OrphanGrace: long})
	if len(held) != initproto.MaxHeld {
		t.Fatalf("%d held", len(held))
	}
	for _, h := range held {
		if _, err := h.Exec.Wait(testContext(t)); err != nil {
			t.Fatal(err)
		}
		if err := h.Exec.Release(); err != nil {
			t.Fatal(err)
		}
	}
	if pss := pssKiB(t, r.cmd.Process.Pid); pss > 6<<10 {
		t.Errorf("PSS is %d KiB", pss)
	}
	if held := r.again(t, Options{}); len(held) != 0 {
		t.Errorf("%d held after release", len(held))
	}
}

// With more descriptors on their way than one user may have, PID 1 waits.
func TestManyHeldPipes(t *testing.T) {
	const n = 300
	cmd := exec.Command("sh", "-c", "ulimit -n 2048; exec "+program.Path(t))
	r := runInitOptions(t, tempDir(t), os.Getuid(), os.Getgid(), cmd, Options{OrphanGrace: long})
	for range n {
		e, p := startHeld(t, r, command(staticTrue()...))
		p.closeOutside()
		if _, err := e.Wait(testContext(t)); err != nil {
			t.Fatal(err)
		}
	}
	begun := time.Now()
	held := r.again(t, Options{OrphanGrace: long})
	t.Logf("%d commands with 3 pipes each adopted in %v", len(held), time.Since(begun))
	if len(held) != n {
		t.Fatalf("%d held", len(held))
	}
	for _, h := range held {
		if h.Stdin == nil || h.Stdout == nil || h.Stderr == nil {
			t.Fatalf("held is %+v", h)
		}
		if _, err := h.Stdin.WriteString("x"); !errors.Is(err, unix.EPIPE) { // no reader is left
			t.Fatalf("writing to an ended command: %v", err)
		}
		h.Exec.Release()
	}
}

func TestPID1KeepsCommandsWithoutADaemon(t *testing.T) {
	r := runPID1With(t, Options{OrphanGrace: long})
	e, p := startHeld(t, r, inside("read x; echo $x; exit 3"))
	p.out.r.Close()
	held := r.again(t, Options{OrphanGrace: long})
	if len(held) != 1 || held[0].Exec.Number() != e.Number() || held[0].Exec.PID != e.PID {
		t.Fatalf("held are %+v", held)
	}
	io.WriteString(held[0].Stdin, "word\n")
	line, err := bufio.NewReader(held[0].Stdout).ReadString('\n')
	if err != nil || line != "word\n" {
		t.Errorf("got %q, %v", line, err)
	}
	if exit, err := held[0].Exec.Wait(testContext(t)); err != nil || exit.Code != 3 {
		t.Errorf("%+v, %v", exit, err)
	}
	if err := held[0].Exec.Signal(testContext(t), syscall.SIGTERM); sbxerr.Of(err) != sbxerr.State {
		t.Errorf("Signal: %v", err)
	}
}
