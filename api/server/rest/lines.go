package rest

import (
	"io"
	"net/http"

	"google.golang.org/protobuf/proto"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/server/strictjson"
	"github.com/caisson-run/caisson/sbxerr"
)

// lines writes one JSON object for each answer.
type lines struct {
	w       http.ResponseWriter
	control *http.ResponseController
	form    lineForm
	begun   bool
}

// lineForm is how a line is framed.
type lineForm interface {
	kind() string
	// write writes the answer m, whose JSON is line.
	write(w io.Writer, m proto.Message, line []byte) error
}

func newLines(w http.ResponseWriter, form lineForm) *lines {
	return &lines{w: w, control: http.NewResponseController(w), form: form}
}

func (a *lines) send(message proto.Message) error {
	for _, m := range readable(message) {
		line, err := lineOf(m)
		if err != nil {
			return sbxerr.Wrap(sbxerr.Internal, "rest.answer", err)
		}
		if err := a.write(m, line); err != nil {
			return err
		}
	}
	return a.control.Flush()
}

// lineOf is m as JSON. Output, of which there is much, is written without protojson, which
// takes eight times as long.
func lineOf(m proto.Message) ([]byte, error) {
	e, _ := m.(*caissonv1.ExecEvent)
	if o := e.GetStdout(); o != nil {
		return outputLine("stdout", o), nil
	}
	if o := e.GetStderr(); o != nil {
		return outputLine("stderr", o), nil
	}
	return strictjson.Marshal(m)
}

func (a *lines) write(m proto.Message, line []byte) error {
	if !a.begun {
		a.begun = true
		a.w.Header().Set("Content-Type", a.form.kind())
		a.w.WriteHeader(http.StatusOK)
	}
	return a.form.write(a.w, m, line)
}

func (a *lines) end(trailer http.Header, err error) {
	switch {
	case err != nil && !a.begun:
		writeError(a.w, err)
		return
	case err != nil:
		_ = a.write(nil, errorJSON(api.Explain(err))) // a caller that has gone needs no answer
	case !a.begun:
		a.w.Header().Set("Content-Type", a.form.kind())
		a.w.WriteHeader(http.StatusOK)
	}
	sendTrailer(a.w, trailer)
}

// ndjson is one object on each line.
type ndjson struct{}

func (ndjson) kind() string { return "application/x-ndjson" }

func (ndjson) write(w io.Writer, _ proto.Message, line []byte) error {
	_, err := w.Write(append(line, '\n'))
	return err
}
