package apply

import (
	"iter"
	"maps"
)

// verb is what an op does.
type verb string

const (
	doOut    verb = "out"    // move a directory that was renamed to the staged files
	doDelete verb = "delete" // move a name there
	doPut    verb = "put"    // move something from there to its name
	doMode   verb = "mode"   // change the mode of a directory
)

func (v verb) prefix() string {
	if v == doDelete {
		return "d"
	}
	return "s"
}

// op is one step. Done a second time it does nothing: it knows by its inode what it works on.
// Names may be no UTF-8.
type op struct {
	Do     verb   `json:"do"`
	Path   []byte `json:"path"`
	From   []byte `json:"from,omitempty"`   // where it was, if it cannot be put
	Staged string `json:"staged,omitempty"` // its name among the staged files
	Node   node   `json:"node"`             // what is moved, or changes its mode
	Over   *node  `json:"over,omitempty"`   // what it replaces
	Mode   uint32 `json:"mode,omitempty"`
	Mark   *mark  `json:"mark,omitempty"` // of a file, to be kept when it is done
}

func mapKeys[V any](m map[string]V) iter.Seq[string] { return maps.Keys(m) }
