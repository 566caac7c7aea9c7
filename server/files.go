package server

import (
	"bufio"
	"context"
	"io"
	"strconv"
	"unicode/utf8"

	"connectrpc.com/connect"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime/files"
)

// Files gives access to the files of live sandboxes.
type Files interface {
	Files(ctx context.Context, ref string) (FileSession, error)
}

// FileSession works on the files of one sandbox: *files.Session does.
type FileSession interface {
	Stat(ctx context.Context, path string, follow bool) (files.Info, error)
	ListDir(ctx context.Context, path string, depth uint32) (list []files.Info, truncated bool, err error)
	Read(ctx context.Context, path string, offset, length int64, info func(files.Info) error, w io.Writer) error
	Write(ctx context.Context, path string, mode *uint32, parents bool, content io.Reader) (files.Info, error)
	MakeDir(ctx context.Context, path string, mode *uint32, parents bool) (files.Info, error)
	Move(ctx context.Context, from, to string, replace bool) (files.Info, error)
	Remove(ctx context.Context, path string, recursive bool) error
	Watch(ctx context.Context, path string, recursive bool, ready func(), event func(files.Event) error) error
	CopyOut(ctx context.Context, path string, most int64, w io.Writer) (files.Copied, error)
	CopyIn(ctx context.Context, path string, r io.Reader) (files.Copied, error)
}

// fileService serves FileService.
type fileService struct{ sandboxes Files }

// open returns the files of the sandbox ref.
func (s fileService) open(ctx context.Context, ref string) (FileSession, error) {
	if err := checkRef("ref", ref); err != nil {
		return nil, err
	}
	return s.sandboxes.Files(ctx, ref)
}

func (s fileService) Stat(ctx context.Context, r *connect.Request[caissonv1.StatRequest]) (*connect.Response[caissonv1.FileInfo], error) {
	session, err := s.open(ctx, r.Msg.Ref)
	if err != nil {
		return nil, fail(err)
	}
	i, err := session.Stat(ctx, r.Msg.Path, r.Msg.Follow)
	return reply(filePB(i), err)
}

func (s fileService) ListDir(ctx context.Context, r *connect.Request[caissonv1.ListDirRequest]) (*connect.Response[caissonv1.ListDirResponse], error) {
	session, err := s.open(ctx, r.Msg.Ref)
	if err != nil {
		return nil, fail(err)
	}
	list, truncated, err := session.ListDir(ctx, r.Msg.Path, r.Msg.Depth)
	return reply(&caissonv1.ListDirResponse{Files: each(list, filePB), Truncated: truncated}, err)
}

func (s fileService) MakeDir(ctx context.Context, r *connect.Request[caissonv1.MakeDirRequest]) (*connect.Response[caissonv1.FileInfo], error) {
	session, err := s.open(ctx, r.Msg.Ref)
	if err != nil {
		return nil, fail(err)
	}
	i, err := session.MakeDir(ctx, r.Msg.Path, r.Msg.Mode, r.Msg.MakeParents)
	return reply(filePB(i), err)
}

func (s fileService) MoveFile(ctx context.Context, r *connect.Request[caissonv1.MoveFileRequest]) (*connect.Response[caissonv1.FileInfo], error) {
	session, err := s.open(ctx, r.Msg.Ref)
	if err != nil {
		return nil, fail(err)
	}
	i, err := session.Move(ctx, r.Msg.From, r.Msg.To, r.Msg.Replace)
	return reply(filePB(i), err)
}

func (s fileService) RemoveFile(ctx context.Context, r *connect.Request[caissonv1.RemoveFileRequest]) (*connect.Response[caissonv1.RemoveFileResponse], error) {
	session, err := s.open(ctx, r.Msg.Ref)
	if err != nil {
		return nil, fail(err)
	}
	return reply(&caissonv1.RemoveFileResponse{}, session.Remove(ctx, r.Msg.Path, r.Msg.Recursive))
}

func (s fileService) ReadFile(ctx context.Context, r *connect.Request[caissonv1.ReadFileRequest], stream *connect.ServerStream[caissonv1.ReadFileResponse]) error {
	session, err := s.open(ctx, r.Msg.Ref)
	if err != nil {
		return fail(err)
	}
	info := func(i files.Info) error {
		return sent(stream.Send(&caissonv1.ReadFileResponse{Kind: &caissonv1.ReadFileResponse_File{File: filePB(i)}}))
	}
	chunk := fileChunks(func(p []byte) error {
		return stream.Send(&caissonv1.ReadFileResponse{Kind: &caissonv1.ReadFileResponse_Chunk{Chunk: p}})
	})
	return fail(session.Read(ctx, r.Msg.Path, r.Msg.Offset, r.Msg.Length, info, chunk))
}

