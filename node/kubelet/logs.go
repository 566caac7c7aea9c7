package kubelet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/gorilla/mux"
	"google.golang.org/protobuf/types/known/timestamppb"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

// logOptions are the query of a request for logs. Tail and limit are -1 where there are none.
type logOptions struct {
	follow, previous, timestamps bool
	tail, limit                  int64
	since                        time.Time
}

func parseLogOptions(q url.Values, now time.Time) (logOptions, error) {
	o := logOptions{tail: -1, limit: -1}
	var err error
	flag := func(name string, to *bool) {
		if v := q.Get(name); v != "" && err == nil {
			*to, err = strconv.ParseBool(v)
		}
	}
	count := func(name string, to *int64) {
		if v := q.Get(name); v != "" && err == nil {
			if *to, err = strconv.ParseInt(v, 10, 64); err == nil && *to < 0 {
				err = fmt.Errorf("%s is negative", name)
			}
		}
	}
	flag("follow", &o.follow)
	flag("previous", &o.previous)
	flag("timestamps", &o.timestamps)
	count("tailLines", &o.tail)
	count("limitBytes", &o.limit)
	seconds := int64(0)
	if count("sinceSeconds", &seconds); seconds > 0 {
		o.since = now.Add(-time.Duration(seconds) * time.Second)
	}
	if v := q.Get("sinceTime"); v != "" && err == nil {
		o.since, err = time.Parse(time.RFC3339, v)
	}
	return o, err
}

// logs serves them itself: the library cannot tell tailLines=0 from none.
func (s *Server) logs(w http.ResponseWriter, r *http.Request) {
	vars := mux.Vars(r)
	o, err := parseLogOptions(r.URL.Query(), time.Now())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	sandbox, err := s.Pods.Find(r.Context(), vars["namespace"], vars["pod"], vars["container"], o.previous)
	if err == nil && sandbox == "" {
		err = apierrors.NewNotFound(schema.GroupResource{Resource: "sandboxes"}, vars["pod"])
	}
	if err != nil {
		code := http.StatusInternalServerError
		if status := apierrors.APIStatus(nil); errors.As(err, &status) {
			code = int(status.Status().Code)
		}
		http.Error(w, err.Error(), code)
		return
	}
	out := &lines{w: w, limit: o.limit, timestamps: o.timestamps, since: o.since}
	if f, ok := w.(http.Flusher); ok {
		out.flush = f.Flush
	}
	if err := s.copyLogs(r.Context(), sandbox, o, out); err != nil && !out.full() && r.Context().Err() == nil {
		_, _ = fmt.Fprintf(w, "caisson: %v\n", err)
	}
}

// copyLogs writes what is there in the order of its time, and then what comes.
func (s *Server) copyLogs(ctx context.Context, sandbox string, o logOptions, out *lines) error {
	req := &caissonv1.LogsRequest{Ref: sandbox, Timestamps: true}
	if !o.since.IsZero() {
		req.Since = timestamppb.New(o.since)
	}
	if o.tail >= 0 {
		out.tail = &ring{most: o.tail}
	}
	stdout, stderr := &stream{}, &stream{}
	if err := s.merge(ctx, req, stdout, stderr, o.follow, out); err != nil {
		return err
	}
	if err := out.release(); err != nil || !o.follow {
		return err
	}
	stdout.to, stderr.to = out, out
	req.Follow, req.Since = true, nil
	req.StdoutOffset, req.StderrOffset = stdout.offset, stderr.offset
	err := s.Caisson.Logs(ctx, req, stdout, stderr)
	stdout.finish()
	stderr.finish()
	return err
}

// lines merges two streams by whole lines.
type lines struct {
	mu         sync.Mutex
	w          io.Writer
	flush      func()
	limit      int64 // bytes that may still be written; -1: all
	timestamps bool
	since      time.Time
	tail       *ring
}

func (l *lines) full() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.limit == 0
}

func (l *lines) line(text []byte, came time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !came.IsZero() && came.Before(l.since) {
		return nil
	}
	if l.timestamps {
		text = append([]byte(came.UTC().Format(time.RFC3339Nano)+" "), text...)
	}
	if l.tail != nil {
		l.tail.add(bytes.Clone(text))
		return nil
	}
	return l.write(text)
}

func (l *lines) write(text []byte) error {
	if l.limit >= 0 {
		text = text[:min(int64(len(text)), l.limit)]
		l.limit -= int64(len(text))
	}
	if _, err := l.w.Write(text); err != nil {
		return err
	}
	if l.flush != nil {
		l.flush()
	}
	if l.limit == 0 {
		return io.EOF
	}
	return nil
}

// release writes the last lines and lets later ones pass.
func (l *lines) release() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tail == nil {
		return nil
	}
	kept := l.tail.lines
	l.tail = nil
	for _, text := range kept {
		if err := l.write(text); err != nil {
			return err
		}
	}
	return nil
}

// ring keeps the last lines.
type ring struct {
	most  int64
	lines [][]byte
}

func (r *ring) add(text []byte) {
	r.lines = append(r.lines, text)
	if over := int64(len(r.lines)) - r.most; over > 0 {
		r.lines = r.lines[over:]
	}
}

// sink takes lines with the time of their first byte.
type sink interface {
	line(text []byte, came time.Time) error
}

// longestLine is passed on without its end.
const longestLine = 64 << 10

// stream cuts one stream into lines with the time of their first byte.
type stream struct {
	to     sink
	part   []byte
	came   time.Time // of part's first byte
	now    time.Time // of the bytes that come
	offset int64
}

// Place implements api.Placer.
func (s *stream) Place(offset int64, came time.Time) error {
	s.offset, s.now = offset, came
	return nil
}

// Skip implements api.Skipper.
func (s *stream) Skip(n int64) error {
	s.offset += n
	return s.to.line(fmt.Appendf(nil, "caisson: %d bytes are not kept any more\n", n), s.now)
}

// Write implements io.Writer.
func (s *stream) Write(p []byte) (int, error) {
	s.offset += int64(len(p))
	for rest := p; len(rest) > 0; {
		if len(s.part) == 0 {
			s.came = s.now
		}
		at := bytes.IndexByte(rest, '\n') + 1
		if at == 0 {
			at = len(rest)
		}
		s.part = append(s.part, rest[:at]...)
		rest = rest[at:]
		if s.part[len(s.part)-1] == '\n' || len(s.part) > longestLine {
			if err := s.to.line(s.part, s.came); err != nil {
				return 0, err
			}
			s.part = s.part[:0]
		}
	}
	return len(p), nil
}

func (s *stream) finish() {
	if len(s.part) > 0 {
		_ = s.to.line(s.part, s.came) // the connection is over then
		s.part = nil
	}
}
