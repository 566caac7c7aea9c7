package pid1

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/initproto"
	"github.com/caisson-run/caisson/tests/need"
)

// console is a command with a terminal and the daemon's ends of it.
type console struct {
	*Exec
	t   testing.TB
	in  *os.File
	out *os.File
	got bytes.Buffer
}

func startConsole(t testing.TB, r *realInit, cmd Command) *console {
	t.Helper()
	in, out := newPipe(t), newPipe(t)
	cmd.Stdin, cmd.Stdout, cmd.HeldStdin, cmd.HeldStdout = in.r, out.w, in.w, out.r
	if cmd.TTY == nil {
		cmd.TTY = &WinSize{Rows: 24, Cols: 80}
	}
	e, err := r.Start(testContext(t), cmd)
	in.r.Close()
	out.w.Close()
	if err != nil {
		t.Fatal(err)
	}
	return &console{Exec: e, t: t, in: in.w, out: out.r}
}

func (c *console) typeIn(s string) {
	c.t.Helper()
	if _, err := io.WriteString(c.in, s); err != nil {
		c.t.Fatal(err)
	}
}

// expect reads until want has been shown.
func (c *console) expect(want string) {
	c.t.Helper()
	if err := c.out.SetReadDeadline(time.Now().Add(soon)); err != nil {
		c.t.Fatal(err)
	}
	buf := make([]byte, 4096)
	for !strings.Contains(c.got.String(), want) {
		n, err := c.out.Read(buf)
		c.got.Write(buf[:n])
		if err != nil {
			c.t.Fatalf("%v; shown was %q, not %q", err, c.got.String(), want)
		}
	}
}

// closeIn ends the input: the daemon's own end and the held one.
func (c *console) closeIn() {
	c.t.Helper()
	c.in.Close()
	if err := c.CloseStdin(); err != nil {
		c.t.Error(err)
	}
}

// finish waits for the end and returns all that was shown. PID 1 has copied it
// before it reported the end, so nothing more is waited for.
func (c *console) finish(want Exit) string {
	c.t.Helper()
	exit, err := c.Wait(testContext(c.t))
	if err != nil || exit.Code != want.Code || exit.Signal != want.Signal {
		c.t.Errorf("%+v, %v; want %+v", exit, err, want)
	}
	if err := c.Release(); err != nil {
		c.t.Error(err)
	}
	return c.got.String() + readAll(c.t, c.out)
}

func TestTerminalIsTheCommandsOwn(t *testing.T) {
	r := runInit(t)
	cmd := sh(`for i in 0 1 2; do [ -t $i ] || echo $i is none; done; stty size; echo session $(ps -o sid= -p $$) $$; echo tty >/dev/tty; read x; echo "got $x"; exit 3`)
	cmd.TTY = &WinSize{Rows: 33, Cols: 101}
	c := startConsole(t, r, cmd)
	c.typeIn("word\n")
	got := c.finish(Exit{Code: 3})
	session := fmt.Sprintf("session %d %d\r\n", c.PID, c.PID)
	for _, want := range []string{"33 101\r\n", session, "tty\r\n", "word\r\n", "got word\r\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("shown is %q, without %q", got, want)
		}
	}
	if strings.Contains(got, "is none") {
		t.Errorf("shown is %q", got)
	}
}

func TestTerminalResize(t *testing.T) {
	r := runInit(t)
	c := startConsole(t, r, sh(`trap 'stty size; exit 4' WINCH; echo ready; while :; do sleep 0.01; done`))
	c.expect("ready")
	if err := c.Resize(50, 132); err != nil {
		t.Fatal(err)
	}
	if got := c.finish(Exit{Code: 4}); !strings.Contains(got, "50 132\r\n") {
		t.Errorf("shown is %q", got)
	}
	if err := c.Resize(1, 1); err != nil {
		t.Errorf("Resize of an ended command: %v", err)
	}
	e, err := r.Start(testContext(t), sh("exit 0"))
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Resize(1, 1); err != nil { // has no terminal
		t.Error(err)
	}
	if _, err := e.Wait(testContext(t)); err != nil || r.Err() != nil {
		t.Error(err, r.Err())
	}
}

