package changes

import (
	"path"

	"golang.org/x/sys/unix"
)

// Applied is what the lower layer has from the upper one, by name.
type Applied map[string]Mark

// Mark is a name that the lower layer got.
type Mark struct {
	Upper Stamp `json:"upper"` // what the upper layer had then; zero for a directory
	Lower Stamp `json:"lower"` // what the lower layer has since
}

// Stamp tells whether a file was changed.
type Stamp struct {
	Ino   uint64 `json:"ino"`
	Ctime int64  `json:"ctime"` // nanoseconds
	Size  int64  `json:"size"`
}

// StampOf returns the Stamp of a file.
func StampOf(st *unix.Stat_t) Stamp {
	return Stamp{st.Ino, st.Ctim.Nano(), st.Size}
}

// same reports whether the upper layer has under a name what it had when that was applied.
func (a Applied) same(name string, st *unix.Stat_t) bool {
	m, ok := a[name]
	return ok && m.Upper == StampOf(st)
}

// Has reports whether a file of the upper layer was applied under whatever name.
func (a Applied) Has(ino uint64) bool {
	for _, m := range a {
		if m.Upper.Ino == ino {
			return true
		}
	}
	return false
}

// foreign reports whether a name that the upper layer lacks was put by others into a directory
// that the lower layer has from it.
func (a Applied) foreign(name string) bool {
	_, own := a[name]
	return !own && a.made(path.Dir(name))
}

// made reports whether the lower layer has a directory from the upper one.
func (a Applied) made(dir string) bool {
	m, ok := a[dir]
	return ok && m.Upper == Stamp{}
}
