// Package files is what caissond and `caisson-init files` say to each other: a
// process inside the sandbox that works on its files, as its user, under its
// limits. PID 1 starts it like any command; its descriptor 0 is one end of a
// SOCK_STREAM socket pair and all that it has of the host.
//
// Both sides send frames: a Kind, the length of the body as 32 bits, the body.
// The daemon sends a Request and what belongs to it, the process answers:
//
//	stat, make, move       Request                        → Entry Done
//	remove                 Request                        → Done
//	list                   Request                        → Entry… Done
//	read                   Request                        → Entry Data… Done
//	write                  Request Data… End              → Entry Done
//	copy out               Request                        → (Entry Data…)… Done
//	copy in                Request (Entry Data…)… End     → Done
//	watch                  Request                        → Ready Event…
//
// Any answer may be a Failure instead, which ends it. The process sends one as
// soon as it knows and then drops what still comes, up to End or Abort; Abort
// undoes an unfinished write or copy and is answered with a Failure too. After
// Done or Failure the next Request may follow, except after watch, which ends
// with the connection. The end of the connection in the middle of anything
// undoes it like Abort, and ends the process.
//
// The process belongs to whoever controls the sandbox: all that it sends is
// hostile input. The decoders bound the values, runtime/files checks the order.
//
// The package depends on nothing but syscall: PID 1 links it too.
package files

import "github.com/caisson-run/caisson/initproto"

// Version is the protocol of this build. Each Request names it.
const Version = 1

// Mode is the first argument of caisson-init that makes it the process which
// this package is about.
const Mode = "files"

// Bounds of what is sent.
const (
	MaxPath    = 4095      // bytes of a path, as the kernel's PATH_MAX without its NUL
	MaxName    = 255       // bytes of one element of a path (NAME_MAX)
	MaxDepth   = 200       // levels below a listed, copied, removed or watched directory
	MaxData    = 128 << 10 // bytes of one Data
	MaxWatches = 8192      // directories of one watch
	HeaderSize = 5         // bytes of a frame before its body
	maxErrno   = 4095      // the kernel's MAX_ERRNO
)

// Exit statuses of the process.
const (
	ExitDone     = 0                      // the daemon closed the connection
	ExitProtocol = initproto.ExitProtocol // the daemon sent what this build does not know
	ExitSetup    = initproto.ExitSetup    // descriptor 0 is not usable
)