func TestTerminalSignalsItsForeground(t *testing.T) {
	r := runInit(t)
	c := startConsole(t, r, sh(`echo ready; exec sleep 100`))
	c.expect("ready")
	c.typeIn("\x03")
	c.finish(Exit{Signal: syscall.SIGINT})
}

// The end of the input is typed, after a full line and in the midst of one.
func TestTerminalEndOfInput(t *testing.T) {
	r := runInit(t)
	for typed, want := range map[string]string{"": "0\r\n", "line\n": "5\r\n", "lin": "3\r\n"} {
		c := startConsole(t, r, sh("stty -echo; echo ready; wc -c; echo on"))
		c.expect("ready")
		c.typeIn(typed)
		c.closeIn()
		if got := c.finish(Exit{}); !strings.Contains(got, want) || !strings.HasSuffix(got, "on\r\n") {
			t.Errorf("%q: shown is %q", typed, got)
		}
	}
}

// Without a CloseStdin the daemon's death is no end of the input.
func TestTerminalOutlivesTheDaemon(t *testing.T) {
	r := runHeld(t, long)
	c := startConsole(t, r, sh("stty -echo; echo ready; while read x; do echo got $x; done; exit 5"))
	c.expect("ready")
	c.typeIn("first\n")
	c.in.Close()
	c.out.Close()
	held := r.again(t, Options{OrphanGrace: long})
	if len(held) != 1 || held[0].Stderr != nil {
		t.Fatalf("held are %+v", held)
	}
	c = &console{Exec: held[0].Exec, t: t, in: held[0].Stdin, out: held[0].Stdout}
	c.expect("got first")
	if err := c.Resize(10, 20); err != nil {
		t.Error(err)
	}
	c.typeIn("second\n")
	c.expect("got second")
	c.closeIn()
	c.finish(Exit{Code: 5})
}

func TestTerminalIsCopiedToItsEnd(t *testing.T) {
	r := runInit(t)
	var want strings.Builder
	for i := range 20000 {
		fmt.Fprintf(&want, "%d\r\n", i+1)
	}
	for range 10 {
		c := startConsole(t, r, sh("seq 1 20000"))
		if got := c.readToEnd(Exit{}); got != want.String() {
			t.Fatalf("%d bytes shown, the last are %q", len(got), got[max(0, len(got)-20):])
		}
	}
}

// readToEnd is finish where more is shown than the pipe holds: then the report
// of the end awaits the reader.
func (c *console) readToEnd(want Exit) string {
	c.t.Helper()
	done := make(chan string, 1)
	go func() {
		exit, err := c.Wait(testContext(c.t))
		if err != nil || exit.Code != want.Code || exit.Signal != want.Signal {
			c.t.Errorf("%+v, %v; want %+v", exit, err, want)
		}
		if err := c.Release(); err != nil {
			c.t.Error(err)
		}
		close(done)
	}()
	got := readAll(c.t, c.out)
	<-done
	return got
}

// Who keeps the terminal open, and writes to it, does not delay the end.
func TestTerminalEndsWithItsCommand(t *testing.T) {
	r := runPID1(t)
	for _, background := range []string{
		"sleep 100",
		"while :; do echo more; done",
	} {
		c := startConsole(t, r, inside(`trap '' HUP; sh -c '`+background+`' & echo last; exit 2`))
		got := c.readToEnd(Exit{Code: 2})
		if !strings.Contains(got, "last\r\n") {
			t.Errorf("shown is %.100q", got)
		}
	}
}

