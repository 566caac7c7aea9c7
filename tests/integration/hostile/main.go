// Command hostile stands in for caisson-init in the tests of what a daemon
// bears from a PID 1 that whoever controls the sandbox has taken over.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0
package main

import (
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/initproto"
	"github.com/caisson-run/caisson/initproto/listener"
)

// mode is what it does, set by the build.
var mode = "silent"

// behaviours are the ways to misbehave. The connection of those in greeted has
// been welcomed; each is called once.
var (
	behaviours = map[string]func(*initproto.Conn){
		"version": func(c *initproto.Conn) { say(c, initproto.Hello{Version: 99, PID: 1}) },
		"holds": func(c *initproto.Conn) {
			say(c, initproto.Hello{Version: initproto.Version, PID: 1, Held: initproto.MaxHeld})
		},
		"started first": func(c *initproto.Conn) { say(c, initproto.Started{Exec: 1, PID: 2}) },
	}
	greeted = map[string]func(*initproto.Conn){
		"mute": func(*initproto.Conn) {},

		"no filter":      func(*initproto.Conn) {},
		"another filter": func(*initproto.Conn) {},

		"unasked":   func(c *initproto.Conn) { say(c, initproto.Exited{Exec: 7}) },
		"own pid":   func(c *initproto.Conn) { say(c, initproto.Started{Exec: request(c).exec, PID: 1}) },
		"flood":     flood,
		"deaf":      func(c *initproto.Conn) { say(c, initproto.Started{Exec: request(c).exec, PID: 2}) },
		"prattling": prattle,
	}
)

func main() {
	if mode == "exits" {
		syscall.Exit(3)
	}
	if mode != "silent" {
		ownStreams()
		misbehave()
	}
	for {
		time.Sleep(time.Hour)
	}
}

// ownStreams replaces the standard streams and adds the filter as the real one does: the
// daemon looks.
func ownStreams() {
	null, err := syscall.Open("/dev/null", syscall.O_RDWR|syscall.O_CLOEXEC, 0)
	if err != nil {
		syscall.Exit(initproto.ExitSetup)
	}
	for fd := range 3 {
		if err := syscall.Dup3(null, fd, 0); err != nil {
			syscall.Exit(initproto.ExitSetup)
		}
	}
	_ = syscall.Close(null) // which it just opened
	if err := addFilter(); err != nil {
		syscall.Exit(initproto.ExitSetup)
	}
}

// addFilter adds the filter of PID 1, none, or one with the same flags that asks nobody.
func addFilter() (err error) {
	switch mode {
	case "no filter":
	case "another filter":
		err = allowAll()
	default:
		_, err = listener.Install()
	}
	return err
}

func allowAll() error {
	p := unix.SockFprog{Len: 1, Filter: &unix.SockFilter{Code: unix.BPF_RET, K: unix.SECCOMP_RET_ALLOW}}
	const flags = unix.SECCOMP_FILTER_FLAG_TSYNC | unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_TSYNC_ESRCH
	if _, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&p))); errno != 0 {
		return errno
	}
	return nil
}

func misbehave() {
	if do, ok := behaviours[mode]; ok {
		do(dial())
		return
	}
	greeted[mode](greet())
}

func dial() *initproto.Conn {
	conn, err := initproto.Dial(initproto.Dir + "/" + initproto.SocketName)
	if err != nil {
		syscall.Exit(initproto.ExitConnect)
	}
	return conn
}

// greet connects as the real one does.
func greet() *initproto.Conn {
	conn := dial()
	say(conn, initproto.Hello{Version: initproto.Version, PID: 1})
	if _, _, err := conn.Recv(); err != nil {
		syscall.Exit(initproto.ExitProtocol)
	}
	return conn
}

// say sends m; a daemon that has hung up is what some tests wait for.
func say(c *initproto.Conn, m initproto.Message) { _ = c.Send(m) }

// asked is a command that the daemon asked for.
type asked struct {
	exec   uint32
	stdout int
}

// request waits for a Start.
func request(c *initproto.Conn) asked {
	for {
		m, fds, err := c.Recv()
		if err != nil {
			syscall.Exit(initproto.ExitProtocol)
		}
		if s, ok := m.(initproto.Start); ok {
			first := 1 // the payload comes before the streams
			if s.Tag {
				first += 2
			}
			return asked{exec: s.Exec, stdout: fds[first+(s.Stdio&initproto.Stdin).Count()]}
		}
	}
}

// flood says that the command ended, as often as the daemon listens, and
// connects again when it does not any more.
func flood(c *initproto.Conn) {
	at := request(c)
	say(c, initproto.Started{Exec: at.exec, PID: 2})
	for {
		if c.Send(initproto.Exited{Exec: at.exec}) != nil {
			c = greet()
		}
	}
}

// prattle says that the command ended, and goes on writing what it writes.
func prattle(c *initproto.Conn) {
	at := request(c)
	say(c, initproto.Started{Exec: at.exec, PID: 2})
	line := []byte(strings.Repeat("prattle\n", 1<<13))
	for n := 0; ; n++ {
		if n == 4 { // more than is kept was taken by then
			say(c, initproto.Exited{Exec: at.exec, Code: 5})
		}
		if _, err := syscall.Write(at.stdout, line); err != nil {
			return
		}
	}
}
