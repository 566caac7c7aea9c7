package changes

import (
	"golang.org/x/sys/unix"
)

// Kind says what became of a name.
type Kind string

// The kinds. A file that was opened to be written is modified, whatever was written.
const (
	Added    Kind = "added"
	Modified Kind = "modified"
	Deleted  Kind = "deleted"
	Renamed  Kind = "renamed" // a directory; its content is the old one's, with the changes listed below it
)

// State is what there is under a name.
type State struct {
	Type string // as in the API's FileInfo; empty where there is nothing
	Mode uint32 // permission bits
	Size int64  // of a file
	Link string // target of a symlink
}

// Change is a name under which the layers differ. Names are below the root, and need not be
// UTF-8.
type Change struct {
	Kind     Kind
	Path     string
	From     string // of what was renamed
	Old, New State

	Place   string // where the lower layer has, or would have, what it covers; empty: nowhere
	Control bool   // it is of a file that controls programs of the host; the caller notes it
	Lost    bool   // of a directory: it was of the lower layer, which has it no more
}

func stateOf(st *unix.Stat_t) State {
	s := State{Type: TypeOf(st.Mode), Mode: st.Mode & 0o7777}
	if s.Type == "file" {
		s.Size = st.Size
	}
	return s
}

// TypeOf names the type of a file by its mode, as in the API's FileInfo.
func TypeOf(mode uint32) string {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return "file"
	case unix.S_IFDIR:
		return "directory"
	case unix.S_IFLNK:
		return "symlink"
	case unix.S_IFIFO:
		return "fifo"
	case unix.S_IFSOCK:
		return "socket"
	}
	return "device"
}

func isWhiteout(st *unix.Stat_t) bool {
	return st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == 0
}
