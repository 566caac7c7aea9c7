package peer

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// CheckEntry asks the kernel whether the user of the host with these ids, and no other
// groups, may list and enter dir.
func (g Grant) CheckEntry(ctx context.Context, uid, gid uint32, dir string) error {
	const op = "peer.workspace"
	if err := g.CheckLocal("a directory of the host"); err != nil {
		return err
	}
	var refused error
	err := g.Bounded(ctx, dir, func() error {
		onThrowawayThread(func() { refused = enterAs(User(uid, gid, nil, 1), dir) })
		return refused
	})
	if err == nil {
		return nil
	}
	if sbxerr.Of(err) != sbxerr.Unknown {
		return sbxerr.Wrap(sbxerr.Of(err), op, err)
	}
	return sbxerr.WithRemedy(sbxerr.Workspace, op, fmt.Errorf("uid %d, as whom commands of the profile run, may not enter host directory %q: %w", uid, sbxerr.Clip(dir), err),
		"give that user the rights to list and enter it and all directories above it, or name another directory")
}

// enterAs leaves the thread with c's rights.
func enterAs(c Caller, dir string) error {
	if err := become(c); err != nil {
		return err
	}
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return access{}.check(fd, unix.S_IFDIR)
}
