// Package initproto is what caissond and caisson-init, PID 1 of a sandbox, say
// to each other.
//
// PID 1 connects to SocketName in Dir, a SOCK_SEQPACKET socket, so each packet
// is one message. It speaks first:
//
//	PID 1 → daemon   Hello                     once, names the version
//	daemon → PID 1   Start  + descriptors      payload, then the passed stdio
//	PID 1 → daemon   Started | Failed          once per Start
//	daemon → PID 1   Signal                    at most one unanswered per command
//	PID 1 → daemon   Signaled                  once per Signal
//	PID 1 → daemon   Exited                    once per Started, after it
//
// The argument list and the environment do not fit a packet, so they travel as
// a Payload in a sealed memfd: the first descriptor of a Start.
//
// The daemon speaks the version that PID 1 announces, or refuses it. A new
// message, field or meaning is a new Version; a Kind is never reused. Both ends
// take an unknown kind, a wrong length or a value out of range as a broken
// protocol, and end the connection: PID 1 then exits, and the kernel ends the
// sandbox.
//
// PID 1 belongs to whoever controls the sandbox. Everything that it sends is
// hostile input to the daemon; Decode bounds the values, runtime/pid1 checks
// the order.
//
// The package depends on nothing but syscall: each page it adds is paid once
// per sandbox.
package initproto

// Version is the protocol of this build.
const Version = 1

// Where PID 1 finds its binary and its socket inside the sandbox. The folder
// is a read-only bind of one in the daemon's state directory.
const (
	Dir        = "/run/caisson"
	SocketName = "init.sock"
	BinaryName = "caisson-init"
)

// SocketEnv names the environment variable of PID 1 that overrides the
// socket's path. It is for tests; a sandbox does not set it.
const SocketEnv = "CAISSON_INIT_SOCKET"

// Bounds of what is sent.
const (
	MaxPacket  = 128     // bytes of any packet of this Version, of any ever 64 KiB
	MaxPayload = 1 << 20 // bytes of a Payload
	MaxFDs     = 4       // descriptors of one packet: payload and stdio
	MaxPID     = 1 << 22 // the kernel's PID_MAX_LIMIT on 64 bits
	MaxSignal  = 64      // SIGRTMAX
	maxErrno   = 4095    // the kernel's MAX_ERRNO

	// Threads is how many tasks PID 1 may take itself from the sandbox's limit
	// of processes. It makes all of them before it starts a command.
	Threads = 12
)

// Exit statuses of PID 1, which are all that it can say without a connection.
const (
	ExitLost     = 1  // the daemon closed the connection
	ExitProtocol = 70 // the daemon sent what this build does not know
	ExitSetup    = 71 // PID 1 could not protect itself
	ExitConnect  = 72 // the socket does not answer
)
