package server

import (
	"bufio"
	"context"
	"sync"

	"connectrpc.com/connect"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime/images"
	"github.com/caisson-run/caisson/runtime/registry"
)

// imageService serves ImageService.
type imageService struct{ store Images }

func (s imageService) ListImages(ctx context.Context, r *connect.Request[caissonv1.ListImagesRequest]) (*connect.Response[caissonv1.ListImagesResponse], error) {
	list, err := s.store.List(ctx)
	if err != nil {
		return nil, fail(err)
	}
	list, next, err := page("images", list, func(i images.Image) string { return ownedKey(i.Name, i.Owner) }, r.Msg)
	return reply(&caissonv1.ListImagesResponse{Images: each(list, imagePB), Next: next}, err)
}

func (s imageService) InspectImage(ctx context.Context, r *connect.Request[caissonv1.InspectImageRequest]) (*connect.Response[caissonv1.InspectImageResponse], error) {
	if err := checkImage(r.Msg.Name); err != nil {
		return nil, fail(err)
	}
	detail, err := s.store.Inspect(ctx, r.Msg.Name)
	if err != nil {
		return nil, fail(err)
	}
	return connect.NewResponse(imageDetailPB(detail)), nil
}

func (s imageService) RemoveImage(ctx context.Context, r *connect.Request[caissonv1.RemoveImageRequest]) (*connect.Response[caissonv1.RemoveImageResponse], error) {
	if err := checkImage(r.Msg.Name); err != nil {
		return nil, fail(err)
	}
	return reply(&caissonv1.RemoveImageResponse{}, s.store.Remove(ctx, r.Msg.Name))
}

// ImportImage implements ImageServiceHandler.
func (s imageService) ImportImage(ctx context.Context, stream *connect.ClientStream[caissonv1.ImportImageRequest]) (*connect.Response[caissonv1.ImportImageResponse], error) {
	first, err := firstOf(stream)
	if err != nil {
		return nil, fail(err)
	}
	header := first.GetHeader()
	if header == nil {
		return nil, fail(sbxerr.New(sbxerr.APIUsage, "server.import", "the first message of an import must hold header"))
	}
	if header.Name != "" {
		if err := checkImage(header.Name); err != nil {
			return nil, fail(err)
		}
	}
	archive := &chunkReader[caissonv1.ImportImageRequest]{stream: stream, chunk: func(m *caissonv1.ImportImageRequest) ([]byte, bool) {
		_, ok := m.Kind.(*caissonv1.ImportImageRequest_Chunk)
		return m.GetChunk(), ok
	}}
	done, err := s.store.Import(ctx, header.Name, archive, func(string) {})
	return reply(&caissonv1.ImportImageResponse{Image: imagePB(done.Image), Report: reportPB(done.Report), Replaced: done.Replaced}, err)
}

func (s imageService) FromHost(ctx context.Context, r *connect.Request[caissonv1.FromHostRequest], stream *connect.ServerStream[caissonv1.ImageProgress]) error {
	if err := checkImage(r.Msg.Name); err != nil {
		return fail(err)
	}
	send := lockedSend(stream)
	req := images.FromHostRequest{Name: r.Msg.Name, Packages: r.Msg.Packages, Paths: r.Msg.Paths}
	done, err := s.store.FromHost(ctx, req, progressTo(send))
	if err != nil {
		return fail(err)
	}
	return fail(send(importedPB(done)))
}

func (s imageService) PullImage(ctx context.Context, r *connect.Request[caissonv1.PullImageRequest], stream *connect.ServerStream[caissonv1.ImageProgress]) error {
	send := lockedSend(stream)
	progress := func(p images.PullProgress) {
		_ = send(&caissonv1.ImageProgress{Message: text(p.Message), Layers: each(p.Layers, layerPB)}) // see progressTo
	}
	switch {
	case r.Msg.All && (r.Msg.Name != "" || r.Msg.Credentials != nil):
		return fail(sbxerr.New(sbxerr.APIUsage, "server.pull", "all excludes name and credentials"))
	case r.Msg.All:
		return fail(s.store.PullAll(ctx, progress, func(done images.Imported) { _ = send(importedPB(done)) }))
	}
	if err := checkImage(r.Msg.Name); err != nil {
		return fail(err)
	}
	c := r.Msg.Credentials
	done, err := s.store.Pull(ctx, images.PullRequest{
		Name:        r.Msg.Name,
		Credentials: registry.Credentials{Username: c.GetUsername(), Password: c.GetPassword(), IdentityToken: c.GetIdentityToken()},
	}, progress)
	if err != nil {
		return fail(err)
	}
	return fail(send(importedPB(done)))
}

