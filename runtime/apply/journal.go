package apply

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"github.com/caisson-run/caisson/owndir"
	"github.com/caisson-run/caisson/runtime/changes"
)

// version is that of the journal and of the file of marks.
const version = 1

// maxFile bounds both, in bytes.
const maxFile = 64 << 20

// journal is what is kept of an apply until it is over.
type journal struct {
	Version int      `json:"version"`
	Dir     string   `json:"dir"`
	Ino     uint64   `json:"ino"` // of Dir
	UID     uint32   `json:"uid"` // of its owner
	GID     uint32   `json:"gid"`
	Groups  []uint32 `json:"groups"`
	Stage   string   `json:"stage"`  // name of the staged files in Dir
	Staged  bool     `json:"staged"` // all is made, and is to be put in its place

	Opens []op `json:"opens,omitempty"`
	Outs  []op `json:"outs,omitempty"`
	Steps []op `json:"steps,omitempty"`
	Modes []op `json:"modes,omitempty"`

	Marks []mark `json:"marks,omitempty"` // of what is in new directories
}

// mark is one of changes.Applied. A name need not be UTF-8.
type mark struct {
	Path []byte `json:"path"`
	changes.Mark
}

type marksFile struct {
	Version int    `json:"version"`
	Marks   []mark `json:"marks"`
}

// ReadApplied reads what Apply kept in a file of the daemon's. Where nothing was applied yet it
// is nil.
func ReadApplied(file string) (changes.Applied, error) {
	var m marksFile
	err := read(file, &m)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil && m.Version != version {
		err = fmt.Errorf("%q is of version %d; this daemon knows %d", file, m.Version, version)
	}
	a := changes.Applied{}
	for _, each := range m.Marks {
		a[string(each.Path)] = each.Mark
	}
	return a, err
}

// addApplied adds marks to a file, and takes off those of what is gone.
func addApplied(file string, marks []mark, gone []string) error {
	have, err := ReadApplied(file)
	if err != nil {
		return err
	}
	if have == nil {
		have = changes.Applied{}
	}
	for name := range have {
		if within(name, gone) {
			delete(have, name)
		}
	}
	for _, m := range marks {
		have[string(m.Path)] = m.Mark
	}
	all := marksFile{Version: version}
	for name, m := range have {
		all.Marks = append(all.Marks, mark{[]byte(name), m})
	}
	return write(file, all)
}

func read(file string, v any) error {
	data, err := owndir.ReadFile(file, maxFile)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, v)
}

// write replaces a file in one step, which outlives the boot.
func write(file string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return owndir.WriteFile(file, data)
}
