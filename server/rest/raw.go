package rest

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"
	"unicode/utf16"

	"google.golang.org/protobuf/proto"

	"github.com/caisson-run/caisson/api/apijson"
	"github.com/caisson-run/caisson/api/sbxerr"
)

// raw writes the bytes of one field.
type raw struct {
	w       http.ResponseWriter
	control *http.ResponseController
	path    []string // of the field
	begun   bool
	gap     error // why no more is written
}

func newRaw(w http.ResponseWriter, to *route) *raw {
	return &raw{w: w, control: http.NewResponseController(w), path: strings.Split(to.Response, ".")}
}

// fileHeader has what is known of a file beside its bytes: JSON in printable ASCII, as names
// may hold what HTTP clients take in no header (RFC 9110, 5.5).
const fileHeader = "Caisson-File"

// asciiJSON writes what is not printable ASCII as escapes. That is in strings alone.
func asciiJSON(line []byte) string {
	var b strings.Builder
	for _, r := range string(line) {
		switch {
		case r < 0x7f:
			b.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

func (a *raw) send(message proto.Message) error {
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
		a.w.Header().Set(fileHeader, asciiJSON(apijson.Marshal(m.Get(f).Message().Interface())))
		return nil
	}
	a.begin()
	if _, err := a.w.Write(m.Get(fieldOf(m, a.path[len(a.path)-1])).Bytes()); err != nil {
		return err
	}
	return a.control.Flush()
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
