package peer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// checkTimeout bounds the wait for the file system of a workspace, which may be
// far away, or a program of the peer's own (FUSE).
const checkTimeout = 5 * time.Second

// Directory is an opened directory of the host, or a regular file, that its caller may use, and
// the ids on disk with which a sandbox acts there.
//
// For root these are the ids of the directory's owner. For other callers they are their own
// ids: a caller that may read a directory of another user must not write there as that
// user.
type Directory struct {
	File   *os.File // O_PATH; what was checked
	UID    uint32
	GID    uint32
	Groups []uint32 // the caller's other groups; none for root
}

// Close releases the directory.
func (d *Directory) Close() error { return d.File.Close() }

// CheckWorkspace opens dir, an absolute path whose symbolic links only root and the caller
// can change. It first asks the kernel whether the caller may read it and, if write is set,
// write in it. The asking thread has the caller's user and groups, and none of root's rights
// over files. So the kernel checks every directory of the path too.
//
// If something is mounted below dir, only root may use it: a sandbox gets the mount of dir
// alone, and would see the files that the other mount covers.
//
// For a caller inside of a sandbox dir is a path there, beneath the sandbox's workspace.
func (g Grant) CheckWorkspace(ctx context.Context, dir string, write bool) (*Directory, error) {
	return g.check(ctx, dir, access{write: write})
}

// CheckBind is CheckWorkspace for a mount beside the workspace, which may be of a regular file.
func (g Grant) CheckBind(ctx context.Context, path string, write bool) (*Directory, error) {
	return g.check(ctx, path, access{write: write, file: true})
}

func (g Grant) check(ctx context.Context, dir string, a access) (*Directory, error) {
	const op = "peer.workspace"
	if err := g.NameWorkspace(dir); err != nil { // also refuses callers from the network
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, checkTimeout, fmt.Errorf("the file system of %q did not answer in %s", sbxerr.Clip(dir), checkTimeout))
	defer cancel()
	if g.rank == nested {
		return g.openInside(ctx, dir, a.write)
	}
	o, err := g.open(ctx, dir, a)
	if err != nil {
		return nil, sbxerr.WithRemedy(workspaceCode(err), op, explain(g.caller, dir, a.write, err), rightsRemedy(dir, a.write, err))
	}
	d := &Directory{File: o.file, UID: o.stat.Uid, GID: o.stat.Gid}
	if err := g.NameWorkspace(d.File.Name()); err != nil { // where its links led
		return nil, errors.Join(err, d.Close())
	}
	if g.asRoot() {
		return d, nil
	}
	d.UID, d.GID, d.Groups = g.caller.UID, g.caller.GID, g.caller.Groups
	notOwned, covers := ownsToWrite(g.caller, o.stat, a.write), coversNothing(d.File)
	if err := errors.Join(notOwned, covers); err != nil {
		remedy := ""
		if covers == nil {
			remedy = ownerRemedy(g.caller, o.stat, dir)
		}
		return nil, sbxerr.WithRemedy(sbxerr.Peer, op, errors.Join(fmt.Errorf("host directory %q: %w", sbxerr.Clip(dir), err), d.Close()), remedy)
	}
	return d, nil
}

// ownsToWrite refuses to promise writes that would fail inside: an id-mapped
// mount writes to nothing whose user or group it does not map, and mapping
// somebody else's would make a sandbox's root that somebody.
func ownsToWrite(c Caller, st unix.Stat_t, write bool) error {
	if !write || st.Uid == c.UID && (st.Gid == c.GID || slices.Contains(c.Groups, st.Gid)) {
		return nil
	}
	return fmt.Errorf("it belongs to %d:%d, and a sandbox of %s writes only in what is %s's own", st.Uid, st.Gid, c, c)
}

