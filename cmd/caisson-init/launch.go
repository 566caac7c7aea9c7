package main

import (
	"syscall"

	"github.com/caisson-run/caisson/initproto"
)

// launch is PID 1's hold on a launcher, until that has become the command.
type launch struct {
	report int    // read end, non-blocking: what the launcher says
	gate   int    // eventfd: the launcher waits until it is not 0
	got    []byte // of the report
	waits  bool   // for Proceed
}

// The descriptors of a launcher. Its own standard streams are /dev/null, so
// that the Go runtime could never write to the command's.
const (
	launchPayload = 3 + iota
	launchReport  // write end
	launchGate
	launchStdin // and the two after it
)

// What a launcher says: notes of noteSize bytes, a stage and an errno. A stage
// of 0 says that all is prepared; then its limits are set and it becomes the
// command, or one more note says why not.
const noteSize = 5

func (l *launch) close() {
	closeFD(&l.report)
	closeFD(&l.gate)
}

// spawnLauncher forks the launcher of r. It completes rec.
func (s *server) spawnLauncher(r *request, rec *record, sys *syscall.SysProcAttr) *failure {
	if err := s.startPoller(); err != nil {
		return fail(initproto.StageFork, err)
	}
	files, failure := s.files(r, rec)
	if failure != nil {
		return failure
	}
	defer files.close()
	failure = s.forkLauncher(r, rec, sys, files)
	if failure != nil {
		s.dropTerminal(rec)
	}
	return failure
}

func (s *server) forkLauncher(r *request, rec *record, sys *syscall.SysProcAttr, files *stdio) *failure {
	null, err := openNull()
	if err != nil {
		return fail(initproto.StageStdio, err)
	}
	defer syscall.Close(null)
	var report [2]int
	if err := syscall.Pipe2(report[:], syscall.O_CLOEXEC|syscall.O_NONBLOCK); err != nil {
		return fail(initproto.StageFork, err)
	}
	defer syscall.Close(report[1])
	l := &launch{report: report[0], gate: -1, waits: r.Place}
	if l.gate, err = newEvent(!r.Place, 0); err != nil {
		l.gate = -1
		l.close()
		return fail(initproto.StageFork, err)
	}
	if r.Terminal {
		sys.Setctty, sys.Ctty = true, launchStdin
	}
	if failure := r.enterTag(); failure != nil {
		l.close()
		return failure
	}
	n := uintptr(null)
	rec.pid, err = syscall.ForkExec("/proc/self/exe", []string{initproto.BinaryName, initproto.LaunchMode}, &syscall.ProcAttr{
		Env:   []string{"GOMAXPROCS=1", "GOGC=off"},
		Files: append([]uintptr{n, n, n, uintptr(r.payload), uintptr(report[1]), uintptr(l.gate)}, files.list()...),
		Sys:   sys,
	})
	r.leaveTag()
	if err != nil {
		l.close()
		stage := forkStage(err, sys.Credential)
		if stage == initproto.StageExec { // of this binary, not of the command
			stage = initproto.StageFork
		}
		return fail(stage, err)
	}
	rec.launch = l
	rec.take(r)
	return nil
}

// proceed opens the gate of a command that was placed.
func (s *server) proceed(r *record) {
	if r != nil && r.launch != nil && r.launch.waits {
		r.launch.waits = false
		signalEvent(r.launch.gate)
	}
}

// abandon ends a command that was placed.
func (s *server) abandon(r *record) {
	if r != nil && r.launch != nil && r.launch.waits {
		s.failLaunch(r, &failure{initproto.StagePlace, syscall.ECANCELED})
	}
}

func (s *server) failLaunch(r *record, f *failure) {
	s.undo(r)
	s.send(initproto.Failed{Exec: r.exec, Stage: f.stage, Errno: f.errno})
}

// settle reads what the launcher of r has said and acts on it. gone says that
// it has been reaped, so there is nothing more to come.
func (s *server) settle(r *record, gone bool) {
	l := r.launch
	var buf [2 * noteSize]byte
	for len(l.got) < len(buf) {
		n, err := syscall.Read(l.report, buf[:len(buf)-len(l.got)])
		if err == syscall.EINTR {
			continue
		}
		if n <= 0 {
			gone = gone || err != syscall.EAGAIN // its end is closed: by execve(2), or with it
			break
		}
		l.got = append(l.got, buf[:n]...)
	}
	ready, refused := parseNotes(l.got)
	switch {
	case refused != nil:
		s.failLaunch(r, refused)
	case !gone:
	case ready:
		l.close()
		r.launch = nil
		s.send(initproto.Started{Exec: r.exec, PID: r.pid})
	case l.waits:
		s.failLaunch(r, &failure{initproto.StagePlace, syscall.ESRCH})
	default:
		// The Go runtime of the launcher ends it, without a note, when it gets
		// no thread or no memory.
		s.failLaunch(r, &failure{initproto.StageFork, syscall.EAGAIN})
	}
}

// parseNotes reads what a launcher said, which a hostile process of its user
// may have said instead.
func parseNotes(b []byte) (ready bool, refused *failure) {
	for len(b) >= noteSize {
		stage := initproto.Stage(b[0])
		errno := syscall.Errno(b[1]) | syscall.Errno(b[2])<<8 | syscall.Errno(b[3])<<16 | syscall.Errno(b[4])<<24
		b = b[noteSize:]
		if stage == 0 {
			ready = true
			continue
		}
		const maxErrno = 4095
		if stage.String() == initproto.Stage(0).String() || errno == 0 || errno > maxErrno {
			return ready, &failure{initproto.StageExec, syscall.EIO}
		}
		return ready, &failure{stage, errno}
	}
	return ready, nil
}
