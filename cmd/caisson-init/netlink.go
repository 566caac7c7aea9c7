package main

import (
	"bytes"
	"runtime"
	"strconv"
	"syscall"

	"github.com/caisson-run/caisson/initproto"
	"github.com/caisson-run/caisson/initproto/listener"
)

// Bounds of netlink sockets. A program asks the kernel for the sandbox's addresses by
// such a socket. The answers that it does not read lie in kernel memory of no cgroup, up
// to twice net.core.rmem_max for each socket (socket(7), SO_RCVBUF). So the number of
// sockets bounds that memory.
const (
	netlinkMemory = 32 << 20 // that all sockets may hold
	minNetlink    = 4        // sockets, however much each may hold
	maxNetlink    = 64

	// netlinkPatience is how long a command waits for its socket once all are in use.
	// Programs have one only while they ask, and few of them bear an error.
	netlinkPatience = 1000 * millisecond
	netlinkTick     = millisecond
)

// netlinkGuard answers the kernel for each netlink socket that a command wants. It is of
// one goroutine, and takes one request after the other: the rest wait in the kernel.
type netlinkGuard struct {
	fd      int   // the listener
	most    int   // sockets of commands
	others  int   // sockets of the namespace that were the daemon's at the first request; -1 before it
	full    int64 // CLOCK_BOOTTIME since which there is no room; 0 while there is
	granted []int // threads that may not have made their socket yet
	garbage int   // bytes since the last collection
	buf     [8 << 10]byte
}

// Bytes that a question and a look at a thread leave behind, rounded up.
const (
	questionGarbage = 256
	lookGarbage     = 128
)

// guardNetlink puts the second filter in force for all threads and answers from then on.
// Nothing in this process may make a netlink socket: it would wait for itself.
func guardNetlink() error {
	most, err := netlinkBound()
	if err != nil {
		return err
	}
	fd, err := listener.Install()
	if err != nil {
		return err
	}
	g := &netlinkGuard{fd: fd, most: most, others: -1}
	go g.serve()
	return nil
}

// netlinkBound asks the kernel how much one socket may hold: an option above the limit is
// set to the limit, for every family alike. It is asked once, so a limit that the host
// raises later counts for later sandboxes.
func netlinkBound() (int, error) {
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer syscall.Close(fd)
	const most = 1<<31 - 1
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_RCVBUF, most); err != nil {
		return 0, err
	}
	size, err := syscall.GetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_RCVBUF)
	if err != nil {
		return 0, err
	}
	return boundFor(size), nil
}

// boundFor returns how many sockets there may be that hold size bytes each.
func boundFor(size int) int {
	return min(max(netlinkMemory/max(size, 1), minNetlink), maxNetlink)
}

// serve never ends. It keeps its thread, which waits in the kernel for most of the time.
func (g *netlinkGuard) serve() {
	runtime.LockOSThread()
	for {
		ask, err := receive(g.fd)
		switch err {
		case nil:
			g.answer(ask)
			runtime.Gosched() // commands that ask all the time must not keep the others from being served
		case syscall.EINTR, syscall.ENOENT: // the thread that asked was interrupted, or is gone
		default:
			syscall.Exit(initproto.ExitSetup) // commands would wait for ever
		}
	}
}

func (g *netlinkGuard) answer(ask question) {
	thread := int(ask.pid)
	if !g.await(thread) {
		_ = denyCall(g.fd, ask.id, syscall.EMFILE)
		return
	}
	// ENOENT: a signal interrupted the thread meanwhile. It asks again.
	if allowCall(g.fd, ask.id) == nil {
		g.granted = append(g.granted, thread)
	}
}

// await reports whether thread may make a socket. While there is no room it waits, but no
// longer than netlinkPatience after there was room last.
func (g *netlinkGuard) await(thread int) bool {
	for {
		if g.room(thread) {
			g.full = 0
			return true
		}
		now := bootTime()
		if g.full == 0 {
			g.full = now
		}
		if now-g.full >= netlinkPatience {
			return false
		}
		pause(netlinkTick)
	}
}

// room reports whether one more socket keeps the bound. A thread that was allowed one has
// it only a while later, so it counts apart from the sockets until it surely has it.
// Those are looked at first: their sockets are then in the count.
func (g *netlinkGuard) room(thread int) bool {
	g.discard(questionGarbage + lookGarbage*len(g.granted))
	g.granted = pending(g.granted, thread, threadState)
	used, err := g.sockets()
	if err != nil {
		return false // too many descriptors are open
	}
	if g.others < 0 {
		g.others = used // no command has had one
	}
	return used-g.others+len(g.granted) < g.most
}

// discard notes garbage and collects it when that is worth it, as the server's does.
func (g *netlinkGuard) discard(bytes int) {
	if g.garbage += bytes; g.garbage > garbageLimit {
		g.garbage = 0
		runtime.GC()
	}
}

// pending returns the threads of granted that may still be on their way to a socket: all
// but the one that asks again, those that are gone, and those that sleep or have stopped.
// Between the answer and the socket the kernel never lets a thread wait for an event. It
// may wait for memory and for a processor, which show as D and R. A thread that computes
// afterwards is taken for one that is on its way, which errs on the safe side.
func pending(granted []int, asks int, state func(thread int) byte) []int {
	left := granted[:0]
	for _, thread := range granted {
		if thread == asks {
			continue
		}
		switch state(thread) {
		case 'S', 'T', 't', 'Z', 'X', threadGone:
		default:
			left = append(left, thread)
		}
	}
	return left
}

// threadGone is the state of a thread that has ended.
const threadGone = 0

// threadState returns the state of a thread as proc_pid_stat(5) has it. A thread of which
// nothing is known is taken to run.
func threadState(thread int) byte {
	fd, err := syscall.Open("/proc/"+strconv.Itoa(thread)+"/stat", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err == syscall.ENOENT {
		return threadGone
	}
	if err != nil {
		return 'R'
	}
	defer syscall.Close(fd)
	var buf [512]byte
	n, err := syscall.Read(fd, buf[:])
	if err == syscall.ESRCH {
		return threadGone
	}
	p, ok := parseStat(buf[:max(n, 0)])
	if err != nil || !ok {
		return 'R'
	}
	return p.state
}

// sockets returns how many netlink sockets the network namespace has, those of the daemon
// included. The kernel's own are not among them.
func (g *netlinkGuard) sockets() (int, error) {
	fd, err := syscall.Open("/proc/thread-self/net/protocols", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer syscall.Close(fd)
	size := 0
	for size < len(g.buf) {
		n, err := syscall.Read(fd, g.buf[size:])
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return 0, err
		}
		if n <= 0 {
			break
		}
		size += n
	}
	return parseProtocols(g.buf[:size])
}

// parseProtocols finds the third field of the line of netlink: its sockets.
func parseProtocols(list []byte) (int, error) {
	for len(list) > 0 {
		var line []byte
		line, list, _ = bytes.Cut(list, newline)
		rest, found := bytes.CutPrefix(line, netlinkName)
		if !found {
			continue
		}
		_, rest, ok := parseInt(bytes.TrimLeft(rest, " "))
		if !ok {
			break
		}
		if n, _, ok := parseInt(bytes.TrimLeft(rest, " ")); ok {
			return n, nil
		}
		break
	}
	return 0, syscall.EINVAL
}

var (
	newline     = []byte{'\n'}
	netlinkName = []byte("NETLINK ")
)
