package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// bombs use something up until they are stopped, and say what stopped them and
// after how much.
var bombs = map[string]func(arg string) (int, error){
	"memory":   fillMemory,
	"file":     fillFile, // ARG is its directory
	"inodes":   fillInodes,
	"fds":      repeat(func() error { _, err := unix.Dup(0); return err }),
	"pipes":    repeat(func() error { return unix.Pipe2(make([]int, 2), unix.O_CLOEXEC) }),
	"eventfds": repeat(func() error { _, err := unix.Eventfd(0, 0); return err }),
	"epolls":   repeat(func() error { _, err := unix.EpollCreate1(0); return err }),
	"inotify":  repeat(func() error { _, err := unix.InotifyInit1(0); return err }),
	"watches":  fillWatches,
	"ptys": repeat(func() error {
		_, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
		return err
	}),
	"mq":        openQueues,
	"mlock":     lockMemory,
	"signals":   queueSignals,
	"timers":    repeat(makeTimer),
	"processes": fork,
	"output":    fillOutput, // ARG is how many bytes
	"lookup":    func(name string) (int, error) { return 1, lookup(name) },
	"crash":     crash,

	"locks":      holdLocks,      // ARG is their directory
	"unaccepted": holdUnaccepted, // connections
	"sockets":    holdSockets,    // ARG is how many, and for how many seconds
	"flood":      floodSockets,   // ARG is how many processes
	"answers":    holdAnswers,    // of netlink
	"asker":      askInVain,
	"hidden":     hideLocks,  // as locks, behind those of files
	"later":      hoardLater, // ARG is where it is told when
}

// enough is more of anything than a sandbox may have.
const enough = 1 << 20

func bomb(args []string) error {
	arg := ""
	if len(args) == 2 {
		arg = args[1]
	}
	if len(args) == 0 || bombOf(args[0]) == nil {
		return fmt.Errorf("no bomb %q", args)
	}
	start := time.Now()
	n, err := bombOf(args[0])(arg)
	var dns *net.DNSError
	what := outcome(err)
	if errors.As(err, &dns) {
		what = "no answer"
	}
	fmt.Fprintf(os.Stderr, "%s %d %d\n", what, n, time.Since(start).Milliseconds())
	return nil
}

func bombOf(name string) func(string) (int, error) {
	if socketHoards[name].fill != nil {
		return hoardSockets(name)
	}
	return bombs[name]
}

// repeat does it again and again until an error.
func repeat(do func() error) func(string) (int, error) {
	return func(string) (int, error) {
		for n := range enough {
			if err := do(); err != nil {
				return n, err
			}
		}
		return enough, nil
	}
}