func (s fileService) WriteFile(ctx context.Context, stream *connect.ClientStream[caissonv1.WriteFileRequest]) (*connect.Response[caissonv1.FileInfo], error) {
	first, err := firstOf(stream)
	if err != nil {
		return nil, fail(err)
	}
	header := first.GetHeader()
	if header == nil {
		return nil, fail(sbxerr.New(sbxerr.APIUsage, "server.write", "the first message of a write must hold header"))
	}
	session, err := s.open(ctx, header.Ref)
	if err != nil {
		return nil, fail(err)
	}
	content := &chunkReader[caissonv1.WriteFileRequest]{stream: stream, chunk: func(m *caissonv1.WriteFileRequest) ([]byte, bool) {
		c, ok := m.Kind.(*caissonv1.WriteFileRequest_Chunk)
		return m.GetChunk(), ok && c != nil
	}}
	i, err := session.Write(ctx, header.Path, header.Mode, header.MakeParents, content)
	return reply(filePB(i), err)
}

func (s fileService) WatchFiles(ctx context.Context, r *connect.Request[caissonv1.WatchFilesRequest], stream *connect.ServerStream[caissonv1.WatchFilesResponse]) error {
	session, err := s.open(ctx, r.Msg.Ref)
	if err != nil {
		return fail(err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ready := func() {
		cancelOn(cancel, stream.Send(&caissonv1.WatchFilesResponse{Kind: &caissonv1.WatchFilesResponse_Ready{Ready: true}}))
	}
	event := func(e files.Event) error {
		return sent(stream.Send(&caissonv1.WatchFilesResponse{Kind: &caissonv1.WatchFilesResponse_Event{
			Event: &caissonv1.FileEvent{Path: text(e.Path), PathBytes: unlessText(e.Path), Type: e.Type},
		}}))
	}
	return fail(session.Watch(ctx, r.Msg.Path, r.Msg.Recursive, ready, event))
}

func cancelOn(cancel context.CancelCauseFunc, err error) {
	if err != nil {
		cancel(sent(err))
	}
}

func (s fileService) CopyOut(ctx context.Context, r *connect.Request[caissonv1.CopyOutRequest], stream *connect.ServerStream[caissonv1.CopyOutResponse]) error {
	if r.Msg.MaxBytes < 0 {
		return fail(sbxerr.New(sbxerr.APIUsage, "server.copy", "max_bytes is %d: give the most bytes that you want, or 0", r.Msg.MaxBytes))
	}
	session, err := s.open(ctx, r.Msg.Ref)
	if err != nil {
		return fail(err)
	}
	chunk := fileChunks(func(p []byte) error { return stream.Send(&caissonv1.CopyOutResponse{Chunk: p}) })
	w := bufio.NewWriterSize(chunk, fileChunk) // a tar writer writes its headers one by one
	copied, err := session.CopyOut(ctx, r.Msg.Path, r.Msg.MaxBytes, w)
	if err == nil {
		err = w.Flush()
	}
	stream.ResponseTrailer().Set(api.LeftOutTrailer, strconv.FormatInt(copied.LeftOut, 10))
	for _, name := range copied.Names {
		stream.ResponseTrailer().Add(api.LeftOutNameTrailer, strconv.QuoteToASCII(name))
	}
	return fail(err)
}

func (s fileService) CopyIn(ctx context.Context, stream *connect.ClientStream[caissonv1.CopyInRequest]) (*connect.Response[caissonv1.CopyInResponse], error) {
	first, err := firstOf(stream)
	if err != nil {
		return nil, fail(err)
	}
	header := first.GetHeader()
	if header == nil {
		return nil, fail(sbxerr.New(sbxerr.APIUsage, "server.copy", "the first message of a copy must hold header"))
	}
	session, err := s.open(ctx, header.Ref)
	if err != nil {
		return nil, fail(err)
	}
	content := &chunkReader[caissonv1.CopyInRequest]{stream: stream, chunk: func(m *caissonv1.CopyInRequest) ([]byte, bool) {
		c, ok := m.Kind.(*caissonv1.CopyInRequest_Chunk)
		return m.GetChunk(), ok && c != nil
	}}
	copied, err := session.CopyIn(ctx, header.Path, content)
	return reply(&caissonv1.CopyInResponse{Entries: copied.Entries, Bytes: copied.Bytes}, err)
}

// filePB is i as a message. A path that is not UTF-8 is told exactly as bytes alone.
func filePB(i files.Info) *caissonv1.FileInfo {
	return &caissonv1.FileInfo{
		Path: text(i.Path), PathBytes: unlessText(i.Path), Type: i.Type, SizeBytes: i.Size, Mode: i.Mode, Uid: i.UID, Gid: i.GID,
		ModifiedAt: timestamp(i.ModTime), Link: text(i.Link),
	}
}

// unlessText is the bytes of a path that is not UTF-8.
func unlessText(path string) []byte {
	if utf8.ValidString(path) {
		return nil
	}
	return []byte(path)
}

// fileChunk is the most of a file or archive in one message.
const fileChunk = 64 << 10

// fileChunks is a writer that sends what it is given in messages.
type fileChunks func([]byte) error

// Write implements io.Writer.
func (send fileChunks) Write(p []byte) (int, error) {
	for done := 0; done < len(p); {
		end := min(done+fileChunk, len(p))
		if err := sent(send(p[done:end])); err != nil {
			return done, err
		}
		done = end
	}
	return len(p), nil
}

// sent is the error of a send: its caller has gone.
func sent(err error) error { return sbxerr.Wrap(sbxerr.Canceled, "server.send", err) }
