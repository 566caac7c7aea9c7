package servertest

import (
	"context"
	"slices"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime/volumes"
)

// volumeFake implements server.Volumes.
type volumeFake struct{ *Fake }

func (f volumeFake) Create(_ context.Context, name string, size volumes.Size) (volumes.Info, error) {
	return volumes.Info{Volume: volumes.Volume{Key: volumes.Key{Name: name}, Size: size}}, volumes.CheckName(name)
}

func (f volumeFake) List(context.Context) ([]volumes.Info, error) { return f.Volumes, nil }

func (f volumeFake) Inspect(_ context.Context, ref string) (volumes.Info, error) {
	i := slices.IndexFunc(f.Volumes, func(v volumes.Info) bool { return v.Name == ref })
	if i < 0 {
		return volumes.Info{}, sbxerr.New(sbxerr.VolumeNotFound, "fake.find", "no volume %q", ref)
	}
	return f.Volumes[i], nil
}

func (f volumeFake) Remove(ctx context.Context, ref string) error {
	v, err := f.Inspect(ctx, ref)
	if err == nil && len(v.UsedBy) > 0 {
		err = sbxerr.New(sbxerr.VolumeInUse, "fake.remove", "volume %q is used by %s", ref, v.UsedBy[0])
	}
	return err
}

func (f volumeFake) Prune(context.Context, bool) ([]volumes.Info, error) {
	return slices.DeleteFunc(slices.Clone(f.Volumes), func(v volumes.Info) bool { return len(v.UsedBy) > 0 }), nil
}
