package execs

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
)

// tail keeps the last lines of one stream of a command.
type tail struct {
	lines int
	kept  []byte
}

// Write implements io.Writer. It never fails.
func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p...)
	t.kept = t.kept[t.begin():]
	return len(p), nil
}

// begin is where the last lines begin in what is kept. A line that has no end yet is one.
func (t *tail) begin() int {
	at := len(bytes.TrimSuffix(t.kept, []byte("\n")))
	for range t.lines {
		if at = bytes.LastIndexByte(t.kept[:max(at, 0)], '\n'); at < 0 {
			return 0
		}
	}
	if t.lines == 0 {
		return len(t.kept)
	}
	return at + 1
}

// Skip implements api.Skipper. Lines before bytes that are not there are not among the last.
func (t *tail) Skip(int64) error {
	t.kept = nil
	return nil
}

// tailed is a stream of which the last lines are shown, and then what follows.
type tailed struct {
	w     io.Writer
	*tail // nil once its lines are shown
}

// Write implements io.Writer.
func (t *tailed) Write(p []byte) (int, error) {
	if t.tail != nil {
		return t.tail.Write(p)
	}
	return t.w.Write(p)
}

// Skip implements api.Skipper.
func (t *tailed) Skip(n int64) error {
	if t.tail != nil {
		return t.tail.Skip(n)
	}
	return skip(t.w, n)
}

func (t *tailed) show() error {
	kept := t.kept
	t.tail = nil
	_, err := t.w.Write(kept)
	return cli.OwnOutput(err)
}

// counted knows where in its stream it is.
type counted struct {
	w      io.Writer
	offset int64 // of what comes next
}

// Place implements api.Placer.
func (c *counted) Place(offset int64, came time.Time) error {
	c.offset = offset
	if p, ok := c.w.(api.Placer); ok {
		return p.Place(offset, came)
	}
	return nil
}

// Write implements io.Writer.
func (c *counted) Write(p []byte) (int, error) {
	c.offset += int64(len(p))
	return c.w.Write(p)
}

// Skip implements api.Skipper.
func (c *counted) Skip(n int64) error {
	c.offset += n
	return skip(c.w, n)
}

func skip(w io.Writer, n int64) error {
	if s, ok := w.(api.Skipper); ok {
		return s.Skip(n)
	}
	return nil
}

// tailLogs shows the last lines of each stream, and then what follows where that is asked for.
func tailLogs(a *cli.App, ctx context.Context, client *api.Client, req *caissonv1.LogsRequest, lines int, out, errs io.Writer) error {
	lastOut, lastErrs := &tailed{out, &tail{lines: lines}}, &tailed{errs, &tail{lines: lines}}
	stdout, stderr := &counted{w: datedLines(lastOut, req.Timestamps)}, &counted{w: datedLines(lastErrs, req.Timestamps)}
	now := proto.CloneOf(req)
	now.Follow = false
	if err := client.Logs(ctx, now, stdout, stderr); err != nil {
		return err
	}
	if err := cmp.Or(lastOut.show(), lastErrs.show()); err != nil || !req.Follow {
		return err
	}
	req.StdoutOffset, req.StderrOffset = stdout.offset, stderr.offset
	return client.Logs(ctx, req, stdout, stderr)
}
