package kubelet

import (
	"bytes"
	"context"
	"io"
	"time"

	"google.golang.org/protobuf/proto"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

// entry is a line and when it came.
type entry struct {
	text []byte
	came time.Time
}

// queue passes lines on to the other side of a merge.
type queue struct {
	ctx   context.Context
	lines chan entry
	err   error // once lines is closed
}

func (q *queue) line(text []byte, came time.Time) error {
	select {
	case q.lines <- entry{bytes.Clone(text), came}:
		return nil
	case <-q.ctx.Done():
		return q.ctx.Err()
	}
}

// merge writes the lines of both streams that there are, the older first. Where more comes, the
// part of a line without an end stays in its stream.
func (s *Server) merge(ctx context.Context, req *caissonv1.LogsRequest, stdout, stderr *stream, more bool, out *lines) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	one, other := s.queued(ctx, req, "stdout", stdout, more), s.queued(ctx, req, "stderr", stderr, more)
	a, moreA := <-one.lines
	b, moreB := <-other.lines
	for moreA || moreB {
		if moreA && (!moreB || !b.came.Before(a.came)) {
			if err := out.line(a.text, a.came); err != nil {
				return err
			}
			a, moreA = <-one.lines
			continue
		}
		if err := out.line(b.text, b.came); err != nil {
			return err
		}
		b, moreB = <-other.lines
	}
	if one.err != nil {
		return one.err
	}
	return other.err
}

// queued reads one stream in the background.
func (s *Server) queued(ctx context.Context, req *caissonv1.LogsRequest, name string, from *stream, more bool) *queue {
	q := &queue{ctx: ctx, lines: make(chan entry)}
	from.to = q
	req = proto.CloneOf(req)
	req.Stream = name
	go func() {
		defer close(q.lines)
		stdout, stderr := io.Writer(from), io.Writer(nil)
		if name == "stderr" {
			stdout, stderr = nil, from
		}
		q.err = s.Caisson.Logs(ctx, req, stdout, stderr)
		if !more {
			from.finish()
		}
	}()
	return q
}
