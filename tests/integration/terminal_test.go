package integration

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/tests/harness"
)

// screen is a terminal with a client in front of it, as a person has.
type screen struct {
	master *os.File
	cmd    *exec.Cmd
	ended  chan struct{}

	mu   sync.Mutex
	text strings.Builder
}

// onScreen begins a client call on a terminal of its own (pty(7)).
func onScreen(t *testing.T, rows, cols uint16, args ...string) *screen {
	t.Helper()
	return onScreenOf(t, daemon, rows, cols, args...)
}

// onScreenWith begins it with these variables.
func onScreenWith(t *testing.T, env []string, args ...string) *screen {
	t.Helper()
	return onScreenEnv(t, daemon, 24, 80, env, args...)
}

func onScreenOf(t *testing.T, d *harness.Daemon, rows, cols uint16, args ...string) *screen {
	t.Helper()
	return onScreenEnv(t, d, rows, cols, nil, args...)
}

func onScreenEnv(t *testing.T, d *harness.Daemon, rows, cols uint16, env []string, args ...string) *screen {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	control(t, master, func(fd int) error {
		if n, err = unix.IoctlGetInt(fd, unix.TIOCGPTN); err != nil {
			return err
		}
		return unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	})
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer tty.Close()
	s := &screen{master: master, cmd: d.Command(t.Context(), args...), ended: make(chan struct{})}
	s.resize(t, rows, cols)
	s.cmd.Env = append(append(s.cmd.Env, "TERM=vt220"), env...)
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = tty, tty, tty
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = s.cmd.Wait() // the code says it
		close(s.ended)
	}()
	go s.read()
	t.Cleanup(func() { _ = master.Close() }) // some tests hang up themselves
	return s
}

// control calls ioctl(2) on f, which stays one that Close interrupts the reader
// of: File.Fd would make it a blocking one.
func control(t *testing.T, f *os.File, do func(fd int) error) {
	t.Helper()
	conn, err := f.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if cerr := conn.Control(func(fd uintptr) { err = do(int(fd)) }); cerr != nil || err != nil {
		t.Fatal(cerr, err)
	}
}

// read keeps what is shown, until the terminal has nobody on it.
func (s *screen) read() {
	b := make([]byte, 4096)
	for {
		n, err := s.master.Read(b)
		s.mu.Lock()
		s.text.Write(b[:n])
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (s *screen) shown() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

func (s *screen) resize(t *testing.T, rows, cols uint16) {
	t.Helper()
	control(t, s.master, func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: cols})
	})
}

func (s *screen) typed(t *testing.T, keys string) {
	t.Helper()
	if _, err := s.master.WriteString(keys); err != nil {
		t.Fatal(err)
	}
}

func (s *screen) awaitShown(t *testing.T, text string) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !strings.Contains(s.shown(), text); time.Sleep(20 * time.Millisecond) { // nothing announces what a terminal shows
		if time.Now().After(deadline) {
			t.Fatalf("%q is not shown:\n%q", text, s.shown())
		}
	}
}

func (s *screen) end(t *testing.T) int {
	t.Helper()
	select {
	case <-s.ended:
		return s.cmd.ProcessState.ExitCode()
	case <-time.After(60 * time.Second):
		t.Fatalf("the client does not end:\n%q", s.shown())
		return -1
	}
}

//caisson:kernel
func TestTerminal(t *testing.T) {
	box(t, daemon, "tty")
	s := onScreen(t, 33, 77, "exec", "-it", "tty", "--", "sh")
	s.typed(t, "test -t 0 && test -t 1 && test -t 2 && echo is$((1))terminal; tty\n")
	s.awaitShown(t, "is1terminal")
	s.typed(t, "stty size\n")
	s.awaitShown(t, "33 77")
	s.resize(t, 44, 88)
	await(t, "the new size", func() bool {
		s.typed(t, "stty size\n")
		time.Sleep(50 * time.Millisecond) // it takes its way beside what is typed
		return strings.Contains(s.shown(), "44 88")
	})
	// Ctrl-C ends what runs in front, not the shell.
	s.typed(t, "sleep 1000; echo code=$((100+$?))\n")
	await(t, "the sleep", func() bool { return daemon.Try("exec", "tty", "--", "pidof", "sleep").Code == 0 })
	s.typed(t, "\x03")
	await(t, "its end", func() bool { return daemon.Try("exec", "tty", "--", "pidof", "sleep").Code == 1 })
	s.typed(t, "echo un$((0))hurt; exit 7\n")
	s.awaitShown(t, "un0hurt")
	if code := s.end(t); code != 7 {
		t.Errorf("code %d\n%q", code, s.shown())
	}
}

