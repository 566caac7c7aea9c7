package rest

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"

	"google.golang.org/protobuf/proto"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/server/strictjson"
)

// raw writes the bytes of one field.
type raw struct {
	w       http.ResponseWriter
	control *http.ResponseController
	path    []string // of the field
	from    int64    // where the caller begins, of output
	begun   bool
	gap     error // why no more is written
}

func newRaw(w http.ResponseWriter, to *route, first requests) *raw {
	a := &raw{w: w, control: http.NewResponseController(w), path: strings.Split(to.Response, ".")}
	if one, ok := first.(*oneRequest); ok {
		if f := fieldOf(one.m.ProtoReflect(), a.path[0]+"_offset"); f != nil {
			a.from = one.m.ProtoReflect().Get(f).Int()
		}
	}
	return a
}

// fileHeader has what is known of a file beside its bytes.
const fileHeader = "Caisson-File"

func (a *raw) send(message proto.Message) error {
	if e, ok := message.(*caissonv1.ExecEvent); ok && e.GetStarted() != nil && a.written(e.GetStarted().GetExec()) <= a.from {
		a.begin() // there is nothing yet, so nothing is missing: the caller need not wait for it
		return a.control.Flush()
	}
	m := message.ProtoReflect()
	for _, name := range a.path[:len(a.path)-1] {
		f := fieldOf(m, name)
		if !m.Has(f) {
			return nil // another stream of the command, or its end
		}
		m = m.Get(f).Message()
	}
	if a.gap == nil {
		a.gap = refuseGap(m.Interface(), a.path[0])
	}
	if a.gap != nil {
		return a.gap
	}
	if f := fieldOf(m, "file"); f != nil && m.Has(f) {
		line, err := strictjson.Marshal(m.Get(f).Message().Interface())
		if err != nil {
			return sbxerr.Wrap(sbxerr.Internal, "rest.answer", err)
		}
		a.w.Header().Set(fileHeader, string(line))
		return nil
	}
	a.begin()
	if _, err := a.w.Write(m.Get(fieldOf(m, a.path[len(a.path)-1])).Bytes()); err != nil {
		return err
	}
	return a.control.Flush()
}

// written is how much there is of the stream.
func (a *raw) written(e *caissonv1.Exec) int64 {
	if a.path[0] == "stderr" {
		return e.GetStderrBytes()
	}
	return e.GetStdoutBytes()
}

// refuseGap refuses to go on where bytes are missing: raw bytes cannot tell it.
func refuseGap(m proto.Message, stream string) error {
	o, ok := m.(interface {
		GetOffset() int64
		GetSkipped() int64
	})
	if !ok || o.GetSkipped() == 0 {
		return nil
	}
	err := fmt.Errorf("the bytes of %s from %d to %d are no longer kept", stream, o.GetOffset(), o.GetOffset()+o.GetSkipped()-1)
	return sbxerr.WithRemedy(sbxerr.OutputLost, "rest.answer", err,
		fmt.Sprintf("go on with %s_offset=%d, or read the route …/output, which tells gaps", stream, o.GetOffset()+o.GetSkipped()))
}

func (a *raw) begin() {
	if a.begun {
		return
	}
	a.begun = true
	a.w.Header().Set("Content-Type", "application/octet-stream")
	a.w.WriteHeader(http.StatusOK)
}

// end breaks the connection after an error in the middle: an end of the body would say
// that it is whole.
func (a *raw) end(trailer http.Header, err error) {
	err = cmp.Or(a.gap, err) // the call's own error says that a write failed
	switch {
	case err != nil && !a.begun:
		writeError(a.w, err)
	case err != nil:
		panic(http.ErrAbortHandler)
	default:
		a.begin()
		sendTrailer(a.w, trailer)
	}
}

func sendTrailer(w http.ResponseWriter, trailer http.Header) {
	for name, values := range trailer {
		w.Header()[http.TrailerPrefix+name] = values
	}
}
