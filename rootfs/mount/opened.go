package mount

import (
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// The group ids inside of a sandbox that stand for the groups of the user whose
// workspace it has. A sandbox's processes carry all of them from their birth;
// one that no workspace maps is a member of nothing.
//
// Without them a process would be one of the others to a file whose mode gives
// a group less than it gives the others, and get what the user cannot.
const (
	FirstGroupSlot = 64000
	GroupSlots     = 32
)

// GroupSlotIDs are the supplementary groups that a sandbox's processes need,
// inside, whatever workspace they get.
func GroupSlotIDs() []uint32 {
	ids := make([]uint32, GroupSlots)
	for i := range ids {
		ids[i] = FirstGroupSlot + uint32(i)
	}
	return ids
}

// Identity is as whom a sandbox acts on the files of a workspace: ids on disk.
type Identity struct {
	UID    uint32   `json:"uid"`
	GID    uint32   `json:"gid"`
	Groups []uint32 `json:"groups,omitempty"` // others than GID, at most GroupSlots
}

// Opened makes a workspace of a directory or a regular file that is open, with O_PATH and under its
// own name, because somebody checked what its user may do there. Its name passes
// a.Check. The sandbox acts as the given identity, which need not be the owner's.
// The workspace takes dir: it closes it, also where it refuses.
func (a Allowed) Opened(dir *os.File, as Identity) (*Workspace, error) {
	if err := a.Check(dir.Name()); err != nil {
		_ = dir.Close() // nothing was written to it
		return nil, err
	}
	return Opened(dir, as)
}

// Opened makes a workspace of a directory that the daemon chose, as Allowed.Opened does.
func Opened(dir *os.File, as Identity) (_ *Workspace, err error) {
	const op = "mount.workspace"
	defer func() {
		if err != nil {
			_ = dir.Close() // nothing was written to it
		}
	}()
	if len(as.Groups) > GroupSlots {
		return nil, sbxerr.New(sbxerr.Workspace, op, "uid %d has %d groups; a mount can stand for %d", as.UID, len(as.Groups), GroupSlots)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		return nil, sbxerr.New(sbxerr.Workspace, op, "stat host directory %q: %w", dir.Name(), err)
	}
	kind := st.Mode & unix.S_IFMT
	if kind != unix.S_IFDIR && kind != unix.S_IFREG || st.Nlink == 0 {
		return nil, sbxerr.New(sbxerr.Workspace, op, "host directory %q is no directory any more", dir.Name())
	}
	return &Workspace{dir: dir, UID: as.UID, GID: as.GID, File: kind == unix.S_IFREG, groups: slices.Clone(as.Groups)}, nil
}

// Identity is as whom a sandbox acts in the workspace.
func (w *Workspace) Identity() Identity {
	return Identity{UID: w.UID, GID: w.GID, Groups: slices.Clone(w.groups)}
}

// Map maps the identity of the workspace to the user uid:gid of a sandbox whose
// ids begin at the host id base, its other groups to the group slots, and
// nothing else: files of anybody else show as nobody's.
func (w *Workspace) Map(base, uid, gid uint32) (uids, gids []IDMap, err error) {
	if gid >= FirstGroupSlot && gid < FirstGroupSlot+GroupSlots {
		return nil, nil, sbxerr.New(sbxerr.Config, "mount.workspace", "gid %d inside is one of %d to %d, which stand for groups of the host",
			gid, FirstGroupSlot, FirstGroupSlot+GroupSlots-1)
	}
	uids, gids = w.Owner(base+uid, base+gid)
	for i, id := range w.groups {
		gids = append(gids, IDMap{Disk: id, Host: base + FirstGroupSlot + uint32(i), Size: 1})
	}
	return uids, gids, nil
}