// A shell on a terminal ignores TERM: it gets HUP too when its time is over, or its sandbox
// is stopped. Why it ended is a line of its own, on a terminal that is as it was.
func TestShellIsAskedToEnd(t *testing.T) {
	box(t, daemon, "asked")
	for name, tt := range map[string]struct {
		code int
		call []string
		end  func()
		line string
	}{
		"timeout": {124, []string{"run", "-it", "--timeout", "3s", "--", "sh"}, func() {}, "\r\ncaisson: the command was ended by its timeout\r\n"},
		"stop":    {129, []string{"exec", "-it", "asked", "--", "sh"}, func() { daemon.Run(t, "stop", "asked") }, "\r\ncaisson: the command was ended: its sandbox was stopped\r\n"},
	} {
		began := time.Now()
		s := onScreen(t, 24, 80, tt.call...)
		s.awaitShown(t, "$ ")
		tt.end()
		code := s.end(t)
		s.awaitShown(t, tt.line)
		if took := time.Since(began); code != tt.code || took > 9*time.Second || strings.Contains(s.shown(), "is over (--timeout)") { // the grace is 10 s
			t.Errorf("%s: code %d after %v\n%q", name, code, took, s.shown())
		}
	}
}

// A command that does not end when it is asked to is said to be over.
func TestTimeIsOverOnTerminal(t *testing.T) {
	d := harness.StartWith(t, "stop_grace: 2s\n")
	s := onScreenOf(t, d, 24, 80, "run", "-it", "--timeout", "2s", "--", "sh", "-c", "trap '' TERM HUP; printf mid; while :; do sleep 1; done")
	s.awaitShown(t, "mid\r\ncaisson: the command's time is over (--timeout)")
	if strings.Contains(s.shown(), "ended by its timeout") {
		t.Errorf("it is said too late: %q", s.shown())
	}
	if code := s.end(t); code != 124 {
		t.Errorf("code %d\n%q", code, s.shown())
	}
}

// Who hangs up leaves nothing: neither the command nor what runs in front of it.
func TestHangUp(t *testing.T) {
	box(t, daemon, "gone")
	s := onScreen(t, 24, 80, "exec", "-it", "gone", "--", "sh")
	s.typed(t, "sleep 1234 | sleep 1235\n")
	await(t, "both", func() bool {
		return len(strings.Fields(daemon.Try("exec", "gone", "--", "pidof", "sleep").Stdout)) == 2
	})
	if err := s.master.Close(); err != nil {
		t.Fatal(err)
	}
	s.end(t)
	await(t, "the end of the command", func() bool { return ps(t, daemon, "gone")[0].State == "exited" })
	await(t, "the end of its children", func() bool { return daemon.Try("exec", "gone", "--", "pidof", "sleep").Code == 1 })
}

// A command with a terminal runs on when its attached caller leaves.
func TestDetachedTerminal(t *testing.T) {
	box(t, daemon, "dt")
	id := strings.TrimSpace(daemon.Run(t, "exec", "-d", "-t", "dt", "--", "sh", "-c", "echo hello; read x; echo got $x; stty size").Stdout)
	s := onScreen(t, 22, 66, "attach", "-it", "dt", id)
	s.awaitShown(t, "hello")
	s.typed(t, "word\n")
	s.awaitShown(t, "got word")
	if code := s.end(t); code != 0 || !strings.Contains(s.shown(), "22 66") {
		t.Errorf("code %d\n%q", code, s.shown())
	}
}

// Its caller leaves by the detach keys, or by closing the window, and it runs on. What was
// typed before reached it.
func TestDetach(t *testing.T) {
	box(t, daemon, "leave")
	id := strings.TrimSpace(daemon.Run(t, "exec", "-d", "-it", "leave", "--", "sh").Stdout)
	for name, leave := range map[string]func(*screen){
		"detach keys":     func(s *screen) { s.typed(t, "\x10"); s.typed(t, "\x11") },
		"a closed window": func(s *screen) { _ = s.master.Close() },
	} {
		s := onScreen(t, 22, 66, "attach", "-it", "leave", id)
		s.typed(t, "echo $((40+2))\n")
		s.awaitShown(t, "42")
		leave(s)
		if code := s.end(t); name == "detach keys" {
			if s.awaitShown(t, "detached; the command runs on"); code != 0 {
				t.Errorf("%s: code %d\n%q", name, code, s.shown())
			}
		}
		if e := ps(t, daemon, "leave")[0]; e.State != "running" {
			t.Fatalf("%s: it is %s", name, e.State)
		}
	}
	s := onScreen(t, 22, 66, "attach", "-it", "--detach-keys", "", "leave", id)
	s.typed(t, "\x10\x11\x15exit 6\n")
	if code := s.end(t); code != 6 {
		t.Errorf("the shell ended with %d\n%q", code, s.shown())
	}
}

