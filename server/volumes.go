package server

import (
	"context"

	"connectrpc.com/connect"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/runtime/volumes"
)

// volumeService serves VolumeService.
type volumeService struct{ store Volumes }

func (s volumeService) CreateVolume(ctx context.Context, r *connect.Request[caissonv1.CreateVolumeRequest]) (*connect.Response[caissonv1.Volume], error) {
	size := volumes.Size{Bytes: r.Msg.GetSizeBytes(), Inodes: r.Msg.Inodes}
	if r.Msg.SizeBytes != nil { // zero asks for none below
		if err := size.Check(); err != nil {
			return nil, fail(err)
		}
	}
	v, err := s.store.Create(ctx, r.Msg.Name, size)
	return reply(volumePB(v), err)
}

func (s volumeService) ListVolumes(ctx context.Context, r *connect.Request[caissonv1.ListVolumesRequest]) (*connect.Response[caissonv1.ListVolumesResponse], error) {
	list, err := s.store.List(ctx)
	if err != nil {
		return nil, fail(err)
	}
	list, next, err := page("volumes", list, func(i volumes.Info) string { return ownedKey(i.Name, i.Owner) }, r.Msg)
	return reply(&caissonv1.ListVolumesResponse{Volumes: each(list, volumePB), Next: next}, err)
}

func (s volumeService) InspectVolume(ctx context.Context, r *connect.Request[caissonv1.InspectVolumeRequest]) (*connect.Response[caissonv1.Volume], error) {
	v, err := s.store.Inspect(ctx, r.Msg.Name)
	return reply(volumePB(v), err)
}

func (s volumeService) RemoveVolume(ctx context.Context, r *connect.Request[caissonv1.RemoveVolumeRequest]) (*connect.Response[caissonv1.RemoveVolumeResponse], error) {
	return reply(&caissonv1.RemoveVolumeResponse{}, s.store.Remove(ctx, r.Msg.Name))
}

func (s volumeService) PruneVolumes(ctx context.Context, r *connect.Request[caissonv1.PruneVolumesRequest]) (*connect.Response[caissonv1.PruneVolumesResponse], error) {
	list, err := s.store.Prune(ctx, r.Msg.DryRun)
	return reply(&caissonv1.PruneVolumesResponse{Volumes: each(list, volumePB)}, err)
}

func volumePB(v volumes.Info) *caissonv1.Volume {
	return &caissonv1.Volume{
		Name: v.Name, Owner: v.Owner, CreatedAt: timestamp(v.CreatedAt), UsedBy: v.UsedBy,
		SizeBytes: v.Size.Bytes, Inodes: v.Size.Filled().Inodes,
		UsedBytes: v.Use.UsedBytes, UsedInodes: v.Use.UsedInodes,
	}
}
