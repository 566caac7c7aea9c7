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
// disk, and goes on in the state directory where that is full.
func (h *host) stores(of func(output.Options) (*output.Store, error), s *sandbox, n uint32, limit int64) (stdout, stderr *output.Store, err error) {
	list := [2]*output.Store{}
	for i, path := range h.outputs(s.id, n) {
		o := output.Options{Path: path, Limit: limit, Room: s.room, Spare: h.spareOf(s.id, path), SpareRoom: h.spare, Discard: s.discard}
		if list[i], err = of(o); err != nil {
			return nil, nil, err
		}
	}
	return list[0], list[1], nil
}

func (h *host) spareOf(id, path string) string {
	return filepath.Join(h.paths.spare(id), filepath.Base(path))
}

func (h *host) outputs(id string, n uint32) [2]string {
	return [2]string{h.paths.stdout(id, n), h.paths.stderr(id, n)}
}

func (h *host) removeOutputs(id string, n uint32) error {
	errs := []error{owndir.Remove(h.paths.input(id, n))}
	for _, path := range h.outputs(id, n) {
		errs = append(errs, output.Remove(path, h.spareOf(id, path)))
	}
	return errors.Join(errs...)
}