// ownerRemedy is what a caller can do who may write in dir, which st describes, but whose
// sandbox may not. An owner may give a directory to a group that the owner is in (chown(2)).
func ownerRemedy(c Caller, st unix.Stat_t, dir string) string {
	if st.Uid == c.UID {
		return fmt.Sprintf("give it your own group: chgrp -R %d %s", c.GID, sbxerr.Clip(dir))
	}
	return fmt.Sprintf("ask for it read-only: %s:ro", sbxerr.Clip(dir))
}

// rightsRemedy is what helps against err, of a caller without the rights to use dir. It is
// empty for other errors.
func rightsRemedy(dir string, write bool, err error) string {
	if !errors.Is(err, unix.EACCES) && !errors.Is(err, unix.EPERM) {
		return ""
	}
	rights := "rx"
	if write {
		rights = "rwx"
	}
	return fmt.Sprintf("name a directory of your own, or have its owner let you in: chmod u+%s %s, if that is you", rights, sbxerr.Clip(dir))
}

// asRoot reports whether the caller's own rights over files are root's.
func (g Grant) asRoot() bool { return g.rank == system || g.rank == root }

// NameBind is NameWorkspace for a mount beside the workspace. A child has none of the host.
func (g Grant) NameBind(dir string) error {
	if g.rank == nested {
		return g.refusal(errors.New("there are no directories of the host inside of a sandbox"))
	}
	return g.NameWorkspace(dir)
}

// NameWorkspace refuses dir by its name alone: before anything is looked at
// that could tell of the host.
func (g Grant) NameWorkspace(dir string) error {
	if err := g.CheckLocal("a directory of the host"); err != nil {
		return err
	}
	if !filepath.IsAbs(dir) || filepath.Clean(dir) != dir || strings.ContainsRune(dir, 0) {
		return sbxerr.New(sbxerr.Workspace, "peer.workspace", "host directory %q is not a clean absolute path", sbxerr.Clip(dir))
	}
	if g.rank == nested {
		return g.nameInside(dir)
	}
	roots := g.rule.Workspaces
	if len(roots) > 0 && !slices.ContainsFunc(roots, func(r string) bool { return within(dir, r) }) {
		return g.refusal(fmt.Errorf("host directory %q lies outside of %q", sbxerr.Clip(dir), roots))
	}
	return g.refusal()
}

func within(path, root string) bool {
	return path == root || strings.HasPrefix(path, strings.TrimSuffix(root, "/")+"/")
}

// workspaceCode tells a lack of rights from a path that is wrong for anybody.
func workspaceCode(err error) sbxerr.Code {
	switch {
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return sbxerr.Peer
	case errors.Is(err, context.Canceled):
		return sbxerr.Canceled
	case errors.Is(err, errNoAnswer):
		return sbxerr.Deadline
	case sbxerr.Of(err) != sbxerr.Unknown:
		return sbxerr.Of(err)
	}
	return sbxerr.Workspace
}

func explain(c Caller, dir string, write bool, err error) error {
	verb := "read"
	if write {
		verb = "write"
	}
	switch {
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return fmt.Errorf("%s may not %s host directory %q: %w", c, verb, sbxerr.Clip(dir), err)
	case errors.Is(err, unix.EROFS):
		return fmt.Errorf("host directory %q lies on a read-only file system: %w", sbxerr.Clip(dir), err)
	case errors.Is(err, unix.ENOENT):
		return fmt.Errorf("host directory %q does not exist: %w", sbxerr.Clip(dir), err)
	case errors.Is(err, errKind):
		return fmt.Errorf("host path %q: %w", sbxerr.Clip(dir), err)
	case errors.Is(err, unix.ENOTDIR):
		return fmt.Errorf("host directory %q is not a directory: %w", sbxerr.Clip(dir), err)
	case errors.Is(err, unix.ELOOP):
		return fmt.Errorf("host directory %q has a path that changes, or too many symbolic links; give the real path: %w", sbxerr.Clip(dir), err)
	}
	return fmt.Errorf("open host directory %q: %w", sbxerr.Clip(dir), err)
}
