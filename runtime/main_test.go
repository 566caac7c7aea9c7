package runtime

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/initproto"
)

// fakeInitEnv makes the test binary a fake PID 1: its value is the directory
// of the socket. fakeInitMode says how it comes up.
const (
	fakeInitEnv  = "CAISSON_TEST_FAKE_INIT"
	fakeInitMode = "CAISSON_TEST_FAKE_INIT_MODE"
)

// TestMain fails if a descriptor survives the tests.
func TestMain(m *testing.M) {
	if dir := os.Getenv(fakeInitEnv); dir != "" {
		os.Exit(beInit(dir, os.Getenv(fakeInitMode)))
	}
	wrongMovesPanic = true
	before := descriptors()
	code := m.Run()
	for name, n := range descriptors() {
		if extra := n - before[name]; extra > 0 && code == 0 {
			fmt.Fprintf(os.Stderr, "%d descriptors of %s are left\n", extra, name)
			code = 1
		}
	}
	os.Exit(code)
}

// descriptors counts the open descriptors of the kinds that sandboxes use.
func descriptors() map[string]int {
	found := map[string]int{}
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, e := range entries {
		to, err := os.Readlink(filepath.Join("/proc/self/fd", e.Name()))
		kind, _, _ := strings.Cut(to, ":[")
		switch {
		case err != nil:
		case kind == "socket" || kind == "pipe" || kind == "user" || kind == "net" || strings.Contains(to, "pidfd"):
			found[kind]++
		case strings.Contains(to, "/sandboxes/") || strings.Contains(to, "/output/"):
			found["sandbox files"]++
		}
	}
	return found
}

// beInit waits for its start, a line on standard input, connects, and then
// plays the commands that it is asked for. It ends with its connection.
func beInit(dir, mode string) int {
	lines := bufio.NewReader(os.Stdin)
	if _, err := lines.ReadString('\n'); err != nil {
		return 1 // the test is over
	}
	switch mode {
	case "die":
		return 1
	case "silent":
		_, _ = io.Copy(io.Discard, lines) // until it is killed, or the test ends
		return 1
	}
	if err := os.Chdir(dir); err != nil { // an address holds 107 bytes only
		return 2
	}
	conn, err := initproto.Dial(initproto.SocketName)
	if err != nil {
		return 2
	}
	i := &actor{conn: conn, signals: make(chan syscall.Signal, 64)}
	i.send(initproto.Hello{Version: initproto.Version, PID: 1})
	go func() { // what the test wants without a word of the daemon's
		for {
			if _, err := lines.ReadString('\n'); err != nil {
				return
			}
			i.signals <- poked
		}
	}()
	for {
		m, fds, err := conn.Recv()
		if err != nil {
			return 0
		}
		switch m := m.(type) {
		case initproto.Start:
			i.start(m, fds)
		case initproto.Signal:
			i.signal(m)
		}
	}
}

// poked is the signal that a script awaits which goes on at poke.
const poked syscall.Signal = 10

// actor is the fake PID 1. A command is a script: each argument is a step.
type actor struct {
	conn    *initproto.Conn
	mu      sync.Mutex
	signals chan syscall.Signal
}

func (a *actor) send(m initproto.Message) {
	a.mu.Lock()
	defer a.mu.Unlock()
	_ = a.conn.Send(m)
}

func (a *actor) start(m initproto.Start, fds []int) {
	payload := make([]byte, initproto.MaxPayload)
	n, _ := unix.Pread(fds[0], payload, 0)
	_ = unix.Close(fds[0])
	p, err := initproto.DecodePayload(payload[:n])
	if err != nil {
		os.Exit(3)
	}
	streams := make([]*os.File, 3)
	rest := fds[1:]
	for i := range streams {
		if m.Stdio&(1<<i) != 0 {
			streams[i], rest = os.NewFile(uintptr(rest[0]), "stream"), rest[1:]
		}
	}
	for _, fd := range rest { // what PID 1 would hold
		_ = unix.Close(fd)
	}
	if p.Args[0] == "late" { // the rest is for when it is poked
		p.Args = p.Args[1:]
		go func() {
			<-a.signals
			a.begin(m, p, streams)
		}()
		return
	}
	a.begin(m, p, streams)
}

// begin answers a Start.
func (a *actor) begin(m initproto.Start, p initproto.Payload, streams []*os.File) {
	if what, ok := strings.CutPrefix(p.Args[0], "fail:"); ok {
		errno, _ := strconv.Atoi(what)
		closeFiles(streams)
		a.send(initproto.Failed{Exec: m.Exec, Stage: initproto.StageLookup, Errno: syscall.Errno(errno)})
		return
	}
	if p.Args[0] == "unanswered" {
		return
	}
	a.send(initproto.Started{Exec: m.Exec, PID: 1 + int(m.Exec%(1<<20)) + int(m.Exec>>31)<<20})
	go a.play(m.Exec, p, streams)
}

// signal passes a signal to the script, and answers before the script can say that
// it has ended, as PID 1 does. SIGKILL to all that belongs to a command ends the
// sandbox: a script has no process of its own.
func (a *actor) signal(m initproto.Signal) {
	if m.Signal == syscall.SIGKILL {
		os.Exit(0)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.signals <- m.Signal
	_ = a.conn.Send(initproto.Signaled{Exec: m.Exec, Count: int(m.Scope)})
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close()
		}
	}
}

func (a *actor) child(text string, streams []*os.File) {
	<-a.signals
	fmt.Fprint(streams[1], text)
	<-a.signals
	closeFiles(streams)
}

// play does the steps of a script.
func (a *actor) play(exec uint32, p initproto.Payload, streams []*os.File) {
	exit := initproto.Exited{Exec: exec, MaxRSSKiB: 7}
	for _, step := range p.Args {
		verb, rest, _ := strings.Cut(step, ":")
		n, _ := strconv.Atoi(rest)
		switch verb {
		case "out":
			fmt.Fprint(streams[1], rest)
		case "err":
			fmt.Fprint(streams[2], rest)
		case "env":
			fmt.Fprint(streams[1], strings.Join(p.Env, "\n"))
		case "who":
			fmt.Fprintf(streams[1], "%d:%d in %s", p.UID, p.GID, p.Cwd)
		case "cat":
			_, _ = io.Copy(streams[1], streams[0])
		case "await": // a signal
			for sig := range a.signals {
				if int(sig) == n {
					break
				}
			}
		case "child": // outlives the command, writes when it is poked, and ends when that is done again
			go a.child(rest, slices.Clone(streams))
			clear(streams)
		case "hang":
			select {}
		case "die":
			os.Exit(n)
		case "exit":
			exit.Code = uint8(n)
		case "signal":
			exit.Signal = syscall.Signal(n)
		}
	}
	closeFiles(streams)
	a.send(exit)
}
