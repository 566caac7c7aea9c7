// Package control is the language between the daemon and caisson-gateway.
//
// Both speak frames on a connected unix stream socket: four bytes of length,
// big-endian, then as many bytes of JSON, one message. The gateway inherits its
// end as descriptor FD.
//
// The daemon sends a Request at a time, with descriptors where the operation
// has some, and gets an Answer with the same number:
//
//	configure   the upstream resolvers and proxy; the first request, and once
//	add         a sandbox: policy, given names, and four sockets
//	watch       a sandbox of the mode bridge: the socket on which its namespace tells what
//	            it sends, which goes through nobody
//	policy      another policy for a sandbox
//	bill        other accounts for the requests of a sandbox by routes
//	publish     the ports of a sandbox, added or not: a listener of the host for each,
//	            and to which links of others may lead
//	supply      sockets in the namespace of a sandbox that publishes, not connected
//	secrets     the files with the values of secrets, and which others stay
//	try secret  a file, to say what is wrong with the value in it
//	remove      a sandbox, and all its connections; absent is success
//	ping        nothing but an answer
//
// The gateway sends a Report at a time: that it is confined (once, before it
// reads anything), answers, what its sandboxes do, what their
// requests by routes cost, and which of them needs sockets. Nobody answers those. It
// never waits for a daemon that does not read: it drops, and counts what it
// dropped.
//
// The gateway parses hostile bytes, so it may be in hostile hands. The daemon
// reads reports with DecodeReport, which bounds and checks all there is in
// them, and takes no descriptors.
package control

// FD is the descriptor of the gateway's end of the connection.
const FD = 3

// The bounds of a frame's message, in bytes.
const (
	MaxRequest = 4 << 20
	MaxReport  = 64 << 10
)

// The bounds of what a request carries. Both together fit into one.
const (
	MaxNames   = 8192    // that a sandbox can use while it lives
	MaxPolicy  = 3 << 19 // bytes of a policy as JSON
	MaxPorts   = 16      // that a sandbox publishes
	MaxClients = 256     // addresses and networks that may connect to one of them
	MaxSecrets = 64      // of all sandboxes together
)