func (s imageService) TagImage(ctx context.Context, r *connect.Request[caissonv1.TagImageRequest]) (*connect.Response[caissonv1.TagImageResponse], error) {
	for _, name := range []string{r.Msg.Name, r.Msg.NewName} {
		if err := checkImage(name); err != nil {
			return nil, fail(err)
		}
	}
	done, err := s.store.Tag(ctx, r.Msg.Name, r.Msg.NewName)
	return reply(&caissonv1.TagImageResponse{Image: imagePB(done.Image), Replaced: done.Replaced}, err)
}

// maxSaved bounds the images of one archive.
const maxSaved = 256

func (s imageService) SaveImages(ctx context.Context, r *connect.Request[caissonv1.SaveImagesRequest], stream *connect.ServerStream[caissonv1.SaveImagesResponse]) error {
	if n := len(r.Msg.Names); n == 0 || n > maxSaved {
		return fail(sbxerr.New(sbxerr.APIUsage, "server.save", "names has %d entries: give 1 to %d", n, maxSaved))
	}
	for _, name := range r.Msg.Names {
		if err := checkImage(name); err != nil {
			return fail(err)
		}
	}
	w := savedTo(func(p []byte) error { return stream.Send(&caissonv1.SaveImagesResponse{Chunk: p}) })
	if err := s.store.Save(ctx, r.Msg.Names, w); err != nil {
		return fail(err)
	}
	return fail(w.Flush())
}

// savedChunk is the most of an archive in one message.
const savedChunk = 256 << 10

// savedTo writes an archive in messages.
func savedTo(send func([]byte) error) *bufio.Writer {
	return bufio.NewWriterSize(chunkWriter(func(p []byte) error { return sent(send(p)) }), savedChunk)
}

type chunkWriter func([]byte) error

// Write implements io.Writer.
func (c chunkWriter) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		n := min(len(rest), savedChunk)
		if err := c(rest[:n]); err != nil {
			return 0, err
		}
		rest = rest[n:]
	}
	return len(p), nil
}

func (s imageService) PruneImages(ctx context.Context, r *connect.Request[caissonv1.PruneImagesRequest]) (*connect.Response[caissonv1.PruneImagesResponse], error) {
	if r.Msg.Until.AsDuration() < 0 {
		return nil, fail(sbxerr.New(sbxerr.APIUsage, "server.prune", "until is negative"))
	}
	done, err := s.store.Prune(ctx, images.PruneRequest{Unused: r.Msg.Unused, Until: r.Msg.Until.AsDuration(), DryRun: r.Msg.DryRun})
	return reply(&caissonv1.PruneImagesResponse{Images: each(done.Images, imagePB), FreedBytes: done.FreedBytes}, err)
}

func (s imageService) ImageUsage(ctx context.Context, _ *connect.Request[caissonv1.ImageUsageRequest]) (*connect.Response[caissonv1.ImageUsageResponse], error) {
	list, stored, err := s.store.Usage(ctx)
	return reply(&caissonv1.ImageUsageResponse{Images: each(list, diskUsagePB), StoredBytes: stored}, err)
}

// progressTo sends lines of progress. A caller that has gone cancels the
// call's context, so a failure to send needs no answer.
func progressTo(send func(*caissonv1.ImageProgress) error) func(string) {
	return func(line string) { _ = send(&caissonv1.ImageProgress{Message: text(line)}) }
}

// lockedSend makes a stream's Send safe for concurrent use.
func lockedSend[T any](stream interface{ Send(*T) error }) func(*T) error {
	var mu sync.Mutex
	return func(m *T) error {
		mu.Lock()
		defer mu.Unlock()
		return stream.Send(m)
	}
}
