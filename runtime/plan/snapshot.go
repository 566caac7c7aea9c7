package plan

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"time"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"google.golang.org/protobuf/proto"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/disk"
	"github.com/caisson-run/caisson/rootfs/image"
)

// Snapshot is the disk of a sandbox as it was once, and how that sandbox was asked for.
type Snapshot struct {
	CreatedAt    time.Time     `json:"created_at"`
	SandboxID    string        `json:"sandbox_id"`
	SandboxName  string        `json:"sandbox_name"`
	Image        string        `json:"image"` // as its store names it
	ImageDigest  string        `json:"image_digest"`
	ChainID      string        `json:"chain_id"`
	WritableRoot bool          `json:"writable_root"`       // the disk has what was written to the root
	Size         disk.Size     `json:"size"`                // of the disk
	UsedBytes    int64         `json:"used_bytes"`          // that files take on it
	IDBase       uint32        `json:"id_base"`             // first id of the block whose ids are on the disk
	Request      CreateRequest `json:"request"`             // what sandboxes from it begin with
	Unnamed      bool          `json:"unnamed,omitempty"`   // nobody chose its name
	DiskSince    time.Time     `json:"disk_since,omitzero"` // when the sandbox got the disk by a rewind; zero: when it was made
	Path         string        `json:"path,omitempty"`      // of the only directory that the disk has, at DiskWorkspace
}

// Origin is the snapshot that a sandbox begins with, or of which it has the directory.
type Origin struct {
	Snapshot
	Name string
	File string // of the disk
}

// Kept is the part of r that a snapshot keeps: what says how commands run and what they may
// reach. The name, ports, links and mounts are of one sandbox, and so is its life.
func (r CreateRequest) Kept() CreateRequest {
	k := CreateRequest{
		Rootfs: r.Rootfs, Caches: slices.Clone(r.Caches), Image: r.Image, Language: r.Language, LanguageReason: r.LanguageReason, Profile: r.Profile, User: r.User,
		Env: slices.Clone(r.Env), Network: r.Network, Allow: slices.Clone(r.Allow), Deny: slices.Clone(r.Deny), DNS: slices.Clone(r.DNS), Routes: slices.Clone(r.Routes), AllowECH: r.AllowECH,
		Labels: maps.Clone(r.Labels),
	}
	if r.Limits != nil {
		k.Limits = proto.CloneOf(r.Limits)
	}
	return k
}

// On returns r with what it leaves out taken from what a snapshot keeps.
func (r CreateRequest) On(kept CreateRequest) CreateRequest {
	r.Rootfs, r.Image, r.Profile, r.User = cmp.Or(r.Rootfs, kept.Rootfs), cmp.Or(r.Image, kept.Image), cmp.Or(r.Profile, kept.Profile), cmp.Or(r.User, kept.User)
	if r.Image == "" && r.Language == "" {
		r.Language, r.LanguageReason = kept.Language, kept.LanguageReason
	}
	r.Env = image.MergeEnv(kept.Env, r.Env)
	if r.Network == "" && len(r.Allow) == 0 {
		r.Network, r.Allow, r.AllowECH = kept.Network, kept.Allow, r.AllowECH || kept.AllowECH
		if len(r.Routes) == 0 {
			r.Routes = kept.Routes
		}
	}
	if len(r.Deny) == 0 {
		r.Deny = kept.Deny
	}
	if len(r.Caches) == 0 {
		r.Caches = kept.Caches
	}
	if len(r.DNS) == 0 {
		r.DNS = kept.DNS
	}
	if kept.Limits != nil {
		limits := proto.CloneOf(kept.Limits)
		proto.Merge(limits, cmp.Or(r.Limits, new(caissonv1.Limits)))
		r.Limits = limits
	}
	if len(kept.Labels) > 0 {
		labels := maps.Clone(kept.Labels)
		maps.Copy(labels, r.Labels)
		r.Labels = labels
	}
	return r
}

// planSnapshots checks that the sandbox can begin with its snapshot, whose disk it gets, and
// that it has a disk of which one can be made when it ends.
func (p *Sandbox) planSnapshots(pl Planner, r CreateRequest) error {
	if r.SnapshotOnEnd != "" && p.Limits.DiskBytes == 0 {
		return sbxerr.New(sbxerr.SnapshotDisk, "runtime.plan", "a snapshot %q at the end of a sandbox without a disk", sbxerr.Clip(r.SnapshotOnEnd))
	}
	if r.SnapshotOnEnd != "" && r.Workspace.OnDisk() {
		return sbxerr.New(sbxerr.SnapshotWorkspace, "runtime.plan", "a snapshot %q at the end of a sandbox with a workspace that is %s", sbxerr.Clip(r.SnapshotOnEnd), r.Workspace.kind())
	}
	return errors.Join(p.planOrigin(pl), p.planTrees(pl))
}

// planTrees finds the snapshots whose directories are mounted.
func (p *Sandbox) planTrees(pl Planner) (err error) {
	for i, m := range p.Mounts {
		if m.Snapshot && err == nil {
			p.Mounts[i].From, err = pl.Snapshot(m.Source)
		}
	}
	return err
}

func (p *Sandbox) planOrigin(pl Planner) error {
	from := pl.From
	if from == nil {
		return nil
	}
	p.From = from
	switch {
	case p.WritableRoot != from.WritableRoot:
		return Invalid("snapshot %q is of a sandbox with the root file system %s: leave rootfs out", from.Name, RootfsOf(from.WritableRoot))
	case from.WritableRoot && p.Image.Digest != from.ImageDigest:
		return sbxerr.New(sbxerr.SnapshotImage, "runtime.plan", "snapshot %q needs image %s, and %q is %s", from.Name, from.ImageDigest, p.Image.Name, p.Image.Digest)
	}
	return nil
}

// RootfsOf names how a root is mounted.
func RootfsOf(writable bool) string {
	if writable {
		return rootfsRW
	}
	return "ro"
}

// originSize is the size that the disk has, and refuses any other.
func (p *Sandbox) originSize(from *Origin, asked *caissonv1.Limits) error {
	p.Limits.DiskBytes, p.Limits.DiskInodes = from.Size.Bytes, from.Size.Inodes
	for _, f := range []struct {
		name        string
		asked, have int64
	}{{"disk", asked.GetDiskBytes(), from.Size.Bytes}, {"disk inodes", asked.GetDiskInodes(), from.Size.Inodes}} {
		if f.asked != 0 && f.asked != f.have {
			return sbxerr.New(sbxerr.Limits, "runtime.plan", "%s %d: snapshot %q has its disk: leave it out", f.name, f.asked, from.Name)
		}
	}
	return nil
}
