// Package initproto is what caissond and caisson-init, PID 1 of a sandbox, say
// to each other.
//
// PID 1 connects to SocketName in Dir, a SOCK_SEQPACKET socket, so each packet
// is one message. It speaks first; the greeting is
//
//	PID 1 → daemon   Hello                     names the version and how many commands it holds
//	daemon → PID 1   Adopt                     if it holds any
//	PID 1 → daemon   Held   + descriptors      one for each, in the order of their numbers
//	daemon → PID 1   Welcome + descriptor      names the orphan grace, and brings a file for its end
//	PID 1 → daemon   Exited                    of those held that have ended
//
// and from then on
//
//	daemon → PID 1   Start  + descriptors      payload, inputs, tag, the passed stdio, the held ends
//	PID 1 → daemon   Placed                    once per Start that asks for it
//	daemon → PID 1   Proceed | Abandon         once per Placed
//	PID 1 → daemon   Started | Failed          once per Start
//	daemon → PID 1   Signal                    at most one unanswered per command
//	PID 1 → daemon   Signaled                  once per Signal
//	daemon → PID 1   CloseStdin, Resize        not answered
//	PID 1 → daemon   Exited                    once per Started or Held, after it
//	daemon → PID 1   Release                   last word about a command, not answered
//
// # Re-attaching
//
// A connection counts from its Welcome on. When one that counted is lost, PID 1
// keeps the commands running and connects to the same path again and again. If
// no daemon has welcomed it within the orphan grace it writes how commands ended,
// and what their pipes hold, into the file of the Welcome, for a daemon that comes
// later still. Then it exits, and the kernel ends the sandbox. Without a grace it
// does so at once.
//
// PID 1 keeps each command in mind that it has Started, running or ended, until
// the Release of it, and with it the outside ends of its pipes that came with
// the Start. So while there is no daemon no writer gets a SIGPIPE, and what was
// written is read by the next one. A Start that was not answered with Started
// when its connection was lost is undone where it was yet to be placed or to
// report its limits; any other is handed over like all the rest.
//
// # Input
//
// The held ends of a command with an input include a staging pipe, with which the daemon
// counts the bytes that the command has. PID 1 only keeps it open, so that the next daemon
// finds in it the bytes that were on their way.
//
// # Input files
//
// A Start with Inputs brings a file with the content of all input files, one after the
// other. PID 1 writes them before the command starts. It removes them before it reports
// the end of the command, whether a daemon is there or not.
//
// # Tags
//
// A Start with Tag brings two files of cgroups, each open for writing. The thread that
// forks the command writes "0" to the first one, which moves that thread into the command's
// cgroup, where the command begins. After the fork it writes "0" to the second one and is
// back. These files can move nothing but a thread that writes to them, and it stays in the
// sandbox's cgroup.
//
// # Terminals
//
// PID 1 opens a pseudo terminal for a Start with Terminal, and copies between
// it and the passed stdin and stdout. The end of stdin types VEOF. When the
// command has ended, what the terminal holds is copied before Exited is sent,
// for which the reader of stdout has to make room. At most MaxTerminals are
// open at a time.
//
// # The launcher
//
// A command with Rlimits or Place starts as "caisson-init launch", a process
// that already is the leader of the command's session. It waits for its
// Proceed, sets its limits and becomes the command.
//
// # Encoding
//
// The argument list and the environment do not fit a packet, so they travel as
// a Payload in a sealed memfd: the first descriptor of a Start.
//
// The daemon speaks the version that PID 1 announces, or refuses it. A new
// message, field or meaning is a new Version; a Kind is never reused, and a
// Hello begins with its version in all of them. Both ends take an unknown kind,
// a wrong length or a value out of range as a broken protocol, and end the
// connection: PID 1 then exits, and the kernel ends the sandbox.
//
// PID 1 belongs to whoever controls the sandbox. Everything that it sends is
// hostile input to the daemon; Decode bounds the values, runtime/pid1 checks
// the order.
//
// The package depends on nothing but syscall: each page it adds is paid once
// per sandbox.
package initproto

// Version is the protocol of this build.
const Version = 6

// Where PID 1 finds its binary and its socket inside the sandbox. The folder
// is a read-only bind of one in the daemon's state directory.
const (
	Dir        = "/run/caisson"
	SocketName = "init.sock"
	// WakeName is a FIFO beside it: who has it open and waits for a writer to hang
	// up learns that a daemon listens again.
	WakeName   = "init.wake"
	BinaryName = "caisson-init"
)

// InputDir holds the input files of commands that name no other directory. PID 1 makes it.
const InputDir = "/dev/shm/caisson-input"

// SocketEnv names the environment variable of PID 1 that overrides the
// socket's path. It is for tests; a sandbox does not set it.
const SocketEnv = "CAISSON_INIT_SOCKET"

// LaunchMode is the argument that makes caisson-init the launcher of one
// command. PID 1 alone can use it: it needs the descriptors that PID 1 passes.
const LaunchMode = "launch"

// NothingMode is the argument that makes caisson-init end at once, with success.
const NothingMode = "nothing"

// Bounds of what is sent.
const (
	MaxPacket  = 128     // bytes of any packet of this Version, of any ever 64 KiB
	MaxPayload = 1 << 20 // bytes of a Payload
	MaxFDs     = 11      // descriptors of one packet: payload, inputs, tag, stdio, held ends
	MaxHeld    = 4096    // commands that PID 1 keeps in mind at a time
	MaxInputs  = 16      // input files of one command
	MaxRlimits = 16      // the kernel's RLIM_NLIMITS
	MaxPID     = 1 << 22 // the kernel's PID_MAX_LIMIT on 64 bits
	MaxSignal  = 64      // SIGRTMAX
	maxErrno   = 4095    // the kernel's MAX_ERRNO

	// MaxTerminals is how many terminals PID 1 copies at a time.
	MaxTerminals = 64
)

// Exit statuses of PID 1, which are all that it can say without a connection.
const (
	ExitLost     = 1  // there was no daemon for as long as the orphan grace
	ExitUsage    = 64 // an argument that names no mode
	ExitProtocol = 70 // the daemon sent what this build does not know
	ExitSetup    = 71 // PID 1 could not protect itself
	ExitConnect  = 72 // the socket does not answer
)
