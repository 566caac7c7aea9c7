package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"connectrpc.com/connect"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
)

// The trailers of a CopyOut: how many entries it left out, and the quoted names
// of the first of them.
const (
	LeftOutTrailer     = "Caisson-Left-Out"
	LeftOutNameTrailer = "Caisson-Left-Out-Name"
)

// fileChunk is the most of a file or archive in one message.
const fileChunk = 128 << 10

// Stat describes one entry of a sandbox's file system.
func (c *Client) Stat(ctx context.Context, req *caissonv1.StatRequest) (*caissonv1.FileInfo, error) {
	return call(ctx, c.files().Stat, req)
}

// ListDir returns the entries of a directory, by name, down to a depth.
func (c *Client) ListDir(ctx context.Context, req *caissonv1.ListDirRequest) (*caissonv1.ListDirResponse, error) {
	return call(ctx, c.files().ListDir, req)
}

// MakeDir makes a directory.
func (c *Client) MakeDir(ctx context.Context, req *caissonv1.MakeDirRequest) (*caissonv1.FileInfo, error) {
	return call(ctx, c.files().MakeDir, req)
}

// MoveFile renames a file or directory within one file system of a sandbox.
func (c *Client) MoveFile(ctx context.Context, req *caissonv1.MoveFileRequest) (*caissonv1.FileInfo, error) {
	return call(ctx, c.files().MoveFile, req)
}

// RemoveFile removes a file, an empty directory, or a whole tree.
func (c *Client) RemoveFile(ctx context.Context, req *caissonv1.RemoveFileRequest) (*caissonv1.RemoveFileResponse, error) {
	return call(ctx, c.files().RemoveFile, req)
}

// ReadFile writes a file of a sandbox, or a range of it, to w, and describes it.
// What w has got when an error is returned is a part of it.
func (c *Client) ReadFile(ctx context.Context, req *caissonv1.ReadFileRequest, w io.Writer) (*caissonv1.FileInfo, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.files().ReadFile(ctx, connect.NewRequest(req))
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	var file *caissonv1.FileInfo
	for stream.Receive() {
		switch kind := stream.Msg().Kind.(type) {
		case *caissonv1.ReadFileResponse_File:
			file = kind.File
		case *caissonv1.ReadFileResponse_Chunk:
			if err := writeFile(w, kind.Chunk); err != nil {
				return nil, err
			}
		}
	}
	if err := stream.Err(); err != nil {
		return nil, err
	}
	if file == nil {
		return nil, Explain(sbxerr.New(sbxerr.APIBroken, "api.read", "the daemon ended the call without a file"))
	}
	return file, nil
}

func writeFile(w io.Writer, p []byte) error {
	if _, err := w.Write(p); err != nil {
		return sbxerr.Wrap(sbxerr.ClientIO, "api.write", fmt.Errorf("write what came from the sandbox: %w", err))
	}
	return nil
}

// WriteFile replaces a file of a sandbox, or makes it, with all of content, in
// one step. An error of content is returned under SBX-804, and nothing changes.
func (c *Client) WriteFile(ctx context.Context, header *caissonv1.WriteFileHeader, content io.Reader) (*caissonv1.FileInfo, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream := c.files().WriteFile(ctx)
	first := &caissonv1.WriteFileRequest{Kind: &caissonv1.WriteFileRequest_Header{Header: header}}
	return sendFile(ctx, stream, cancel, first, content, func(p []byte) *caissonv1.WriteFileRequest {
		return &caissonv1.WriteFileRequest{Kind: &caissonv1.WriteFileRequest_Chunk{Chunk: p}}
	})
}

