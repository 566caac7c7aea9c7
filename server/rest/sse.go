package rest

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

// The header and the fields by which a caller of server-sent events goes on where its
// stream broke (HTML, section 9.2).
const (
	lastEventID  = "Last-Event-ID"
	stdoutOffset = "stdout_offset"
	stderrOffset = "stderr_offset"
	since        = "since" // as a string the ID of an event, or the cursor of an attempt
)

// sse are server-sent events. The ID of each is how much of both streams of a command was
// sent, that of an event of the host, or the cursor of an attempt to connect.
type sse struct{ stdout, stderr int64 }

func (*sse) kind() string { return "text/event-stream" }

func (s *sse) write(w io.Writer, m proto.Message, line []byte) error {
	id := ""
	switch e := m.(type) {
	case *caissonv1.ExecEvent:
		s.count(e)
		id = fmt.Sprintf("id: %d.%d\n", s.stdout, s.stderr)
	case *caissonv1.Event:
		if e.Id != "" {
			id = "id: " + e.Id + "\n"
		}
	case *caissonv1.TrafficResponse:
		if e.Cursor != "" {
			id = "id: " + e.Cursor + "\n"
		}
	}
	name := ""
	if m == nil {
		name = "event: error\n"
	}
	_, err := fmt.Fprintf(w, "%s%sdata: %s\n\n", id, name, line)
	return err
}

func (s *sse) count(e *caissonv1.ExecEvent) {
	if o := e.GetStdout(); o != nil {
		s.stdout = o.Offset + size(o)
	}
	if o := e.GetStderr(); o != nil {
		s.stderr = o.Offset + size(o)
	}
}

func size(o *caissonv1.Output) int64 { return int64(len(o.Data)+len(o.GetText())) + o.Skipped }

// newSSE begins to count where the request does.
func newSSE(request proto.Message) *sse {
	m := request.ProtoReflect()
	if fieldOf(m, stdoutOffset) == nil {
		return &sse{}
	}
	return &sse{stdout: m.Get(fieldOf(m, stdoutOffset)).Int(), stderr: m.Get(fieldOf(m, stderrOffset)).Int()}
}

// resume sets the offsets of a request that goes on with a stream. The header wins: a
// browser sends the first URL again.
func resume(request protoreflect.Message, r *http.Request) error {
	id := r.Header.Get(lastEventID)
	if f := fieldOf(request, since); id != "" && f != nil && f.Kind() == protoreflect.StringKind {
		request.Set(f, protoreflect.ValueOfString(id))
		return nil
	}
	if id == "" || fieldOf(request, stdoutOffset) == nil {
		return nil
	}
	out, errs, found := strings.Cut(id, ".")
	stdout, err := strconv.ParseInt(out, 10, 64)
	stderr, err2 := strconv.ParseInt(errs, 10, 64)
	if !found || err != nil || err2 != nil {
		return refuse("the header %s is %q: send the id of the last event", lastEventID, id)
	}
	request.Set(fieldOf(request, stdoutOffset), protoreflect.ValueOfInt64(stdout))
	request.Set(fieldOf(request, stderrOffset), protoreflect.ValueOfInt64(stderr))
	return nil
}
