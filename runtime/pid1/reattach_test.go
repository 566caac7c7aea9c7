package pid1

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/initproto"
)

// long is an orphan grace that no test lives to see the end of.
const long = time.Hour

// runHeld is runInit with an orphan grace.
func runHeld(t testing.TB, grace time.Duration) *realInit {
	t.Helper()
	return runInitOptions(t, tempDir(t), os.Getuid(), os.Getgid(), exec.Command(program.Path(t)), Options{OrphanGrace: grace})
}

// again loses the daemon and becomes the next one.
func (r *realInit) again(t testing.TB, o Options) []Held {
	t.Helper()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	return r.adopt(t, o)
}

func (r *realInit) adopt(t testing.TB, o Options) []Held {
	t.Helper()
	l, err := Listen(r.dir, r.uid, r.gid)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, held, err := l.Accept(testContext(t), r.cmd.Process.Pid, o)
	if err != nil {
		t.Fatal(err)
	}
	r.Client = c
	t.Cleanup(func() { c.Close(); closeHeld(held) })
	return held
}

// pipes are both ends of a command's three streams.
type pipes struct{ in, out, errs pipe }

// withPipes gives cmd pipes whose outside ends PID 1 holds.
func withPipes(t testing.TB, cmd Command) (Command, *pipes) {
	t.Helper()
	p := &pipes{newPipe(t), newPipe(t), newPipe(t)}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = p.in.r, p.out.w, p.errs.w
	cmd.HeldStdin, cmd.HeldStdout, cmd.HeldStderr = p.in.w, p.out.r, p.errs.r
	return cmd, p
}

func (p *pipes) closeInside()  { p.in.r.Close(); p.out.w.Close(); p.errs.w.Close() }
func (p *pipes) closeOutside() { p.in.w.Close(); p.out.r.Close(); p.errs.r.Close() }

func startHeld(t testing.TB, r *realInit, cmd Command) (*Exec, *pipes) {
	t.Helper()
	cmd, p := withPipes(t, cmd)
	e, err := r.Start(testContext(t), cmd)
	p.closeInside()
	if err != nil {
		t.Fatal(err)
	}
	return e, p
}

// A command counts throughout; what one daemon did not read the next one does.
func TestNoByteIsLostBetweenDaemons(t *testing.T) {
	r := runHeld(t, long)
	e, p := startHeld(t, r, sh("i=0; while read x; do echo $i; i=$((i+1)); done; echo end >&2; exit 7"))
	number, pid := e.Number(), e.PID
	lines := func(n int) []byte { return []byte(strings.Repeat("go\n", n)) }
	in, out := p.in.w, bufio.NewReader(p.out.r)
	next := 0
	expect := func() {
		t.Helper()
		if err := p.out.r.SetReadDeadline(time.Now().Add(soon)); err != nil {
			t.Fatal(err)
		}
		if line, err := out.ReadString('\n'); err != nil || line != fmt.Sprintln(next) {
			t.Fatalf("got %q, %v; want %d", line, err, next)
		}
		next++
	}
	for range 5 {
		if _, err := in.Write(lines(3)); err != nil {
			t.Fatal(err)
		}
		expect()
		expect()
		expect()
		if _, err := in.Write(lines(2)); err != nil { // answered while nobody is there
			t.Fatal(err)
		}
		p.closeOutside()
		held := r.again(t, Options{OrphanGrace: long})
		if len(held) != 1 || held[0].Exec.Number() != number || held[0].Exec.PID != pid {
			t.Fatalf("held are %+v", held)
		}
		p.in.w, p.out.r, p.errs.r = held[0].Stdin, held[0].Stdout, held[0].Stderr
		in, out, e = p.in.w, bufio.NewReader(p.out.r), held[0].Exec
		expect()
		expect()
	}
	if err := e.CloseStdin(); err != nil {
		t.Fatal(err)
	}
	in.Close()
	if exit, err := e.Wait(testContext(t)); err != nil || exit.Code != 7 {
		t.Errorf("%+v, %v", exit, err)
	}
	if err := e.Release(); err != nil {
		t.Fatal(err)
	}
	if got := readAll(t, p.errs.r); got != "end\n" { // only once nothing is held does it end
		t.Errorf("stderr is %q", got)
	}
	if held := r.again(t, Options{}); len(held) != 0 {
		t.Errorf("held after release: %+v", held)
	}
}