// Nobody reads what a terminal shows: others are served all the same, and PID 1
// needs no thread for it.
func TestTerminalsDoNotBlockOthers(t *testing.T) {
	r := runInit(t)
	flood := strings.Repeat("flood", 200) // a word at a time would fill the pipes slowly
	var list []*console
	for range initproto.MaxTerminals {
		list = append(list, startConsole(t, r, sh("while :; do echo "+flood+"; done")))
	}
	_, err := r.Start(testContext(t), Command{Number: 1, Args: []string{"true"}, Cwd: "/", TTY: &WinSize{}})
	wantCode(t, err, sbxerr.Limits)
	if got := threadsOf(t, r.cmd.Process.Pid); got > initThreads {
		t.Errorf("PID 1 has %d threads", got)
	}
	for range 5 {
		if _, _, exit := r.run(t, sh("exit 7"), ""); exit.Code != 7 {
			t.Errorf("%+v", exit)
		}
	}
	for _, c := range list {
		if err := c.Signal(testContext(t), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range list {
		c.readToEnd(Exit{Signal: syscall.SIGKILL})
	}
	if _, _, exit := r.run(t, sh("exit 8"), ""); exit.Code != 8 {
		t.Errorf("%+v", exit)
	}
	c := startConsole(t, r, sh("echo again")) // there is room again
	if got := c.finish(Exit{}); got != "again\r\n" {
		t.Errorf("shown is %q", got)
	}
}

// A reader that is gone and held by nobody is no reason for the command to wait.
func TestTerminalWithoutAReader(t *testing.T) {
	r := runInit(t)
	out := newPipe(t)
	cmd := sh("seq 1 20000; exit 9")
	cmd.Stdout, cmd.TTY = out.w, &WinSize{}
	e, err := r.Start(testContext(t), cmd)
	if err != nil {
		t.Fatal(err)
	}
	out.w.Close()
	out.r.Close()
	if exit, err := e.Wait(testContext(t)); err != nil || exit.Code != 9 {
		t.Errorf("%+v, %v", exit, err)
	}
	cmd = sh("seq 1 20000; exit 9") // nor is one that never was
	cmd.TTY = &WinSize{}
	if e, err = r.Start(testContext(t), cmd); err != nil {
		t.Fatal(err)
	}
	if exit, err := e.Wait(testContext(t)); err != nil || exit.Code != 9 {
		t.Errorf("%+v, %v", exit, err)
	}
}

// Of descriptors there may be none left when the runtime of PID 1 wants its own.
func TestInitHasTheDescriptorsOfItsRuntime(t *testing.T) {
	r := runInit(t)
	if fds := fdsOf(t, r.cmd.Process.Pid); !slices.ContainsFunc(fds, func(s string) bool { return strings.Contains(s, "eventpoll") }) {
		t.Errorf("the descriptors are %q", fds)
	}
}

func TestTerminalOfACommandThatDoesNotStart(t *testing.T) {
	r := runInit(t)
	fds := fdsOf(t, r.cmd.Process.Pid)
	for range initproto.MaxTerminals + 1 {
		cmd := command("/absent")
		cmd.TTY = &WinSize{}
		_, err := r.Start(testContext(t), cmd)
		wantCode(t, err, sbxerr.CommandAbsent)
	}
	if got := fdsOf(t, r.cmd.Process.Pid); len(got) > len(fds)+1 { // the poller's
		t.Errorf("PID 1 has the descriptors %q, %q before", got, fds)
	}
}

func fdsOf(t testing.TB, pid int) (links []string) {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	list, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrPermission) {
		need.Root(t, "caisson-init hides its descriptors")
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		link, _ := os.Readlink(dir + "/" + e.Name()) // closed since
		links = append(links, e.Name()+" "+link)
	}
	return links
}

// PID 1 without threads to gain, as in a sandbox whose processes are used up.
func TestPID1Terminal(t *testing.T) {
	r := runPID1(t)
	if _, err := exec.LookPath("stty"); err != nil {
		t.Fatal(err)
	}
	c := startConsole(t, r, inside("stty size; read x; exit 3"))
	c.expect("24 80")
	c.typeIn("x\n")
	c.finish(Exit{Code: 3})
}
