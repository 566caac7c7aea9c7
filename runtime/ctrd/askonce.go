package ctrd

import (
	"os"
	"sync"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// askedVersion is the version of one program, which is asked for it again when
// another file is there, or the same one was written to.
type askedVersion struct {
	mu      sync.Mutex
	file    os.FileInfo // of which version is; nil: not asked yet
	version string
}

// of returns the version of the program at path. What fails is not remembered.
func (a *askedVersion) of(path string, ask func() (string, error)) (string, error) {
	file, err := os.Stat(path) // first: what is replaced meanwhile is asked again
	if err != nil {
		return "", sbxerr.Wrap(sbxerr.Binary, "ctrd.versions", err)
	}
	if v, ok := a.known(file); ok {
		return v, nil
	}
	v, err := ask() // not under mu: nobody waits for another's
	if err != nil {
		return "", err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.file, a.version = file, v
	return v, nil
}

func (a *askedVersion) known(file os.FileInfo) (version string, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	ok = a.file != nil && os.SameFile(a.file, file) && a.file.ModTime().Equal(file.ModTime()) && a.file.Size() == file.Size()
	return a.version, ok
}