func TestExitsAreKeptUntilRelease(t *testing.T) {
	r := runHeld(t, long)
	out := newPipe(t)
	var want []uint32
	for i := range 5 {
		cmd := sh(fmt.Sprintf("read x; exit %d", i))
		if i == 3 {
			cmd = sh("exit 3") // with nothing held
		}
		if i != 3 {
			cmd.Stdin, cmd.HeldStdin = out.r, out.w
		}
		e, err := r.Start(testContext(t), cmd)
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, e.Number())
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	io.WriteString(out.w, "\n\n\n\n") // they end while nobody is there
	for round := range 2 {            // and are told to each daemon
		held := r.adopt(t, Options{OrphanGrace: long})
		if len(held) != len(want) {
			t.Fatalf("%d held", len(held))
		}
		for i, h := range held {
			if h.Exec.Number() != want[i] || (h.Stdin == nil) != (i == 3) || h.Stdout != nil {
				t.Errorf("held %d is %+v", i, h)
			}
			if exit, err := h.Exec.Wait(testContext(t)); err != nil || exit.Code != i {
				t.Errorf("round %d, command %d: %+v, %v", round, i, exit, err)
			}
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, h := range r.adopt(t, Options{OrphanGrace: long}) {
		if err := h.Exec.Release(); err != nil {
			t.Error(err)
		}
	}
	if held := r.again(t, Options{}); len(held) != 0 {
		t.Errorf("%d held after release", len(held))
	}
}

// A command released while it runs is still reported, and then forgotten.
func TestReleaseOfARunningCommand(t *testing.T) {
	r := runHeld(t, long)
	e, p := startHeld(t, r, sh("read x; exit 4"))
	if err := e.Release(); err != nil {
		t.Fatal(err)
	}
	held := r.again(t, Options{OrphanGrace: long})
	if len(held) != 1 || held[0].Stdin != nil || held[0].Stdout != nil || held[0].Stderr != nil {
		t.Fatalf("held are %+v", held)
	}
	p.in.w.Close()
	if exit, err := held[0].Exec.Wait(testContext(t)); err != nil || exit.Code != 4 {
		t.Errorf("%+v, %v", exit, err)
	}
	if held := r.again(t, Options{}); len(held) != 0 {
		t.Errorf("held after release: %+v", held)
	}
}

// Nobody reads for a while: a writer waits, and gets no SIGPIPE.
func TestWriterBearsTheLackOfADaemon(t *testing.T) {
	const size = 1 << 20
	r := runHeld(t, long)
	_, p := startHeld(t, r, sh(fmt.Sprintf("head -c %d /dev/zero; exit 6", size)))
	p.closeOutside()
	held := r.again(t, Options{OrphanGrace: long})
	if len(held) != 1 {
		t.Fatalf("held are %+v", held)
	}
	done := make(chan Exit, 1)
	go func() {
		exit, _ := held[0].Exec.Wait(testContext(t))
		held[0].Exec.Release()
		done <- exit
	}()
	if got := len(readAll(t, held[0].Stdout)); got != size {
		t.Errorf("%d bytes of %d", got, size)
	}
	if exit := <-done; exit.Code != 6 || exit.Signal != 0 {
		t.Errorf("%+v", exit)
	}
}

// What PID 1 holds may not decide whether the daemon's reads block.
func TestHeldEndsAreTheDaemonsOwn(t *testing.T) {
	r := runHeld(t, long)
	_, p := startHeld(t, r, sh("read x"))
	held := r.again(t, Options{OrphanGrace: long})
	for name, f := range map[string]*os.File{"stdin": held[0].Stdin, "stdout": held[0].Stdout, "stderr": held[0].Stderr} {
		control(f, func(fd int) {
			flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
			cloexec, cerr := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
			if err != nil || cerr != nil || flags&unix.O_NONBLOCK == 0 || cloexec&unix.FD_CLOEXEC == 0 {
				t.Errorf("%s has flags %x, %x", name, flags, cloexec)
			}
			// kcmp(2): 0 says the same open file description.
			for _, old := range []*os.File{p.in.w, p.out.r, p.errs.r} {
				control(old, func(oldfd int) {
					pid := uintptr(os.Getpid())
					same, _, errno := unix.Syscall6(unix.SYS_KCMP, pid, pid, 0, uintptr(fd), uintptr(oldfd), 0)
					if errno == 0 && same == 0 {
						t.Errorf("%s is shared", name)
					}
				})
			}
		})
	}
}

// A PID 1 that has lost its daemon rests, and notices the next one at once.
func TestOrphanRests(t *testing.T) {
	t.Parallel()
	r := runHeld(t, long)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond) // it notices
	before := switches(t, r.cmd.Process.Pid)
	time.Sleep(1500 * time.Millisecond) // it looks around by itself once or twice
	if n := switches(t, r.cmd.Process.Pid) - before; n > 60 {
		t.Errorf("its threads ran %d times without a daemon", n)
	}
	begin := time.Now()
	r.adopt(t, Options{OrphanGrace: long})
	if took := time.Since(begin); took > 500*time.Millisecond {
		t.Errorf("it came back after %s", took)
	}
}

// switches counts how often threads of pid gave up a processor (proc(5)).
func switches(t *testing.T, pid int) (n int) {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil || len(files) == 0 {
		t.Fatalf("threads of %d: %q, %v", pid, files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(text), "\nvoluntary_ctxt_switches:")
		var own int
		if _, err := fmt.Sscan(rest, &own); err != nil {
			t.Fatal(err)
		}
		n += own
	}
	return n
}

func TestOrphanGrace(t *testing.T) {
	t.Parallel()
	const grace = 300 * time.Millisecond
	r := runHeld(t, grace)
	for range 3 { // each Welcome counts
		r.again(t, Options{OrphanGrace: grace})
	}
	lost := time.Now()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	<-r.done
	if took := time.Since(lost); took < grace || took > soon {
		t.Errorf("it ended after %v", took)
	}
	if code := r.cmd.ProcessState.ExitCode(); code != initproto.ExitLost {
		t.Errorf("exit status %d", code)
	}
}

// A daemon that accepts and closes, or says nothing, has not welcomed it.
func TestOrphanGraceIsNotReset(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"closes", "says nothing"} {
		t.Run(name, func(t *testing.T) {
			const grace = 400 * time.Millisecond
			r := runHeld(t, grace)
			startHeld(t, r, sh("read x"))
			l, err := Listen(r.dir, r.uid, r.gid)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(testContext(t))
			greeted := make(chan int)
			go func() {
				n := 0
				defer func() { greeted <- n }()
				for {
					conn, err := l.accept(ctx, r.cmd.Process.Pid)
					if err != nil {
						return
					}
					n++
					defer conn.Close()
					if name == "closes" {
						conn.Close()
					}
				}
			}()
			<-r.done
			cancel()
			if n := <-greeted; n == 0 {
				t.Error("it never connected")
			}
			if code := r.cmd.ProcessState.ExitCode(); code != initproto.ExitLost {
				t.Errorf("exit status %d", code)
			}
		})
	}
}
