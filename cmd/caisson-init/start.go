package main

import (
	"slices"
	"strings"
	"syscall"

	"github.com/caisson-run/caisson/initproto"
)

// failure is why a command did not start.
type failure struct {
	stage initproto.Stage
	errno syscall.Errno
}

func fail(stage initproto.Stage, err error) *failure {
	return &failure{stage: stage, errno: errnoOf(err)}
}

// readPayload reads the memfd of a Start and returns its size too.
func readPayload(fd int) (p initproto.Payload, size int, err error) {
	var stat syscall.Stat_t
	if err := syscall.Fstat(fd, &stat); err != nil {
		return p, 0, err
	}
	if stat.Size > initproto.MaxPayload {
		return p, 0, syscall.E2BIG
	}
	b := make([]byte, stat.Size)
	n, err := syscall.Pread(fd, b, 0)
	if err != nil {
		return p, 0, err
	}
	p, err = initproto.DecodePayload(b[:n])
	return p, n, err
}

// spawn starts p as the leader of its own session and process group. The
// working directory is entered here, not in the child, because a child has one
// errno for all that can go wrong in it. Only this goroutine uses it.
func spawn(p initproto.Payload, have initproto.Stdio, streams []int) (int, *failure) {
	cred, err := credential(p)
	if err != nil {
		return 0, fail(initproto.StageUser, err)
	}
	if err := syscall.Chdir(p.Cwd); err != nil {
		return 0, fail(initproto.StageChdir, err)
	}
	defer syscall.Chdir("/") // keeps no directory busy; cannot fail
	path, err := lookup(p.Args[0], p.Env)
	if err != nil {
		return 0, fail(lookupStage(p.Args[0]), err)
	}
	files, null, err := stdio(have, streams)
	if err != nil {
		return 0, fail(initproto.StageStdio, err)
	}
	defer initproto.CloseFDs(null)
	// The child gets default signal handlers, the signal mask and the limit of
	// open files that this process was started with, and no other descriptors:
	// all of them are close-on-exec.
	pid, err := syscall.ForkExec(path, p.Args, &syscall.ProcAttr{
		Env: p.Env, Files: files,
		Sys: &syscall.SysProcAttr{Setsid: true, Credential: cred},
	})
	if err != nil {
		return 0, fail(forkStage(err, cred), err)
	}
	return pid, nil
}

// credential returns nil when p is to run as this process does, which needs no
// right. Anything else does, and a sandbox without capabilities has none.
func credential(p initproto.Payload) (*syscall.Credential, error) {
	groups, err := syscall.Getgroups()
	if err != nil {
		return nil, err
	}
	if int(p.UID) == syscall.Getuid() && int(p.GID) == syscall.Getgid() && sameGroups(groups, p.Groups) {
		return nil, nil
	}
	return &syscall.Credential{Uid: p.UID, Gid: p.GID, Groups: p.Groups}, nil
}

// sameGroups compares sets: the kernel keeps groups sorted and repeated.
func sameGroups(have []int, want []uint32) bool {
	for _, gid := range have {
		if !slices.Contains(want, uint32(gid)) {
			return false
		}
	}
	for _, gid := range want {
		if !slices.Contains(have, int(gid)) {
			return false
		}
	}
	return true
}

// stdio returns the three standard streams: those that came, and /dev/null for
// the others. null is what it opened.
func stdio(have initproto.Stdio, streams []int) (files []uintptr, null []int, err error) {
	for bit := initproto.Stdin; bit <= initproto.Stderr; bit <<= 1 {
		switch {
		case have&bit != 0:
			files = append(files, uintptr(streams[0]))
			streams = streams[1:]
			continue
		case null == nil:
			fd, err := syscall.Open("/dev/null", syscall.O_RDWR|syscall.O_CLOEXEC, 0)
			if err != nil {
				return nil, nil, err
			}
			null = []int{fd}
		}
		files = append(files, uintptr(null[0]))
	}
	return files, null, nil
}

// forkStage tells a lack of resources, and of rights over the user, from what
// the kernel says about the file. Where execve(2) can return the same errno as
// fork(2), the meaning is the same.
func forkStage(err error, cred *syscall.Credential) initproto.Stage {
	switch err {
	case syscall.EAGAIN, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE:
		return initproto.StageFork
	case syscall.EPERM, syscall.EINVAL:
		if cred != nil {
			return initproto.StageUser
		}
	}
	return initproto.StageExec
}

func lookupStage(name string) initproto.Stage {
	if strings.Contains(name, "/") {
		return initproto.StageExec
	}
	return initproto.StageLookup
}
