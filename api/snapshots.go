package api

import (
	"context"
	"io"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

// CreateSnapshot makes a snapshot of the disk of a sandbox, whose processes stand still
// meanwhile.
func (c *Client) CreateSnapshot(ctx context.Context, req *caissonv1.CreateSnapshotRequest) (*caissonv1.Snapshot, error) {
	return call(ctx, c.snapshots().CreateSnapshot, req)
}

// ListSnapshots returns the caller's snapshots, and to root those of all users.
func (c *Client) ListSnapshots(ctx context.Context, req *caissonv1.ListSnapshotsRequest) (*caissonv1.ListSnapshotsResponse, error) {
	return whole(ctx, c.snapshots().ListSnapshots, req)
}

// InspectSnapshot returns one snapshot.
func (c *Client) InspectSnapshot(ctx context.Context, req *caissonv1.InspectSnapshotRequest) (*caissonv1.Snapshot, error) {
	return call(ctx, c.snapshots().InspectSnapshot, req)
}

// DiffSnapshot returns what a snapshot has other than an earlier one.
func (c *Client) DiffSnapshot(ctx context.Context, req *caissonv1.DiffSnapshotRequest) (*caissonv1.DiffResponse, error) {
	return call(ctx, c.snapshots().DiffSnapshot, req)
}

// RemoveSnapshot removes a snapshot.
func (c *Client) RemoveSnapshot(ctx context.Context, req *caissonv1.RemoveSnapshotRequest) (*caissonv1.RemoveSnapshotResponse, error) {
	return call(ctx, c.snapshots().RemoveSnapshot, req)
}

// ExportSnapshot writes a snapshot to w as a tar. What w has got when an error is returned is a part
// of it.
func (c *Client) ExportSnapshot(ctx context.Context, req *caissonv1.ExportSnapshotRequest, w io.Writer) error {
	return receiveArchive(ctx, c.snapshots().ExportSnapshot, req, w)
}

// ImportSnapshot sends the archive r, which ExportSnapshot wrote. An empty name takes the one that the
// snapshot had. An error of r is returned under SBX-804, and nothing is imported.
func (c *Client) ImportSnapshot(ctx context.Context, name string, r io.Reader) (*caissonv1.Snapshot, error) {
	header := &caissonv1.ImportSnapshotRequest{Kind: &caissonv1.ImportSnapshotRequest_Header{Header: &caissonv1.ImportSnapshotHeader{Name: name}}}
	return importArchive(ctx, c.snapshots().ImportSnapshot, header, r, func(p []byte) *caissonv1.ImportSnapshotRequest {
		return &caissonv1.ImportSnapshotRequest{Kind: &caissonv1.ImportSnapshotRequest_Chunk{Chunk: p}}
	})
}

// AttachSnapshot gives a live sandbox the directory of a snapshot.
func (c *Client) AttachSnapshot(ctx context.Context, req *caissonv1.AttachSnapshotRequest) (*caissonv1.Sandbox, error) {
	return call(ctx, c.snapshots().AttachSnapshot, req)
}

// Rewind gives a running sandbox the files of a snapshot. Its commands end first.
func (c *Client) Rewind(ctx context.Context, req *caissonv1.RewindRequest) (*caissonv1.RewindResponse, error) {
	return call(ctx, c.snapshots().Rewind, req)
}

// Fork makes new sandboxes with the files and settings of one. Each of them succeeds or fails
// alone.
func (c *Client) Fork(ctx context.Context, req *caissonv1.ForkRequest) (*caissonv1.ForkResponse, error) {
	return call(ctx, c.snapshots().Fork, req)
}
