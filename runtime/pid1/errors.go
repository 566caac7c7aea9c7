package pid1

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/initproto"
)

// What ends a Client. Both come under the code sbxerr.Init, ErrClosed under
// sbxerr.State.
var (
	ErrProtocol = errors.New("caisson-init broke its protocol") // hostile or broken
	ErrLost     = errors.New("caisson-init is gone")            // ended without a word
	ErrClosed   = errors.New("connection closed by the daemon")
)

func violation(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrProtocol}, args...)...)
}

// StartError says why a command did not start. It comes under the code
// CommandAbsent, NotExecutable, Processes, Limits or Config.
type StartError struct {
	Stage string        // an initproto.Stage: "chdir", "lookup", "exec", ...
	Errno syscall.Errno // as the kernel or the lookup gave it
	Name  string        // what the stage was about: the command or the directory
}

// Error renders what was tried, on what, and the reason.
func (e *StartError) Error() string {
	return fmt.Sprintf("%s %q: %s", stageVerbs[e.Stage], e.Name, e.reason())
}

// Unwrap returns the errno.
func (e *StartError) Unwrap() error { return e.Errno }

func (e *StartError) reason() string {
	switch {
	case e.Stage == initproto.StageLookup.String() && e.Errno == syscall.ENOENT:
		return "not found in PATH"
	case e.Stage == initproto.StageFork.String() && e.Errno == syscall.EAGAIN:
		return "the limit of processes is reached"
	case e.Stage == initproto.StageExec.String() && e.Errno == syscall.ENOENT:
		return "no such file, or its interpreter is absent"
	}
	return e.Errno.Error()
}

var stageVerbs = map[string]string{
	initproto.StageRequest.String():  "read request for",
	initproto.StageUser.String():     "take on the user of",
	initproto.StageChdir.String():    "enter directory",
	initproto.StageStdio.String():    "open /dev/null for",
	initproto.StageLookup.String():   "look up",
	initproto.StageFork.String():     "fork for",
	initproto.StageExec.String():     "execute",
	initproto.StageRlimit.String():   "lower the resource limits of",
	initproto.StagePlace.String():    "place",
	initproto.StageTerminal.String(): "make a terminal for",
	initproto.StageHold.String():     "keep in mind",
	initproto.StageInput.String():    "write input file",
}

// startError makes the error of f, PID 1's answer to the start of from.
func startError(f initproto.Failed, from *Exec) error {
	e := &StartError{Stage: f.Stage.String(), Errno: f.Errno, Name: from.name}
	switch f.Stage {
	case initproto.StageChdir:
		e.Name = from.cwd
	case initproto.StageInput:
		e.Name = from.inputs
	}
	const op = "pid1.start"
	code := startCode(f)
	if code == sbxerr.Limits || f.Stage == initproto.StageRlimit || f.Stage == initproto.StageInput {
		return sbxerr.WithRemedy(code, op, e, remedies[f.Stage])
	}
	return sbxerr.Wrap(code, op, e)
}

var remedies = map[initproto.Stage]string{
	initproto.StageRequest:  "raise the sandbox's limit of open files, or end and release some of its commands",
	initproto.StageStdio:    "raise the sandbox's limit of open files, or end and release some of its commands",
	initproto.StageTerminal: "end some of the sandbox's commands that have a terminal",
	initproto.StageHold:     "end and release some of the sandbox's commands",
	initproto.StageRlimit:   "ask for no more than the sandbox has: a command may only lower its limits",
	initproto.StageInput:    "name a path where nothing is, in a directory of a tmpfs that the sandbox's user may write to and that has room",
	initproto.StageFork:     "raise the sandbox's limit of open files or memory",
}

func startCode(f initproto.Failed) sbxerr.Code {
	switch f.Stage {
	case initproto.StageInput:
		return inputCode(f.Errno)
	case initproto.StageUser, initproto.StageChdir, initproto.StageRlimit:
		return sbxerr.Config
	case initproto.StageFork:
		return forkCode(f.Errno)
	case initproto.StageHold:
		return sbxerr.Limits
	case initproto.StageRequest, initproto.StageStdio, initproto.StageTerminal:
		return resourceCode(f.Errno)
	case initproto.StageLookup, initproto.StageExec:
		return execCode(f.Errno)
	}
	return sbxerr.Init
}

// forkCode tells a limit of processes, be it the sandbox's or the command's own,
// from other shortages.
func forkCode(errno syscall.Errno) sbxerr.Code {
	if errno == syscall.EAGAIN {
		return sbxerr.Processes
	}
	return sbxerr.Limits
}

// resourceCode tells a sandbox that has used up what it may have from one that
// is broken.
func resourceCode(errno syscall.Errno) sbxerr.Code {
	switch errno {
	case syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ENOSPC:
		return sbxerr.Limits
	}
	return sbxerr.Init
}

// inputCode tells a full file system from a path that does not do.
func inputCode(errno syscall.Errno) sbxerr.Code {
	if code := resourceCode(errno); code == sbxerr.Limits {
		return code
	}
	return sbxerr.Config
}

// execCode follows what shells do: what is not there is absent (127), all
// else that is there cannot be executed (126).
func execCode(errno syscall.Errno) sbxerr.Code {
	switch errno {
	case syscall.ENOENT, syscall.ENOTDIR, syscall.ENAMETOOLONG:
		return sbxerr.CommandAbsent
	case syscall.E2BIG:
		return sbxerr.Config // of the argument list, by execve(2)
	}
	return sbxerr.NotExecutable
}
