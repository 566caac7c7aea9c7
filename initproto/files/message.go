package files

import "syscall"

// Kind is what a frame holds. A number is never reused.
type Kind uint8

// The kinds.
const (
	KindRequest Kind = 1 // daemon → process
	KindEnd     Kind = 2 // daemon → process: all of a write or copy was sent; no body
	KindAbort   Kind = 3 // daemon → process: undo it; no body

	KindEntry Kind = 16 // both ways: an Info
	KindData  Kind = 17 // both ways: 1 to MaxData bytes of the entry before it

	KindReady   Kind = 32 // process → daemon: the watch is set up; no body
	KindEvent   Kind = 33 // process → daemon
	KindDone    Kind = 34 // process → daemon
	KindFailure Kind = 35 // process → daemon
)

// Op is what a Request asks for.
type Op uint8

// The operations.
const (
	OpStat Op = 1 + iota
	OpList
	OpRead
	OpWrite
	OpMakeDir
	OpMove
	OpRemove
	OpWatch
	OpCopyOut
	OpCopyIn
	opEnd
)

// Flags change what an Op does. An Op ignores those that it does not name.
type Flags uint8

// The flags.
const (
	FlagFollow    Flags = 1 << iota // stat: of a symlink, its target
	FlagParents                     // write, make: make what is missing above; make: an existing directory is no error
	FlagMode                        // write, make: Mode is given
	FlagReplace                     // move: an existing target is replaced
	FlagRecursive                   // remove, watch: all below, too
	allFlags      Flags = 1<<iota - 1
)

// Request asks for one operation.
type Request struct {
	Op     Op
	Flags  Flags
	Mode   uint32 // permission bits, with FlagMode
	Depth  uint32 // list: levels, at least 1
	Offset int64  // read: first byte
	Limit  int64  // read: bytes, 0 to the end; list: entries, at least 1
	Path   string // absolute
	To     string // move: the new path, absolute
}

// Type is the kind of an entry of a file system.
type Type uint8

// The types. TypeLink is a further name of an earlier file of the same copy in.
const (
	TypeFile Type = 1 + iota
	TypeDir
	TypeSymlink
	TypeFIFO
	TypeSocket
	TypeDevice
	TypeLink
	typeEnd
)

// String returns the name that the API gives the type.
func (t Type) String() string {
	names := [...]string{"unknown", "file", "directory", "symlink", "fifo", "socket", "device", "link"}
	if int(t) >= len(names) {
		return names[0]
	}
	return names[t]
}

// The times that the API can tell: of the years 1 to 9999. Anyone can give a file
// another one (utimensat(2)).
const (
	MinTime = -62135596800
	MaxTime = 253402300799
)

// BoundTime is the nearest time to sec that the API can tell, both in seconds since
// 1970.
func BoundTime(sec int64) int64 { return min(max(sec, MinTime), MaxTime) }

// Info describes an entry of a file system.
type Info struct {
	Path  string // list, copy: below the directory, "" is that itself; else as it was asked for
	Type  Type
	Mode  uint32 // 12 bits
	UID   uint32 // in the sandbox
	GID   uint32
	Size  int64 // bytes
	Mtime int64 // seconds since 1970, from MinTime to MaxTime; older builds' init told any
	Nanos uint32
	Link  string // target of a symlink or link
}

// Done ends an answer.
type Done struct {
	Truncated bool  // list: there is more
	Entries   int64 // copy in: files, directories and links made
	Bytes     int64 // copy in: of the files' content
}

// Reason is why an operation failed where an errno would not say it.
type Reason uint8

// The reasons.
const (
	ReasonErrno   Reason = iota // as Errno says
	ReasonNotFile               // not a regular file
	ReasonLink                  // a symlink is in the way
	ReasonDepth                 // more than MaxDepth levels
	ReasonWatches               // more than MaxWatches directories, or than the kernel allows
	ReasonChanged               // the file became shorter while it was read
	ReasonAborted               // as the daemon asked
	ReasonVersion               // the process does not know the Version of the Request
	ReasonBug                   // the process has one, which showed while it worked on Path
	reasonEnd
)

// Failure ends an answer: the operation was not done.
type Failure struct {
	Reason Reason
	Errno  syscall.Errno // not 0, with ReasonErrno
	Path   string        // the entry it is about: as in Info
}

// EventType is what happened to a watched entry.
type EventType uint8

// The events. EventOverflow says that some were lost.
const (
	EventCreate EventType = 1 + iota
	EventWrite
	EventRemove
	EventRename // this name is gone; the new one, where watched, is a create
	EventChmod
	EventOverflow
	eventEnd
)

// String returns the name that the API gives the event.
func (t EventType) String() string {
	names := [...]string{"unknown", "create", "write", "remove", "rename", "chmod", "overflow"}
	if int(t) >= len(names) {
		return names[0]
	}
	return names[t]
}

// Event is one change.
type Event struct {
	Type EventType
	Path string // below the watched path, "" is that itself
}
