package main

import (
	"fmt"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ipcProbes look for objects that the host has made.
func ipcProbes() []probe {
	return []probe{
		{id: "P041", name: "System V segment of the host", try: func() string { return raw(unix.SYS_SHMGET, uintptr(around.key), 0, 0) }, want: []string{"ENOENT"}},
		{id: "P041", name: "System V semaphore of the host", try: func() string { return raw(unix.SYS_SEMGET, uintptr(around.key), 0, 0) }, want: []string{"ENOENT"}},
		{id: "P041", name: "System V queue of the host", try: func() string { return raw(unix.SYS_MSGGET, uintptr(around.key), 0) }, want: []string{"ENOENT"}},
		{id: "P041", name: "list of System V objects", try: listed, want: []string{none}},
		{id: "P041", name: "POSIX queue of the host", try: openQueue, want: []string{"ENOENT"}},
		{id: "P041", name: "POSIX segment of the host", try: func() string { return tryOpen("/dev/shm/"+around.name, unix.O_RDONLY) }, want: []string{"ENOENT"}},
	}
}

func listed() string {
	for _, kind := range []string{"shm", "sem", "msg"} {
		for line := range strings.Lines(readText("/proc/sysvipc/" + kind)) {
			if f := strings.Fields(line); len(f) > 0 && f[0] == fmt.Sprint(int32(around.key)) {
				return kind
			}
		}
	}
	return none
}

func openQueue() string {
	name, err := unix.BytePtrFromString(around.name)
	if err != nil {
		return outcome(err)
	}
	fd, _, errno := unix.Syscall6(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(name)), unix.O_RDONLY|unix.O_CLOEXEC, 0, 0, 0, 0)
	if errno != 0 {
		return errnoName(errno)
	}
	_ = unix.Close(int(fd))
	return ok
}
