package main

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// exhaust uses up the inotify instances that this process's user may have, says
// how many those were, and holds them.
func exhaust() error {
	n := 0
	for {
		if _, err := unix.InotifyInit1(unix.IN_CLOEXEC); err != nil {
			fmt.Println(n, outcome(err))
			return unix.Pause() // until it is killed
		}
		n++
	}
}

// nest does that in a user namespace that this process makes.
func nest() error {
	cmd := exec.Command("/proc/self/exe", "exhaust")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
	}
	return cmd.Run()
}
