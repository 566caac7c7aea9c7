package runtime

import (
	"cmp"
	"context"
	"io"

	"github.com/caisson-run/caisson/runtime/events"
	"github.com/caisson-run/caisson/runtime/files"
)

// FileAccess works on the files of one sandbox and tells of what it copied or changed.
type FileAccess struct {
	*files.Session
	m *Manager
	s *sandbox
}

// tell tells of a request that ended with err, and returns what its caller is to hear.
func (f FileAccess) tell(ctx context.Context, t events.Type, d events.Data, err error) error {
	if err != nil {
		d.Fail(err)
	}
	return cmp.Or(err, f.m.opts.Events.Confirm(ctx, f.s.kept().event(t, d)))
}

// counting counts what goes through it.
type counting struct {
	w io.Writer
	n int64
}

// Write implements io.Writer.
func (c *counting) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

// Read is that of [files.Session].
func (f FileAccess) Read(ctx context.Context, path string, offset, length int64, info func(files.Info) error, w io.Writer) error {
	count := &counting{w: w}
	err := f.Session.Read(ctx, path, offset, length, info, count)
	return f.tell(ctx, events.FileRead, events.Data{Action: "read", Path: path, Bytes: count.n}, err)
}

// CopyOut is that of [files.Session].
func (f FileAccess) CopyOut(ctx context.Context, path string, most int64, w io.Writer) (files.Copied, error) {
	count := &counting{w: w}
	copied, err := f.Session.CopyOut(ctx, path, most, count)
	return copied, f.tell(ctx, events.FileRead, events.Data{Action: "copy_out", Path: path, Bytes: count.n}, err)
}

// Write is that of [files.Session].
func (f FileAccess) Write(ctx context.Context, path string, mode *uint32, parents bool, content io.Reader) (files.Info, error) {
	info, err := f.Session.Write(ctx, path, mode, parents, content)
	return info, f.tell(ctx, events.FileWritten, events.Data{Action: "write", Path: path, Bytes: info.Size}, err)
}

// CopyIn is that of [files.Session].
func (f FileAccess) CopyIn(ctx context.Context, path string, r io.Reader) (files.Copied, error) {
	copied, err := f.Session.CopyIn(ctx, path, r)
	return copied, f.tell(ctx, events.FileWritten, events.Data{Action: "copy_in", Path: path, Bytes: copied.Bytes}, err)
}

// MakeDir is that of [files.Session].
func (f FileAccess) MakeDir(ctx context.Context, path string, mode *uint32, parents bool) (files.Info, error) {
	info, err := f.Session.MakeDir(ctx, path, mode, parents)
	return info, f.tell(ctx, events.FileChanged, events.Data{Action: "make", Path: path}, err)
}

// Move is that of [files.Session].
func (f FileAccess) Move(ctx context.Context, from, to string, replace bool) (files.Info, error) {
	info, err := f.Session.Move(ctx, from, to, replace)
	return info, f.tell(ctx, events.FileChanged, events.Data{Action: "move", Path: from, To: to}, err)
}

// Remove is that of [files.Session].
func (f FileAccess) Remove(ctx context.Context, path string, recursive bool) error {
	err := f.Session.Remove(ctx, path, recursive)
	return f.tell(ctx, events.FileChanged, events.Data{Action: "remove", Path: path}, err)
}
