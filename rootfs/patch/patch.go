// Package patch is what the daemon has compared by caisson-images: pairs of files, of which that
// makes a patch. Package rootfs/patch/unified does it. The daemon opens the files, and reads none.
package patch

// Kind is that of the handler, and MessageLeft the message after the patch: a list of Left.
const (
	Kind        = "patch"
	MessageLeft = "left"
)

// Bounds, in bytes.
const (
	MaxFile  = 1 << 20  // of a file of which the content is shown
	MaxPatch = 10 << 20 // of a patch
)

// Modes of files, as git has them.
const (
	ModeFile    = 0o100644
	ModeProgram = 0o100755
	ModeLink    = 0o120000
)

// Request asks for a patch.
type Request struct {
	Files []File `json:"files"`
}

// File is one that was added, deleted, changed or renamed.
type File struct {
	Old  *Side `json:"old,omitempty"`  // absent if it was added
	New  *Side `json:"new,omitempty"`  // absent if it was deleted
	Same bool  `json:"same,omitempty"` // the content is the same
}

// Side is a file before or after. Names need not be UTF-8.
type Side struct {
	Name []byte `json:"name"`
	Mode uint32 `json:"mode"`
	Link []byte `json:"link,omitempty"` // target of a symlink
}

// Ask asks for the content of a file of the request.
type Ask struct {
	File int  `json:"file"`
	New  bool `json:"new"`
}

// Left is a file that the patch has no content of.
type Left struct {
	File   int    `json:"file"`
	Reason Reason `json:"reason"`
}

// Reason says why.
type Reason int

// The reasons.
const (
	TooLarge Reason = iota + 1
	TooSlow
	Binary // it is named
	Unreadable
)

var reasons = map[Reason]string{
	TooLarge: "too large to show", TooSlow: "it takes too long to compare",
	Binary: "binary: named, but git apply takes no such patch", Unreadable: "it cannot be read, or was changed meanwhile",
}

// String is empty for no Reason.
func (r Reason) String() string { return reasons[r] }
