package server

import (
	"context"

	"connectrpc.com/connect"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/runtime/snapshots"
)

// snapshotService serves SnapshotService.
type snapshotService struct {
	store     Snapshots
	sandboxes Sandboxes
}

func (s snapshotService) CreateSnapshot(ctx context.Context, r *connect.Request[caissonv1.CreateSnapshotRequest]) (*connect.Response[caissonv1.Snapshot], error) {
	i, err := s.store.Create(ctx, r.Msg.Ref, r.Msg.Name, r.Msg.Path)
	return reply(snapshotPB(i), err)
}

func (s snapshotService) ListSnapshots(ctx context.Context, r *connect.Request[caissonv1.ListSnapshotsRequest]) (*connect.Response[caissonv1.ListSnapshotsResponse], error) {
	list, err := s.store.List(ctx)
	if err != nil {
		return nil, fail(err)
	}
	list, next, err := page("snapshots", list, func(i snapshots.Info) string { return newestKey(i.CreatedAt) + ownedKey(i.Name, i.Owner) }, r.Msg)
	return reply(&caissonv1.ListSnapshotsResponse{Snapshots: each(list, snapshotPB), Next: next}, err)
}

func (s snapshotService) InspectSnapshot(ctx context.Context, r *connect.Request[caissonv1.InspectSnapshotRequest]) (*connect.Response[caissonv1.Snapshot], error) {
	i, err := s.store.Inspect(ctx, r.Msg.Name)
	return reply(snapshotPB(i), err)
}

func (s snapshotService) DiffSnapshot(ctx context.Context, r *connect.Request[caissonv1.DiffSnapshotRequest]) (*connect.Response[caissonv1.DiffResponse], error) {
	list, more, err := s.store.Diff(ctx, r.Msg.Name, r.Msg.To, r.Msg.Paths)
	return reply(&caissonv1.DiffResponse{Changes: each(list, changePB), Truncated: more}, err)
}

func (s snapshotService) RemoveSnapshot(ctx context.Context, r *connect.Request[caissonv1.RemoveSnapshotRequest]) (*connect.Response[caissonv1.RemoveSnapshotResponse], error) {
	return reply(&caissonv1.RemoveSnapshotResponse{}, s.store.Remove(ctx, r.Msg.Name))
}

func (s snapshotService) ExportSnapshot(ctx context.Context, r *connect.Request[caissonv1.ExportSnapshotRequest], stream *connect.ServerStream[caissonv1.ExportSnapshotResponse]) error {
	w := savedTo(func(p []byte) error { return stream.Send(&caissonv1.ExportSnapshotResponse{Chunk: p}) })
	if err := s.store.Export(ctx, r.Msg.Name, w); err != nil {
		return fail(err)
	}
	return fail(w.Flush())
}

func (s snapshotService) ImportSnapshot(ctx context.Context, stream *connect.ClientStream[caissonv1.ImportSnapshotRequest]) (*connect.Response[caissonv1.Snapshot], error) {
	first, err := firstOf(stream)
	if err != nil {
		return nil, fail(err)
	}
	header := first.GetHeader()
	if header == nil {
		return nil, fail(sbxerr.New(sbxerr.APIUsage, "server.import", "the first message of an import must hold header"))
	}
	archive := &chunkReader[caissonv1.ImportSnapshotRequest]{stream: stream, chunk: func(m *caissonv1.ImportSnapshotRequest) ([]byte, bool) {
		_, ok := m.Kind.(*caissonv1.ImportSnapshotRequest_Chunk)
		return m.GetChunk(), ok
	}}
	i, err := s.store.Import(ctx, header.Name, archive)
	return reply(snapshotPB(i), err)
}

func (s snapshotService) Rewind(ctx context.Context, r *connect.Request[caissonv1.RewindRequest]) (*connect.Response[caissonv1.RewindResponse], error) {
	done, err := s.store.Rewind(ctx, r.Msg.Ref, r.Msg.Snapshot)
	return reply(&caissonv1.RewindResponse{Execs: done.Execs, Processes: int32(done.Processes)}, err)
}

func (s snapshotService) AttachSnapshot(ctx context.Context, r *connect.Request[caissonv1.AttachSnapshotRequest]) (*connect.Response[caissonv1.Sandbox], error) {
	info, err := s.sandboxes.AttachFiles(ctx, r.Msg.Ref, plan.AttachRequest{Snapshot: r.Msg.Snapshot, Path: r.Msg.Path})
	return reply(sandboxPB(info), err)
}

func (s snapshotService) Fork(ctx context.Context, r *connect.Request[caissonv1.ForkRequest]) (*connect.Response[caissonv1.ForkResponse], error) {
	count := 1
	if r.Msg.Count != nil {
		count = int(*r.Msg.Count)
	}
	forks, err := s.store.Fork(ctx, r.Msg.Ref, count)
	return reply(&caissonv1.ForkResponse{Forks: each(forks, func(f snapshots.Fork) *caissonv1.Forked { return s.forkedPB(ctx, f) })}, err)
}

func (s snapshotService) forkedPB(ctx context.Context, f snapshots.Fork) *caissonv1.Forked {
	d := new(runtime.Detail)
	if f.Err == nil {
		d, f.Err = s.sandboxes.Inspect(ctx, f.ID)
	}
	if f.Err != nil {
		return &caissonv1.Forked{Error: api.Detail(f.Err)}
	}
	return &caissonv1.Forked{Sandbox: sandboxPB(d.Info)}
}

func snapshotPB(i snapshots.Info) *caissonv1.Snapshot {
	return &caissonv1.Snapshot{
		Name: i.Name, Owner: i.Owner, CreatedAt: timestamp(i.CreatedAt), SandboxId: i.SandboxID, SandboxName: i.SandboxName,
		Image: i.Image, ImageDigest: i.ImageDigest, Rootfs: plan.RootfsOf(i.WritableRoot), DiskBytes: i.Size.Bytes, UsedBytes: i.UsedBytes, Path: i.Path,
	}
}