// CopyIn unpacks the tar r below an existing directory of a sandbox. Errors of r
// are as with WriteFile.
func (c *Client) CopyIn(ctx context.Context, header *caissonv1.CopyInHeader, r io.Reader) (*caissonv1.CopyInResponse, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream := c.files().CopyIn(ctx)
	first := &caissonv1.CopyInRequest{Kind: &caissonv1.CopyInRequest_Header{Header: header}}
	return sendFile(ctx, stream, cancel, first, r, func(p []byte) *caissonv1.CopyInRequest {
		return &caissonv1.CopyInRequest{Kind: &caissonv1.CopyInRequest_Chunk{Chunk: p}}
	})
}

// sendFile sends content and returns the answer; breakOff ends ctx. A content that cannot be read
// to its end must not end the request cleanly, or a part would be taken for the
// whole: it is broken off.
func sendFile[Req, Res any](ctx context.Context, stream *connect.ClientStreamForClient[Req, Res], breakOff func(), first *Req, content io.Reader, message func([]byte) *Req) (*Res, error) {
	err := stream.Send(first)
	buf := make([]byte, fileChunk)
	for err == nil { // a failure to send is what the answer explains
		n, rerr := content.Read(buf)
		if n > 0 {
			err = stream.Send(message(buf[:n]))
		}
		if errors.Is(rerr, io.EOF) {
			break
		}
		if rerr != nil {
			breakOff() // which frees the call, too; closing it could still end the request cleanly
			return nil, sbxerr.Wrap(sbxerr.ClientIO, "api.send", fmt.Errorf("read what is to be sent: %w", rerr))
		}
	}
	if err != nil && ctx.Err() != nil { // as above: what was sent is a part
		return nil, Explain(fmt.Errorf("send a file: %w", ctx.Err()))
	}
	res, err := stream.CloseAndReceive()
	if err != nil {
		return nil, err
	}
	return res.Msg, nil
}

// WatchFiles reports changes below a path until ctx ends or event returns an
// error. ready, which may be nil, is called when changes from then on are
// reported. If the daemon restarts, it goes on after an event of the type "overflow",
// which says that changes may be missing.
func (c *Client) WatchFiles(ctx context.Context, req *caissonv1.WatchFilesRequest, ready func(), event func(*caissonv1.FileEvent) error) error {
	began := false
	nothing := func() error { return nil } // the next ready tells
	return resumed(ctx, c.retry(), c.files().WatchFiles, req, nothing, func(m *caissonv1.WatchFilesResponse) error {
		if e := m.GetEvent(); e != nil {
			return event(e)
		}
		if began {
			return event(&caissonv1.FileEvent{Path: req.Path, Type: "overflow"})
		}
		began = true
		if ready != nil {
			ready()
		}
		return nil
	})
}

// LeftOut is what a copy out does not hold: FIFOs, sockets, devices, symlinks
// that are absolute or lead out of the tree, and names that no archive gets.
type LeftOut struct {
	Count int64
	Names []string // the first of them, quoted
}

// CopyOut writes a file or tree of a sandbox to w as a tar. It is whole only
// without an error.
func (c *Client) CopyOut(ctx context.Context, req *caissonv1.CopyOutRequest, w io.Writer) (LeftOut, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.files().CopyOut(ctx, connect.NewRequest(req))
	if err != nil {
		return LeftOut{}, err
	}
	defer stream.Close()
	for stream.Receive() {
		if err := writeFile(w, stream.Msg().Chunk); err != nil {
			return LeftOut{}, err
		}
	}
	if err := stream.Err(); err != nil {
		return LeftOut{}, err
	}
	return leftOut(stream.ResponseTrailer())
}

func leftOut(trailer http.Header) (LeftOut, error) {
	n, err := strconv.ParseInt(trailer.Get(LeftOutTrailer), 10, 64)
	if err != nil {
		return LeftOut{}, Explain(sbxerr.Wrap(sbxerr.APIBroken, "api.copy", fmt.Errorf("the daemon does not say what it left out: %w", err)))
	}
	return LeftOut{Count: n, Names: trailer.Values(LeftOutNameTrailer)}, nil
}
