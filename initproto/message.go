package initproto

import "syscall"

// Kind is the first byte of a packet. The numbers are the wire format.
type Kind uint8

// The kinds. From 64 on PID 1 speaks, below it the daemon.
const (
	KindStart    Kind = 1
	KindSignal   Kind = 2
	KindHello    Kind = 64
	KindStarted  Kind = 65
	KindFailed   Kind = 66
	KindSignaled Kind = 67
	KindExited   Kind = 68
)

// Message is one of Hello, Start, Started, Failed, Signal, Signaled, Exited.
type Message interface {
	kind() Kind
	size() int // bytes after the kind
	encode(*encoder)
}

// Hello is PID 1's first message.
type Hello struct {
	Version uint32
	PID     int // as PID 1 sees it: 1, unless a test runs it without a namespace
}

// Stdio says which of a command's standard streams come with the Start, in
// this order. A stream that does not is the sandbox's /dev/null.
type Stdio uint8

// The streams.
const (
	Stdin Stdio = 1 << iota
	Stdout
	Stderr
	allStdio = Stdin | Stdout | Stderr
)

// Count returns how many streams s holds.
func (s Stdio) Count() int {
	return int(s&1 + s>>1&1 + s>>2&1)
}

// Start asks for a command. Its descriptors are the payload and the streams
// that Stdio names.
type Start struct {
	Exec  uint32 // chosen by the daemon, never 0, never twice in a connection
	Stdio Stdio
}

// Started answers a Start whose command runs.
type Started struct {
	Exec uint32
	PID  int // in the sandbox's pid namespace, above 1
}

// Stage is the step of a start that met an error.
type Stage uint8

// The stages, in their order.
const (
	StageRequest Stage = 1 + iota // the payload could not be read
	StageUser                     // the command's user cannot be taken on
	StageChdir                    // the working directory cannot be entered
	StageStdio                    // /dev/null cannot be opened
	StageLookup                   // the name is not in PATH
	StageFork                     // the sandbox is out of processes, files or memory
	StageExec                     // the kernel refused the file
	stageEnd
)

var stageNames = [stageEnd]string{
	StageRequest: "request", StageUser: "user", StageChdir: "chdir", StageStdio: "stdio",
	StageLookup: "lookup", StageFork: "fork", StageExec: "exec",
}

// String names the stage.
func (s Stage) String() string {
	if s == 0 || s >= stageEnd {
		return "unknown"
	}
	return stageNames[s]
}

// Failed answers a Start whose command does not run.
type Failed struct {
	Exec  uint32
	Stage Stage
	Errno syscall.Errno // never 0
}

// Signal asks for a signal to a command's process group.
type Signal struct {
	Exec   uint32
	Signal syscall.Signal // 1 to MaxSignal
}

// Signaled answers a Signal. ESRCH says that the command had ended.
type Signaled struct {
	Exec  uint32
	Errno syscall.Errno // 0: delivered
}

// Exited says how a command ended. Either Code or Signal is 0.
type Exited struct {
	Exec         uint32
	Code         uint8
	Signal       syscall.Signal
	UserMicros   int64 // of the command and the children that it waited for
	SystemMicros int64
	MaxRSSKiB    int64 // of the largest of these
	// Remaining counts the processes that outlive the command: all in the
	// sandbox but PID 1, zombies, and the sessions of other running commands.
	// It is taken as the command ends: some may be about to end too.
	// -1 says that they could not be counted.
	Remaining int
}

func (Hello) kind() Kind    { return KindHello }
func (Start) kind() Kind    { return KindStart }
func (Started) kind() Kind  { return KindStarted }
func (Failed) kind() Kind   { return KindFailed }
func (Signal) kind() Kind   { return KindSignal }
func (Signaled) kind() Kind { return KindSignaled }
func (Exited) kind() Kind   { return KindExited }

func (Hello) size() int    { return 8 }
func (Start) size() int    { return 5 }
func (Started) size() int  { return 8 }
func (Failed) size() int   { return 9 }
func (Signal) size() int   { return 5 }
func (Signaled) size() int { return 8 }
func (Exited) size() int   { return 34 }
