package servertest

import (
	"context"
	"slices"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/runtime/volumes"
)

// volumeFake implements server.Volumes.
type volumeFake struct{ *Fake }

func (f volumeFake) CreateVolume(_ context.Context, name string) (runtime.VolumeInfo, error) {
	return runtime.VolumeInfo{Volume: volumes.Volume{Key: volumes.Key{Name: name}}}, volumes.CheckName(name)
}

func (f volumeFake) ListVolumes(context.Context) ([]runtime.VolumeInfo, error) { return f.Volumes, nil }

func (f volumeFake) InspectVolume(_ context.Context, ref string) (runtime.VolumeInfo, error) {
	i := slices.IndexFunc(f.Volumes, func(v runtime.VolumeInfo) bool { return v.Name == ref })
	if i < 0 {
		return runtime.VolumeInfo{}, sbxerr.New(sbxerr.VolumeNotFound, "fake.find", "no volume %q", ref)
	}
	return f.Volumes[i], nil
}

func (f volumeFake) RemoveVolume(ctx context.Context, ref string) error {
	v, err := f.InspectVolume(ctx, ref)
	if err == nil && len(v.UsedBy) > 0 {
		err = sbxerr.New(sbxerr.VolumeInUse, "fake.remove", "volume %q is used by %s", ref, v.UsedBy[0])
	}
	return err
}

func (f volumeFake) PruneVolumes(context.Context, bool) ([]runtime.VolumeInfo, error) {
	return slices.DeleteFunc(slices.Clone(f.Volumes), func(v runtime.VolumeInfo) bool { return len(v.UsedBy) > 0 }), nil
}
