package runtime

import (
	"errors"
	"path/filepath"

	"github.com/caisson-run/caisson/owndir"
	"github.com/caisson-run/caisson/runtime/output"
)

// spareRoom is what all sandboxes together may keep of output in the memory of the
// state directory, in bytes: the disk takes none of it.
const spareRoom = 64 << 20

// stores makes the stores of a command, or opens those that are there. Each is on the
// disk, or in the state directory where that was full at the first byte.
func (m *Manager) stores(of func(path string, limit int64) (*output.Store, error), id string, n uint32, limit int64) (stdout, stderr *output.Store, err error) {
	list := [2]*output.Store{}
	for i, path := range m.outputs(id, n) {
		if list[i], err = of(path, limit); err != nil {
			return nil, nil, err
		}
		if err := list[i].Spare(filepath.Join(m.paths.spare(id), filepath.Base(path)), m.spare); err != nil {
			return nil, nil, err
		}
	}
	return list[0], list[1], nil
}

func (m *Manager) outputs(id string, n uint32) [2]string {
	return [2]string{m.paths.stdout(id, n), m.paths.stderr(id, n)}
}

func (m *Manager) removeOutputs(id string, n uint32) error {
	var errs []error
	for _, path := range m.outputs(id, n) {
		errs = append(errs, output.Remove(path), output.Remove(filepath.Join(m.paths.spare(id), filepath.Base(path))))
	}
	return errors.Join(append(errs, owndir.Remove(m.paths.input(id, n)))...)
}
