package main

import (
	"syscall"
	"unsafe"

	"github.com/caisson-run/caisson/initproto"
)

// launchMain is what a launcher does. It returns only to exit: PID 1 has been
// told why, or notices.
func launchMain() int {
	// A command of the same user could otherwise speak to PID 1 in its stead.
	if err := prctl(syscall.PR_SET_DUMPABLE, 0); err != nil {
		return initproto.ExitSetup
	}
	refused := launchCommand()
	note(refused.stage, refused.errno)
	return initproto.ExitSetup
}

// launchCommand becomes the command, or says why it cannot.
func launchCommand() *failure {
	p, _, err := readPayload(launchPayload)
	if err != nil {
		return fail(initproto.StageRequest, err)
	}
	image, refused := findImage(p)
	// Whatever was found, the daemon now places this process into a cgroup: it must not
	// end before that.
	if err := awaitEvent(launchGate); err != nil {
		return fail(initproto.StagePlace, err)
	}
	if refused != nil {
		return refused
	}
	if err := adoptStreams(); err != nil {
		return fail(initproto.StageStdio, err)
	}
	restoreFileLimit()
	note(0, 0)
	return image.become()
}

// adoptStreams makes the command's streams its standard streams, and leaves it
// nothing else.
func adoptStreams() error {
	for i := range 3 {
		if err := syscall.Dup3(launchStdin+i, i, 0); err != nil {
			return err
		}
	}
	return sealFDs()
}

// restoreFileLimit undoes what the Go runtime did to the soft limit of open
// files, as it does itself before any execve(2), this one of nothing included.
func restoreFileLimit() { _ = syscall.Exec("", nil, nil) }

func note(stage initproto.Stage, errno syscall.Errno) {
	b := [noteSize]byte{byte(stage), byte(errno), byte(errno >> 8), byte(errno >> 16), byte(errno >> 24)}
	_, _, _ = syscall.RawSyscall(syscall.SYS_WRITE, launchReport, uintptr(unsafe.Pointer(&b)), noteSize)
}

// image is a command in the form of execve(2). Once its limits are set nothing
// may need memory any more.
type image struct {
	path   *byte
	argv   []*byte
	envv   []*byte
	limits []initproto.Rlimit
}

// findImage looks the command up.
func findImage(p initproto.Payload) (*image, *failure) {
	path, err := lookup(p.Args[0], p.Env)
	if err != nil {
		return nil, fail(lookupStage(p.Args[0]), err)
	}
	m, err := newImage(path, p)
	if err != nil {
		return nil, fail(initproto.StageExec, err)
	}
	return m, nil
}

func newImage(path string, p initproto.Payload) (*image, error) {
	var m image
	var err error
	if m.path, err = syscall.BytePtrFromString(path); err != nil {
		return nil, err
	}
	if m.argv, err = syscall.SlicePtrFromStrings(p.Args); err != nil {
		return nil, err
	}
	if m.envv, err = syscall.SlicePtrFromStrings(p.Env); err != nil {
		return nil, err
	}
	m.limits = p.Rlimits
	return &m, nil
}

// become sets the limits and executes. The stage is told to PID 1 from here,
// without a new object: under its limits this process may get no memory.
func (m *image) become() *failure {
	for i := range m.limits {
		l := &m.limits[i]
		pair := [2]uint64{l.Soft, l.Hard}
		// prlimit64(2) has 64 bits everywhere.
		if _, _, errno := syscall.RawSyscall6(syscall.SYS_PRLIMIT64, 0, uintptr(l.Resource), uintptr(unsafe.Pointer(&pair)), 0, 0, 0); errno != 0 {
			refuse(initproto.StageRlimit, errno)
		}
	}
	_, _, errno := syscall.RawSyscall(syscall.SYS_EXECVE, uintptr(unsafe.Pointer(m.path)),
		uintptr(unsafe.Pointer(&m.argv[0])), uintptr(unsafe.Pointer(&m.envv[0])))
	refuse(initproto.StageExec, errno)
	return nil
}

// refuse tells PID 1 and ends this process.
func refuse(stage initproto.Stage, errno syscall.Errno) {
	note(stage, errno)
	for {
		_, _, _ = syscall.RawSyscall(syscall.SYS_EXIT_GROUP, initproto.ExitSetup, 0, 0)
	}
}