// fillMemory touches memory until the process is killed.
func fillMemory(string) (int, error) {
	const chunk = 16 << 20
	for n := 0; ; n += chunk {
		if n > 8<<30 {
			return n, nil
		}
		b, err := unix.Mmap(-1, 0, chunk, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
		if err != nil {
			return n, err
		}
		b[0] = 1
	}
}

func fillFile(dir string) (int, error) {
	f, err := os.CreateTemp(dir, "bomb-")
	if err != nil {
		return 0, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	block := bytes.Repeat([]byte{1}, 1<<20)
	for n := 0; n < 4<<30; {
		m, err := f.Write(block)
		n += m
		if err != nil {
			return n, err
		}
	}
	return 4 << 30, nil
}

func fillInodes(dir string) (int, error) {
	for n := range enough {
		if err := unix.Mkdir(dir+"/"+strconv.Itoa(n), 0o700); err != nil {
			return n, err
		}
	}
	return enough, nil
}

// fillWatches asks for a watch on each of many directories.
func fillWatches(dir string) (int, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		return 0, err
	}
	for n := range enough {
		name := dir + "/" + strconv.Itoa(n)
		if err := unix.Mkdir(name, 0o700); err != nil {
			return n, err
		}
		if _, err := unix.InotifyAddWatch(fd, name, unix.IN_CREATE); err != nil {
			return n, fmt.Errorf("watch: %w", err)
		}
	}
	return enough, nil
}

func openQueues(string) (int, error) {
	name, err := unix.BytePtrFromString("bomb")
	if err != nil {
		return 0, err
	}
	_, _, errno := unix.Syscall6(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(name)), unix.O_RDWR|unix.O_CREAT, 0o600, 0, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return 1, nil
}

func lockMemory(string) (int, error) {
	page := os.Getpagesize()
	for n := 0; ; n += page {
		b, err := unix.Mmap(-1, 0, page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			return n, err
		}
		if err := unix.Mlock(b); err != nil {
			return n, err
		}
	}
}

// queueSignals sends itself real-time signals that it blocks.
func queueSignals(string) (int, error) {
	const signal = 40
	set := unix.Sigset_t{}
	set.Val[0] = 1 << (signal - 1)
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &set, nil); err != nil {
		return 0, err
	}
	return repeat(func() error {
		var info [128]byte
		*(*int32)(unsafe.Pointer(&info[8])) = -1 // SI_QUEUE
		_, _, errno := unix.RawSyscall6(unix.SYS_RT_TGSIGQUEUEINFO, uintptr(unix.Getpid()), uintptr(unix.Gettid()), signal, uintptr(unsafe.Pointer(&info[0])), 0, 0)
		if errno != 0 {
			return errno
		}
		return nil
	})("")
}

func makeTimer() error {
	var id int32
	event := [64]byte{}
	*(*int32)(unsafe.Pointer(&event[8])) = 40 // sigev_signo
	_, _, errno := unix.RawSyscall(unix.SYS_TIMER_CREATE, unix.CLOCK_MONOTONIC, uintptr(unsafe.Pointer(&event[0])), uintptr(unsafe.Pointer(&id)))
	if errno != 0 {
		return errno
	}
	return nil
}

// fork makes processes that only wait, and ends them. Meanwhile no thread may be made:
// the runtime ends a program in which that fails.
func fork(string) (int, error) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var made []uintptr
	defer func() {
		for _, pid := range made {
			unix.RawSyscall(unix.SYS_KILL, pid, uintptr(unix.SIGKILL), 0)
			unix.RawSyscall6(unix.SYS_WAIT4, pid, 0, 0, 0, 0, 0)
		}
	}()
	return repeat(func() error {
		pid, _, errno := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
		switch {
		case errno != 0:
			return errno
		case pid == 0: // it has the memory of this program, and none of its threads
			for {
				unix.RawSyscall6(unix.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
			}
		}
		made = append(made, pid)
		return nil
	})("")
}

// fillOutput writes one line without an end.
func fillOutput(arg string) (int, error) {
	size, err := strconv.Atoi(arg)
	if err != nil {
		return 0, err
	}
	block := bytes.Repeat([]byte{'x'}, 1<<20)
	for n := 0; n < size; {
		m, err := os.Stdout.Write(block[:min(len(block), size-n)])
		n += m
		if err != nil {
			return n, err
		}
	}
	return size, nil
}

// crash ends a child by a signal whose default action is to dump core.
func crash(string) (int, error) {
	if err := os.Chdir("/tmp"); err != nil {
		return 0, err
	}
	err := exec.Command("/proc/self/exe", "abort").Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return 0, err
	}
	status := exit.Sys().(syscall.WaitStatus)
	files, _ := os.ReadDir(".")
	if status.CoreDump() || len(files) > 0 {
		return len(files), errors.New("core dumped")
	}
	return 0, errors.New(unix.SignalName(status.Signal()))
}

// abort takes the handler away that Go's runtime has installed, and crashes.
func abort() error {
	var fallback [32]byte // SIG_DFL
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(unix.SIGSEGV), uintptr(unsafe.Pointer(&fallback[0])), 0, 8, 0, 0)
	if errno != 0 {
		return errno
	}
	return unix.Kill(unix.Getpid(), unix.SIGSEGV)
}
