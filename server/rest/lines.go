package rest

import (
	"io"
	"net/http"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/caisson-run/caisson/api/apijson"
)

// lines writes one JSON object for each answer.
type lines struct {
	w       http.ResponseWriter
	control *http.ResponseController
	form    lineForm

	mu    sync.Mutex
	timer *time.Timer
	begun bool
	ended bool
}

// headerDelay is when the status goes out although there is no answer yet. A call that
// cannot succeed has failed by then.
const headerDelay = 500 * time.Millisecond

// lineForm is how a line is framed.
type lineForm interface {
	kind() string
	// write writes the answer m, whose JSON is line.
	write(w io.Writer, m proto.Message, line []byte) error
}

func newLines(w http.ResponseWriter, form lineForm) *lines {
	a := &lines{w: w, control: http.NewResponseController(w), form: form}
	a.timer = time.AfterFunc(headerDelay, a.hurry)
	return a
}

// hurry sends the header alone.
func (a *lines) hurry() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.begun && !a.ended {
		a.beginLocked()
		_ = a.control.Flush() // the next write says that the caller has gone
	}
}

func (a *lines) send(message proto.Message) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, m := range apijson.Readable(message) {
		if err := a.writeLocked(m, apijson.Marshal(m)); err != nil {
			return err
		}
	}
	return a.control.Flush()
}

func (a *lines) beginLocked() {
	if !a.begun {
		a.begun = true
		a.w.Header().Set("Content-Type", a.form.kind())
		a.w.WriteHeader(http.StatusOK)
	}
}

func (a *lines) writeLocked(m proto.Message, line []byte) error {
	a.beginLocked()
	return a.form.write(a.w, m, line)
}

func (a *lines) end(trailer http.Header, err error) {
	a.timer.Stop()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended = true
	switch {
	case err != nil && !a.begun:
		writeError(a.w, err)
		return
	case err != nil:
		_ = a.writeLocked(nil, errorJSON(named(a.w, err))) // a caller that has gone needs no answer
	default:
		a.beginLocked()
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
