package runtime

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/caisson-run/caisson/sbxerr"
)

// recordVersion is raised when a record changes in a way that an older daemon
// would misread.
const recordVersion = 1

// record is what is kept of a sandbox outside this process. It lies on tmpfs:
// it dies with the boot, like the sandbox.
type record struct {
	Version     int               `json:"version"`
	ID          string            `json:"id"`
	Name        string            `json:"name"`
	Image       string            `json:"image"`
	ImageDigest string            `json:"image_digest"`
	ChainID     string            `json:"chain_id"`
	Profile     string            `json:"profile"`
	Args        []string          `json:"args"`
	CreatedAt   time.Time         `json:"created_at"`
	Labels      map[string]string `json:"labels"`
	Session     string            `json:"session"`
	Task        string            `json:"task"`
	Workspace   *WorkspaceRequest `json:"workspace"`
	Limits      Limits            `json:"limits"`
	HostIDBase  uint32            `json:"host_id_base"`
	Detached    bool              `json:"detached"`
}

// write replaces the record in one step.
func (r record) write(path string) error {
	const op = "runtime.record"
	data, err := json.Marshal(r)
	if err != nil {
		return sbxerr.Wrap(sbxerr.Internal, op, err)
	}
	tmp := path + ".new"
	if err := os.WriteFile(tmp, data, 0o600); err != nil {
		return sbxerr.Wrap(sbxerr.StateDir, op, err)
	}
	return sbxerr.Wrap(sbxerr.StateDir, op, os.Rename(tmp, path))
}

// removeFiles unlinks files; absent ones are success.
func removeFiles(paths ...string) error {
	var errs []error
	for _, p := range paths {
		if err := os.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return sbxerr.Wrap(sbxerr.StateDir, "runtime.remove", errors.Join(errs...))
}

// makeDir makes one directory with exactly mode, whatever the umask.
func makeDir(path string, mode fs.FileMode) error {
	if err := os.Mkdir(path, mode); err != nil {
		return sbxerr.Wrap(sbxerr.StateDir, "runtime.mkdir", err)
	}
	if err := os.Chmod(path, mode); err != nil {
		return sbxerr.Wrap(sbxerr.StateDir, "runtime.mkdir", fmt.Errorf("set the mode of %q: %w", path, err))
	}
	return nil
}
