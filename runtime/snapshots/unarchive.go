package snapshots

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/image"
	"github.com/caisson-run/caisson/rootfs/layertar"
	"github.com/caisson-run/caisson/rootfs/mount"
	"github.com/caisson-run/caisson/runtime/events"
	"github.com/caisson-run/caisson/runtime/failpoint"
	"github.com/caisson-run/caisson/runtime/images"
	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/runtime/plan"
)

const opImport = "snapshots.import"

// importedBase is the first id on a disk that is filled from an archive. A sandbox sees its own
// instead.
const importedBase = 1 << 16

// Import makes a snapshot of an archive that Export wrote, under a name, or under that which it had
// where name is empty. It belongs to the caller. What an archive says gives no more than its importer
// may ask for: create --from checks it as a request.
func (s *Service) Import(ctx context.Context, name string, r io.Reader) (info Info, err error) {
	defer s.fleet.Busy()()
	g, err := s.grant(ctx)
	if err == nil {
		err = s.bound(g)
	}
	if err == nil && name != "" {
		err = s.free(g, name)
	}
	if err != nil {
		return Info{}, err
	}
	var said archived
	find := func(c image.Config) (string, error) {
		if said, err = readArchived(c); err != nil {
			return "", err
		}
		if name != "" {
			said.Name = name
		}
		return said.ImageDigest, errors.Join(s.free(g, said.Name), s.fleet.CheckRoom(said.UsedBytes))
	}
	err = s.images.Changes(ctx, r, find, func(img images.Stored, layer io.Reader) error {
		k := Key{Owner: g.Caller().UID, Name: said.Name}
		info, err = s.store.Create(k, func(file string) (plan.Snapshot, error) { return s.fill(file, said.of(img), layer) })
		return err
	})
	if err != nil {
		return Info{}, err
	}
	s.Prune(ctx)
	return info, s.tell(ctx, events.SnapshotCreated, info.Key, "")
}

// free refuses a name that is taken, or none.
func (s *Service) free(g peer.Grant, name string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	k := Key{Owner: g.Caller().UID, Name: name}
	if _, err := s.store.Get(k); err == nil {
		return taken(k)
	}
	return nil
}

// readArchived reads what an archive says of a snapshot. It is not trusted.
func readArchived(c image.Config) (archived, error) {
	var said archived
	version, err := strconv.Atoi(c.Labels[labelVersion])
	known, _ := strconv.Atoi(archiveVersion)
	switch {
	case err != nil:
		return said, sbxerr.New(sbxerr.SnapshotArchive, opImport, "the image of the archive has no label %s", labelVersion)
	case version > known:
		return said, sbxerr.New(sbxerr.SnapshotVersion, opImport, "the archive is of version %d; this daemon knows %d", version, known)
	}
	if err := json.Unmarshal([]byte(c.Labels[labelSnapshot]), &said); err != nil {
		return said, sbxerr.New(sbxerr.SnapshotArchive, opImport, "the label %s: %w", labelSnapshot, err)
	}
	said.Request.Env = c.Env
	if said.SandboxName != "" && CheckName(said.SandboxName) != nil || said.UsedBytes < 0 {
		return said, sbxerr.New(sbxerr.SnapshotArchive, opImport, "the label %s says what no snapshot is", labelSnapshot)
	}
	if said.Path != "" && (CheckPath(said.Path) != nil || said.WritableRoot) {
		return said, sbxerr.New(sbxerr.SnapshotArchive, opImport, "the label %s says what no snapshot is", labelSnapshot)
	}
	return said, said.Size.Check()
}

// of is the snapshot as it is here. Only what a snapshot keeps of a request is taken.
func (a archived) of(img images.Stored) plan.Snapshot {
	p := a.Snapshot
	p.CreatedAt, p.SandboxID, p.IDBase, p.Unnamed = time.Now().Round(0), "", importedBase, false
	p.Image, p.ImageDigest, p.ChainID = img.Key(), img.Digest, img.ChainID
	p.Request = p.Request.Kept()
	p.Request.Image = img.Name
	return p
}

// fill makes the disk of an archive.
func (s *Service) fill(file string, p plan.Snapshot, layer io.Reader) (plan.Snapshot, error) {
	use, err := s.disks.Fill(file, p.Size, func(dir string) error { return unpack(dir, p.WritableRoot, false, layer) })
	p.UsedBytes = use.UsedBytes
	return p, err
}

// prepare makes the directories that a disk begins with.
func prepare(dir string, root bool) error {
	disk, err := os.OpenRoot(dir)
	if err == nil {
		err = errors.Join(disk.Mkdir(plan.DiskWorkspace, 0o755), disk.Lchown(plan.DiskWorkspace, importedBase, importedBase), disk.Close())
	}
	if err != nil {
		return sbxerr.Wrap(sbxerr.Disk, opImport, err)
	}
	if !root {
		return nil
	}
	return mount.PrepareUpper(dir, importedBase, nil)
}

// coded reports whether err is none, or says what it is.
func coded(err error) bool {
	var e *sbxerr.Error
	return err == nil || errors.As(err, &e)
}

// unpack puts the layer of an archive on an empty disk, or all of a directory.
func unpack(dir string, root, all bool, layer io.Reader) error {
	if err := prepare(dir, root); err != nil {
		return err
	}
	parts, closeAll, err := partsOf(dir, root)
	if err != nil {
		return err
	}
	defer closeAll()
	for i := range parts {
		parts[i].All = all
	}
	err = errors.Join(layertar.Apply(layer, importedBase, parts), failpoint.At("snapshot/unpacked"))
	if !coded(err) {
		err = sbxerr.WithRemedy(sbxerr.Disk, opImport, err, "the disk of the snapshot, or that of the host, is full: make room, and try again")
	}
	return err
}