// The detach keys leave a command running that exec, shell or run --keep started, and the line
// that they print leads back to it.
func TestDetachFromStart(t *testing.T) {
	box(t, daemon, "started")
	t.Cleanup(func() { daemon.Try("rm", "--force", "kept") })
	for _, call := range [][]string{
		{"exec", "-it", "--detach-keys", "ctrl-p,ctrl-q", "started", "--", "sh"}, {"shell", "--detach-keys", "ctrl-p,ctrl-q", "started"},
		{"run", "--keep", "--name", "kept", "-it", "--detach-keys", "ctrl-p,ctrl-q", "--", "sh"},
	} {
		s := onScreen(t, 22, 66, call...)
		s.typed(t, "mine=$((40+2))\n")
		s.awaitShown(t, "$ ")
		s.typed(t, "\x10\x11")
		s.awaitShown(t, "detached; the command runs on: caisson attach")
		if code := s.end(t); code != 0 {
			t.Errorf("%s: code %d\n%q", call, code, s.shown())
		}
		_, back, _ := strings.Cut(s.shown(), "runs on: caisson ")
		back, _, _ = strings.Cut(back, "\r")
		again := onScreen(t, 22, 66, strings.Fields(back)...)
		again.typed(t, "exit $mine\n")
		if code := again.end(t); code != 42 {
			t.Errorf("%s: %s ended with %d\n%q", call, back, code, again.shown())
		}
	}
}

// Who attaches again sees the screen: the last of the output, without the queries that the
// first terminal answered, and then what the program draws for this one.
func TestAttachAgain(t *testing.T) {
	box(t, daemon, "again")
	const query = "\x1b[6n"
	id := strings.TrimSpace(daemon.Run(t, "exec", "-d", "-it", "again", "--", "sh", "-c",
		`trap 'echo drawn at $(stty size)' WINCH; echo begun; read x; seq 100000; printf 'be\033[6nfore\n'; while :; do sleep 0.1; done`).Stdout)
	first := onScreen(t, 22, 66, "attach", "-it", "again", id)
	first.awaitShown(t, "begun")
	first.typed(t, "\n")
	await(t, "all of the output", func() bool { return strings.Contains(first.shown(), "be"+query+"fore") })
	raw := daemon.Run(t, "logs", "--exec", id, "again").Stdout
	if !strings.Contains(raw, "be"+query+"fore") || len(raw) < 500_000 {
		t.Fatalf("the command wrote %d bytes, without a query", len(raw))
	}
	first.typed(t, "\x10\x11")
	first.end(t)
	again := onScreen(t, 22, 66, "attach", "-it", "again", id)
	await(t, "the program to draw again", func() bool {
		_, after, _ := strings.Cut(again.shown(), "before")
		return strings.Contains(after, "drawn at 22 66")
	})
	shown := again.shown()
	if strings.Contains(shown, query) || !strings.Contains(shown, "before") {
		t.Errorf("%q, want the text without its query", shown[max(0, len(shown)-200):])
	}
	if len(shown) > 70<<10 || strings.Contains(shown, "\n50000\r") {
		t.Errorf("%d bytes are shown again", len(shown))
	}
	daemon.Run(t, "rm", "--force", "again")
	again.end(t)
}

// The shell of a sandbox is a terminal's.
func TestShell(t *testing.T) {
	box(t, daemon, "sh")
	s := onScreen(t, 22, 66, "shell", "-w", "/tmp", "sh")
	s.typed(t, "pwd; stty size; echo term=$TERM; exit 5\n")
	if code := s.end(t); code != 5 {
		t.Errorf("code %d\n%q", code, s.shown())
	}
	s.awaitShown(t, "/tmp\r\n22 66\r\nterm=vt220")
}

// TestImportShowsBytes: an import on a terminal shows how much was sent.
func TestImportShowsBytes(t *testing.T) {
	archive := writeTar(t, ociLayout(t, "shown"))
	info, err := os.Stat(archive)
	if err != nil {
		t.Fatal(err)
	}
	s := onScreen(t, 24, 100, "image", "import", "--name", "shown", archive)
	size := fmt.Sprintf("%.1f MiB", float64(info.Size())/(1<<20))
	s.awaitShown(t, size+" / "+size)
	if code := s.end(t); code != 0 {
		t.Errorf("it ended with %d", code)
	}
	daemon.Run(t, "image", "rm", "shown")
}
