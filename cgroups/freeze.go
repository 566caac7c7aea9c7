package cgroups

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/finding"
)

// freezeTimeout bounds Freeze and Thaw for callers whose ctx has no nearer
// deadline. A process that waits for a disk in the kernel freezes when it is done.
const freezeTimeout = 5 * time.Second

var errFreezeTimeout = fmt.Errorf("not there after %s", freezeTimeout)

// Freeze stops every process of the group and its later children, until Thaw. It returns
// when all have stopped. If ctx ends or 5 seconds pass first, the group is thawed again and
// Freeze returns an error. Frozen processes can be killed.
//
// On v1 it needs the freezer controller; without it Freeze returns
// sbxerr.CgroupController. An absent group is an error that matches
// fs.ErrNotExist.
func (g *Group) Freeze(ctx context.Context) error {
	const op = "cgroups.freeze"
	if err := g.setFreezer(ctx, true); err != nil {
		undo := g.writeFreezer(false)
		if gone(undo) {
			undo = nil // the error says so already
		}
		return sbxerr.Wrap(freezeCode(err), op, errors.Join(fmt.Errorf("freeze %q: %w", g.path, err), undo))
	}
	return nil
}

// Thaw lets a frozen group go on, and returns when it does. A group that is not
// frozen is fine.
func (g *Group) Thaw(ctx context.Context) error {
	err := g.setFreezer(ctx, false)
	if err != nil {
		err = fmt.Errorf("thaw %q: %w", g.path, err)
	}
	return sbxerr.Wrap(freezeCode(err), "cgroups.thaw", err)
}

// Frozen reports whether every process of the group is stopped by a freezer, its
// own or one above it. One that is about to freeze is not frozen.
func (g *Group) Frozen() (bool, error) {
	frozen, err := g.readFreezer()
	return frozen, sbxerr.Wrap(freezeCode(err), "cgroups.frozen", err)
}

func (g *Group) setFreezer(ctx context.Context, frozen bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, freezeTimeout, errFreezeTimeout)
	defer cancel()
	for wait := newPauses(); ; {
		// v1 may miss a process that was being born, hence again each time.
		if err := g.writeFreezer(frozen); err != nil {
			return err
		}
		if is, err := g.readFreezer(); err != nil || is == frozen {
			return err
		}
		if err := wait.next(ctx); err != nil {
			return err
		}
	}
}

var errNoFreezer = errors.New("find cgroup controller \"freezer\": the host has none")

func freezeCode(err error) sbxerr.Code {
	if errors.Is(err, errNoFreezer) {
		return sbxerr.CgroupController
	}
	return sbxerr.Cgroup
}

func (g *Group) writeFreezer(frozen bool) error {
	if g.host.Mode == V2 {
		return writeFile(g.unified(), "cgroup.freeze", map[bool]string{true: "1", false: "0"}[frozen])
	}
	if g.host.Controllers["freezer"] != finding.Yes {
		return errNoFreezer
	}
	return writeFile(g.dir("freezer"), "freezer.state", map[bool]string{true: "FROZEN", false: "THAWED"}[frozen])
}

func (g *Group) readFreezer() (frozen bool, err error) {
	if g.host.Mode == V2 {
		events, err := readFlat(g.unified(), "cgroup.events")
		return events["frozen"] == 1, err
	}
	if g.host.Controllers["freezer"] != finding.Yes {
		return false, errNoFreezer
	}
	state, err := readString(g.dir("freezer"), "freezer.state")
	return state == "FROZEN", err
}

// keepsKilled reports whether processes that were killed below g stay until a thaw:
// v1's freezer holds them back, v2's does not.
func (g *Group) keepsKilled() bool {
	if g.host.Mode == V2 {
		return false
	}
	state, err := readString(g.dir("freezer"), "freezer.state")
	return err == nil && state != "THAWED"
}
