package main

import (
	"runtime"
	"syscall"

	"github.com/caisson-run/caisson/initproto"
)

// enterTag moves this thread into the cgroup of r, so that what it forks begins there. The
// goroutine stays on the thread until leaveTag. No other thread is made meanwhile that
// would begin there too: Go has those of a locked thread made by another one.
func (r *request) enterTag() *failure {
	if r.tag[0] < 0 {
		return nil
	}
	runtime.LockOSThread()
	if err := moveHere(r.tag[0]); err != nil {
		runtime.UnlockOSThread()
		return fail(initproto.StagePlace, err)
	}
	return nil
}

// leaveTag undoes enterTag. A thread that stayed would die with the command, and all of
// the sandbox with it.
func (r *request) leaveTag() {
	if r.tag[0] < 0 {
		return
	}
	if err := moveHere(r.tag[1]); err != nil {
		syscall.Exit(initproto.ExitSetup)
	}
	runtime.UnlockOSThread()
}

// moveHere writes 0, which is the thread that writes (cgroups(7)), to a file of a cgroup.
func moveHere(fd int) error {
	_, err := write(fd, []byte{'0'})
	return err
}
