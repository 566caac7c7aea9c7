package main

import (
	"bytes"
	"context"
	"io"

	"google.golang.org/protobuf/proto"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

// tail keeps the last lines of one stream of a command.
type tail struct {
	lines  int
	offset int64 // in the stream, of what comes next
	kept   []byte
}

// Write implements io.Writer. It never fails.
func (t *tail) Write(p []byte) (int, error) {
	t.offset += int64(len(p))
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
func (t *tail) Skip(n int64) error {
	t.offset += n
	t.kept = nil
	return nil
}

// tailLogs shows the last lines of each stream, and then what follows where that is asked for.
func (a *app) tailLogs(ctx context.Context, client *api.Client, req *caissonv1.LogsRequest, lines int, out, errs io.Writer) error {
	stdout, stderr := &tail{lines: lines}, &tail{lines: lines}
	now := proto.CloneOf(req)
	now.Follow = false
	if err := client.Logs(ctx, now, stdout, stderr); err != nil {
		return err
	}
	for _, s := range []struct {
		of *tail
		to io.Writer
	}{{stdout, out}, {stderr, errs}} {
		if _, err := s.to.Write(s.of.kept); err != nil {
			return ownOutput(err)
		}
	}
	if !req.Follow {
		return nil
	}
	req.StdoutOffset, req.StderrOffset = stdout.offset, stderr.offset
	return a.showLogs(ctx, client, req)
}
