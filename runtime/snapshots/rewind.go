package snapshots

import (
	"context"
	"fmt"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/disk"
	"github.com/caisson-run/caisson/runtime/events"
	"github.com/caisson-run/caisson/runtime/plan"
)

// Rewound says what a sandbox was put back by.
type Rewound struct {
	Execs     []string // commands of callers that were ended
	Processes int      // all that were ended
	Event     events.Event
}

// Rewind gives a live sandbox the files of a snapshot. Its commands end first.
func (s *Service) Rewind(ctx context.Context, ref, name string) (Rewound, error) {
	defer s.fleet.Busy()()
	g, err := s.grant(ctx)
	if err != nil {
		return Rewound{}, err
	}
	if name == "" {
		return Rewound{}, plan.Invalid("rewind to no snapshot: name one (caisson snapshot ls)")
	}
	from, err := s.Origin(g, name)
	if err != nil {
		return Rewound{}, err
	}
	r, err := s.fleet.Rewind(ctx, ref, *from)
	if err != nil {
		return Rewound{}, err
	}
	r.Event.Data.Snapshot = name
	return r, s.events.Confirm(ctx, r.Event)
}

// Target is the sandbox that a snapshot is to fit.
type Target struct {
	Name        string
	ImageDigest string
	Size        disk.Size // none: it has no disk
	Writable    bool      // its root
	Cow         bool      // its disk has what is written to a copy-on-write workspace
	Command     bool      // it was made for one command
}

// Check refuses a sandbox that cannot have the files of the snapshot.
func (t Target) Check(from plan.Origin) error {
	const op = "snapshots.rewind"
	mismatch := func(format string, args ...any) error {
		return sbxerr.WithRemedy(sbxerr.SnapshotMismatch, op, fmt.Errorf(format, args...), "create a sandbox from it instead: caisson create --from "+from.Name)
	}
	switch {
	case t.Size.Bytes == 0:
		return sbxerr.WithRemedy(sbxerr.SnapshotDisk, op, fmt.Errorf("sandbox %q has no disk to put back", t.Name), "create one from the snapshot instead: caisson create --from "+from.Name)
	case t.Cow:
		return sbxerr.WithRemedy(sbxerr.SnapshotWorkspace, op, fmt.Errorf("sandbox %q has on its disk what it wrote to a copy-on-write workspace", t.Name),
			"apply or discard the changes, and create a sandbox from the snapshot instead: caisson create --from "+from.Name)
	case t.Command:
		return sbxerr.Final(sbxerr.WithRemedy(sbxerr.State, op, fmt.Errorf("sandbox %q was made for one command, which would end", t.Name), "create a sandbox from the snapshot instead: caisson create --from "+from.Name))
	case t.Writable != from.WritableRoot:
		return mismatch("snapshot %q is of a sandbox with the root file system %s, and sandbox %q has %s", from.Name, plan.RootfsOf(from.WritableRoot), t.Name, plan.RootfsOf(t.Writable))
	case t.Writable && t.ImageDigest != from.ImageDigest:
		return sbxerr.WithRemedy(sbxerr.SnapshotImage, op, fmt.Errorf("snapshot %q is of image %s, and sandbox %q has %s", from.Name, from.ImageDigest, t.Name, t.ImageDigest),
			"create a sandbox from it instead: caisson create --from "+from.Name)
	case t.Size.Filled() != from.Size.Filled():
		return mismatch("snapshot %q has a disk of %d bytes with %d inodes, and sandbox %q one of %d with %d", from.Name, from.Size.Bytes, from.Size.Filled().Inodes, t.Name, t.Size.Bytes, t.Size.Filled().Inodes)
	}
	return nil
}
