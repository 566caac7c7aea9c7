package cli

import (
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/caisson-run/caisson/api/apijson"
)

// Message is a message of the API for encoding/json: in the JSON of plain HTTP, but for
// documents, which are JSON here and not base64. For a template, what is absent is null.
type Message struct {
	message proto.Message
	form    apijson.Form
}

// Message makes one of m.
func (a *App) Message(m proto.Message) Message {
	return Message{m, apijson.Form{Nulls: a.template, Documents: true}}
}

// MarshalJSON implements json.Marshaler.
func (m Message) MarshalJSON() ([]byte, error) { return m.form.Append(nil, m.message), nil }

// Messages makes a list of them, which is never null.
func Messages[T proto.Message](a *App, list []T) []Message {
	return Each(list, func(m T) Message { return a.Message(m) })
}

// Each translates a list; the result is never null.
func Each[A, B any](list []A, one func(A) B) []B {
	out := make([]B, 0, len(list))
	for _, a := range list {
		out = append(out, one(a))
	}
	return out
}

// Milliseconds is a duration in a table. Some commands take no whole millisecond.
func Milliseconds(d *durationpb.Duration) float64 {
	return float64(d.AsDuration().Round(time.Microsecond)) / float64(time.Millisecond)
}
