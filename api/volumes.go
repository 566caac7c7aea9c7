package api

import (
	"context"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

// CreateVolume makes a volume. One that is there stays as it is.
func (c *Client) CreateVolume(ctx context.Context, req *caissonv1.CreateVolumeRequest) (*caissonv1.Volume, error) {
	return call(ctx, c.volumes().CreateVolume, req)
}

// ListVolumes returns the caller's volumes, and to root those of all users.
func (c *Client) ListVolumes(ctx context.Context, req *caissonv1.ListVolumesRequest) (*caissonv1.ListVolumesResponse, error) {
	return whole(ctx, c.volumes().ListVolumes, req)
}

// InspectVolume returns one volume.
func (c *Client) InspectVolume(ctx context.Context, req *caissonv1.InspectVolumeRequest) (*caissonv1.Volume, error) {
	return call(ctx, c.volumes().InspectVolume, req)
}

// RemoveVolume removes a volume that no sandbox uses, with all files in it.
func (c *Client) RemoveVolume(ctx context.Context, req *caissonv1.RemoveVolumeRequest) (*caissonv1.RemoveVolumeResponse, error) {
	return call(ctx, c.volumes().RemoveVolume, req)
}

// PruneVolumes removes the caller's volumes that no sandbox uses.
func (c *Client) PruneVolumes(ctx context.Context, req *caissonv1.PruneVolumesRequest) (*caissonv1.PruneVolumesResponse, error) {
	return call(ctx, c.volumes().PruneVolumes, req)
}
