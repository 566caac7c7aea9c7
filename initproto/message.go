package initproto

// Kind is the first byte of a packet. The numbers are the wire format.
type Kind uint8

// The kinds. From 64 on PID 1 speaks, below it the daemon.
const (
	KindStart      Kind = 1
	KindSignal     Kind = 2
	KindWelcome    Kind = 3
	KindAdopt      Kind = 4
	KindRelease    Kind = 5
	KindCloseStdin Kind = 6
	KindResize     Kind = 7
	KindProceed    Kind = 8
	KindAbandon    Kind = 9
	KindHello      Kind = 64
	KindStarted    Kind = 65
	KindFailed     Kind = 66
	KindSignaled   Kind = 67
	KindExited     Kind = 68
	KindHeld       Kind = 69
	KindPlaced     Kind = 70
)

// Message is one of the daemon's (Welcome, Adopt, Start, Proceed, Abandon,
// Signal, CloseStdin, Resize, Release) or one of PID 1's (Hello, Held, Placed,
// Started, Failed, Signaled, Exited).
type Message interface {
	kind() Kind
	size() int // bytes after the kind
	encode(*encoder)
}

// Stdio says which of a command's streams come with a message, in this order. A stream that does not is the sandbox's /dev/null.
type Stdio uint8

// The streams.
const (
	Stdin Stdio = 1 << iota
	Stdout
	Stderr
	// Staging is a pipe through which the daemon moves the input to Stdin, so that it
	// can count the bytes that a command has. It only comes among held ends.
	Staging
	allStdio = Stdin | Stdout | Stderr
	allHeld  = allStdio | Staging
)

// Count returns how many streams s holds.
func (s Stdio) Count() int {
	return int(s&1 + s>>1&1 + s>>2&1 + s>>3&1)
}

// Stage is the step of a start that met an error.
type Stage uint8

// The stages. The first seven are in their order.
const (
	StageRequest  Stage = 1 + iota // the payload or the descriptors could not be taken
	StageUser                      // the command's user cannot be taken on
	StageChdir                     // the working directory cannot be entered
	StageStdio                     // /dev/null cannot be opened
	StageLookup                    // the name is not in PATH
	StageFork                      // the sandbox is out of processes, files or memory
	StageExec                      // the kernel refused the file
	StageRlimit                    // a resource limit was refused
	StagePlace                     // the daemon abandoned it, or it ended while it was placed
	StageTerminal                  // no terminal could be made
	StageHold                      // MaxHeld commands are waiting for their Release
	StageInput                     // an input file could not be written
	stageEnd
)

var stageNames = [stageEnd]string{
	StageRequest: "request", StageUser: "user", StageChdir: "chdir", StageStdio: "stdio",
	StageLookup: "lookup", StageFork: "fork", StageExec: "exec", StageRlimit: "rlimit",
	StagePlace: "place", StageTerminal: "terminal", StageHold: "hold", StageInput: "input",
}

// String names the stage.
func (s Stage) String() string {
	if s == 0 || s >= stageEnd {
		return "unknown"
	}
	return stageNames[s]
}

// Scope says which processes a Signal is for.
type Scope uint8

// The scopes.
const (
	ScopeGroup Scope = iota // the command's process group
	ScopeAll                // its session, and all that descends from that
	scopeEnd
)
