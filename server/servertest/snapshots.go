package servertest

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime/changes"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/runtime/snapshots"
)

// snapshotFake implements server.Snapshots.
type snapshotFake struct{ *Fake }

func (f snapshotFake) Create(_ context.Context, ref, name, path string) (snapshots.Info, error) {
	name = cmp.Or(name, "made-up")
	return snapshots.Info{Key: snapshots.Key{Name: name}, Snapshot: plan.Snapshot{SandboxName: ref, Path: path}}, snapshots.CheckName(name)
}

func (f snapshotFake) List(context.Context) ([]snapshots.Info, error) { return f.Snapshots, nil }

func (f snapshotFake) Inspect(_ context.Context, ref string) (snapshots.Info, error) {
	i := slices.IndexFunc(f.Snapshots, func(s snapshots.Info) bool { return s.Name == ref })
	if i < 0 {
		return snapshots.Info{}, sbxerr.New(sbxerr.SnapshotNotFound, "fake.find", "no snapshot %q", ref)
	}
	return f.Snapshots[i], nil
}

func (f snapshotFake) Diff(ctx context.Context, from, to string, _ []string) (list []changes.Change, more bool, err error) {
	_, errFrom := f.Inspect(ctx, from)
	_, errTo := f.Inspect(ctx, to)
	return f.Changes, false, errors.Join(errFrom, errTo)
}

func (f snapshotFake) Remove(ctx context.Context, ref string) error {
	_, err := f.Inspect(ctx, ref)
	return err
}

func (f snapshotFake) Rewind(ctx context.Context, ref, name string) (snapshots.Rewound, error) {
	if _, err := f.Inspect(ctx, name); err != nil {
		return snapshots.Rewound{}, err
	}
	_, err := f.Fake.Inspect(ctx, ref)
	return snapshots.Rewound{Execs: []string{"1"}, Processes: 2}, err
}

func (f snapshotFake) Fork(ctx context.Context, ref string, count int) ([]snapshots.Fork, error) {
	forks := make([]snapshots.Fork, count)
	for i := range forks {
		info, err := f.Fake.Create(ctx, plan.CreateRequest{From: ref})
		forks[i] = snapshots.Fork{ID: info.ID, Err: err}
	}
	return forks, nil
}

func (f snapshotFake) Export(ctx context.Context, ref string, w io.Writer) error {
	_, err := f.Inspect(ctx, ref)
	if err == nil {
		_, err = io.WriteString(w, "archive of "+ref)
	}
	return err
}

func (f snapshotFake) Import(_ context.Context, name string, r io.Reader) (snapshots.Info, error) {
	sent, err := io.ReadAll(r)
	name = cmp.Or(name, strings.TrimPrefix(string(sent), "archive of "))
	return snapshots.Info{Key: snapshots.Key{Name: name}}, err
}
