package workspaces

import (
	"context"
	"errors"
	"fmt"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime/apply"
	"github.com/caisson-run/caisson/runtime/changes"
	"github.com/caisson-run/caisson/runtime/patches"
)

// Patch is what Diff returns, with a patch of it.
type Patch struct {
	Changes []changes.Change
	patches.Patch
}

// Patch returns how the workspace of a sandbox differs, and a patch of that. Control files are in
// it only if that is asked for.
func (s *Service) Patch(ctx context.Context, ref string, control bool) (p Patch, err error) {
	const op = "workspaces.diff"
	defer s.fleet.Busy()()
	w, unlock, err := s.find(ctx, ref)
	if err != nil {
		return p, err
	}
	defer unlock()
	if w.Child {
		return p, sbxerr.WithRemedy(sbxerr.Workspace, op, fmt.Errorf("workspace %q is a directory of another sandbox's", w.Dir), "list what changed, and copy the files: caisson cp")
	}
	applied, err := apply.ReadApplied(w.Applied)
	if err != nil {
		return p, sbxerr.Wrap(sbxerr.StateDir, op, err)
	}
	layers, as, err := s.readable(ctx, w)
	if err != nil {
		return p, err
	}
	defer func() { err = errors.Join(err, layers.Close()) }()
	var more bool
	if p.Changes, more, err = changes.Of(ctx, layers, changes.Options{Applied: applied}); err != nil {
		return p, sbxerr.Wrap(sbxerr.Disk, op, err)
	}
	s.markControl(p.Changes)
	p.Patch, err = patches.Of(ctx, s.program, patches.Request{Layers: layers, As: as, Changes: p.Changes, Control: control})
	p.More = p.More || more
	return p, err
}
