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

// request is a Start with its descriptors, each -1 where there is none or
// where it has become another's.
type request struct {
	initproto.Start
	initproto.Payload
	payload   int
	inputData int    // -1 for none
	tag       [2]int // files to enter and to leave the command's cgroup; -1 for none
	streams   [3]int // inside ends
	held      heldFDs
	made      []input
}

func newRequest(m initproto.Start, fds []int) *request {
	r := &request{Start: m, payload: fds[0], inputData: -1, tag: [2]int{-1, -1}, streams: noFiles, held: noHeld}
	fds = fds[1:]
	if m.Inputs {
		r.inputData, fds = fds[0], fds[1:]
	}
	if m.Tag {
		r.tag, fds = [2]int{fds[0], fds[1]}, fds[2:]
	}
	for _, take := range []struct {
		set initproto.Stdio
		to  []int
	}{{m.Stdio, r.streams[:]}, {m.Held, r.held[:]}} {
		for i := range take.to {
			if take.set&(1<<i) != 0 {
				take.to[i], fds = fds[0], fds[1:]
			}
		}
	}
	return r
}

func (r *request) close() {
	closeFD(&r.payload)
	closeFD(&r.inputData)
	closeFD(&r.tag[0])
	closeFD(&r.tag[1])
	removeInputs(r.made)
	for i := range r.streams {
		closeFD(&r.streams[i])
	}
	for i := range r.held {
		closeFD(&r.held[i])
	}
}

// start starts a command and says so.
func (s *server) start(m initproto.Start, fds []int) {
	r := newRequest(m, fds)
	var size int
	var err error
	if r.Payload, size, err = readPayload(r.payload); err == nil {
		makeHome(r.Env)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.discard(startGarbage + payloadGarbage*size)
	var rec *record
	failure := s.admit(r, err)
	if failure == nil {
		failure = r.writeInputs()
	}
	if failure == nil {
		rec, failure = s.spawn(r)
	}
	// Before the answer: the daemon must see the end of a stream as soon as
	// the command is gone.
	r.close()
	if failure != nil {
		s.send(initproto.Failed{Exec: m.Exec, Stage: failure.stage, Errno: failure.errno})
		return
	}
	s.live[rec.pid], s.records[rec.exec] = rec, rec
	s.confirm(rec)
	if !offer(rec.pid, maxDescent) {
		go offerLater(rec.pid)
	}
	select {
	case s.forked <- struct{}{}:
	default: // it has yet to see the previous one
	}
}

// confirm answers a Start whose process is there.
func (s *server) confirm(r *record) {
	switch {
	case r.launch == nil:
		s.send(initproto.Started{Exec: r.exec, PID: r.pid})
	case r.launch.waits:
		s.send(initproto.Placed{Exec: r.exec, PID: r.pid})
		s.poller.wake()
	default:
		s.poller.wake()
	}
}

// admit refuses what cannot be started or kept; err is of the payload.
func (s *server) admit(r *request, err error) *failure {
	switch {
	case err != nil:
		return fail(initproto.StageRequest, err)
	case s.records[r.Exec] != nil:
		return fail(initproto.StageRequest, syscall.EEXIST)
	case len(s.records) >= initproto.MaxHeld:
		return fail(initproto.StageHold, syscall.ENOSPC)
	case r.Terminal && len(s.terms) >= initproto.MaxTerminals:
		return fail(initproto.StageTerminal, syscall.ENOSPC)
	}
	return nil
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

// spawn starts r as the leader of its own session and process group. The
// working directory is entered here, not in the child, because a child has one
// errno for all that can go wrong in it. Only this goroutine uses it.
func (s *server) spawn(r *request) (*record, *failure) {
	cred, err := credential(r.Payload)
	if err != nil {
		return nil, fail(initproto.StageUser, err)
	}
	if err := syscall.Chdir(r.Cwd); err != nil {
		return nil, fail(initproto.StageChdir, err)
	}
	defer syscall.Chdir("/") // keeps no directory busy; cannot fail
	rec := &record{exec: r.Exec, held: noHeld, running: true}
	sys := &syscall.SysProcAttr{Setsid: true, Credential: cred}
	if r.Place || len(r.Rlimits) > 0 {
		err := s.spawnLauncher(r, rec, sys)
		return rec, err
	}
	path, err := lookup(r.Args[0], r.Env)
	if err != nil {
		return nil, fail(lookupStage(r.Args[0]), err)
	}
	files, failure := s.files(r, rec)
	if failure != nil {
		return nil, failure
	}
	defer files.close()
	sys.Setctty = r.Terminal // Ctty is the command's stdin
	if failure := r.enterTag(); failure != nil {
		s.dropTerminal(rec)
		return nil, failure
	}
	// The child gets default signal handlers, the signal mask and the limit of
	// open files that this process was started with, and no other descriptors:
	// all of them are close-on-exec.
	rec.pid, err = syscall.ForkExec(path, r.Args, &syscall.ProcAttr{Env: r.Env, Files: files.list(), Sys: sys})
	r.leaveTag()
	if err != nil {
		s.dropTerminal(rec)
		return nil, fail(forkStage(err, cred), err)
	}
	rec.take(r)
	return rec, nil
}

// dropTerminal ends the terminal, if there is one, of a command that did not start.
func (s *server) dropTerminal(rec *record) {
	if rec.term != nil {
		s.closeTerminal(rec.term)
	}
}

// take moves what is held, and the input files, from the request to the record.
func (rec *record) take(r *request) {
	rec.held, r.held = r.held, noHeld
	rec.inputs, r.made = r.made, nil
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

// stdio is what a command gets as its standard streams.
type stdio struct {
	fds  [3]int
	null int // among fds, opened for it; -1 for none
}

func (f *stdio) close() { closeFD(&f.null) }

func (f *stdio) list() []uintptr {
	return []uintptr{uintptr(f.fds[0]), uintptr(f.fds[1]), uintptr(f.fds[2])}
}

// files returns the streams: a new terminal, which becomes rec's and takes over
// the streams of r, or those of r, and /dev/null for what is absent.
func (s *server) files(r *request, rec *record) (*stdio, *failure) {
	if r.Terminal {
		if err := s.openTerminal(r, rec); err != nil {
			return nil, fail(initproto.StageTerminal, err)
		}
		slave := rec.term.slave
		return &stdio{fds: [3]int{slave, slave, slave}, null: -1}, nil
	}
	f := &stdio{fds: r.streams, null: -1}
	for i, fd := range f.fds {
		if fd >= 0 {
			continue
		}
		if f.null < 0 {
			var err error
			if f.null, err = openNull(); err != nil {
				f.null = -1
				return nil, fail(initproto.StageStdio, err)
			}
		}
		f.fds[i] = f.null
	}
	return f, nil
}

// ownStreams replaces the standard streams, which are the host's /dev/null, by the
// sandbox's own: locks on the host's would reach the host.
func ownStreams() error {
	null, err := openNull()
	if err != nil {
		return err
	}
	defer syscall.Close(null)
	for fd := range 3 {
		if err := syscall.Dup3(null, fd, 0); err != nil {
			return err
		}
	}
	return nil
}

func openNull() (int, error) {
	return syscall.Open("/dev/null", syscall.O_RDWR|syscall.O_CLOEXEC, 0)
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
