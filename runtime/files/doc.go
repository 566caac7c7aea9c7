// Package files is the daemon's side of the files of a live sandbox.
//
// The host never resolves a path that a sandbox controls: a process inside it,
// `caisson-init files`, does the work as the sandbox's user and under its
// limits. Client speaks with one such process; Session starts them as they are
// needed.
//
// Whoever controls the sandbox controls that process. All that it says is
// bounded, has a deadline, and is checked against what was asked; no descriptor
// is taken from it. An archive that comes out is made here, of entries that
// were checked one by one.
package files

import (
	"context"
	"os"
	"time"
)

// Info describes one entry of a sandbox's file system. All of it is what the
// sandbox says.
type Info struct {
	Path    string // absolute; in a listing, below the listed directory
	Type    string // "file", "directory", "symlink", "fifo", "socket", "device"
	Size    int64  // bytes
	Mode    uint32 // the lowest 12 bits
	UID     uint32 // in the sandbox
	GID     uint32
	ModTime time.Time // of the years 1 to 9999
	Link    string    // target of a symlink; empty for one that a listing cannot read
}

// Event is one change below a watched path.
type Event struct {
	Path string // absolute
	Type string // "create", "write", "remove", "rename", "chmod", "overflow": some were lost
}

// Copied says what a copy held.
type Copied struct {
	Entries int64 // files, directories and links
	Bytes   int64 // of the files' content
	// LeftOut counts what a copy out does not hold: FIFOs, sockets and devices;
	// below the path, what the sandbox's user may not read and the kernel's own file
	// systems, as at /proc and /sys; symlinks that are absolute or lead out of the tree;
	// names with control characters or that are not UTF-8.
	LeftOut int64
	Names   []string // the first of those, absolute, at most 10
}

// Limits bounds what is taken from a sandbox and put into it.
type Limits struct {
	ListEntries    int64         // entries of one listing
	ListBytes      int64         // bytes of their paths
	Bytes          int64         // content of one file or archive, in bytes
	ArchiveEntries int64         // entries of one archive
	Patience       time.Duration // how long the process may say nothing while it is waited for
	Slow           time.Duration // the same where much may have to be done first: remove, move, the end of a copy in
	Undo           time.Duration // how long it may take to undo a write or a copy in that was cut short
}

// DefaultLimits returns the limits of a daemon.
func DefaultLimits() Limits {
	return Limits{
		ListEntries: 10_000, ListBytes: 2 << 20, Bytes: 64 << 30, ArchiveEntries: 1_000_000,
		Patience: 30 * time.Second, Slow: 10 * time.Minute, Undo: 5 * time.Second,
	}
}

// Start starts a command in the sandbox as the sandbox's user, with socket as
// its standard input, and returns when it runs. It does not keep socket, and
// the command outlives ctx.
type Start func(ctx context.Context, args []string, socket *os.File) (Started, error)

// Started is a command that was started.
type Started struct {
	// Stop is called once, after the daemon's end of the socket was closed: a
	// command that still runs is then killed.
	Stop func()
	// Why is called before Stop, where the connection was lost with err. It returns
	// why the command ended where that is known, such as that the sandbox had not what
	// it needs to run; else err.
	Why func(ctx context.Context, err error) error
}

// Use notes that files are worked on, until done is called.
type Use func() (done func())
