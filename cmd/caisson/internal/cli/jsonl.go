package cli

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/caisson-run/caisson/api"
)

// streamFormat is how a foreground command is told as it goes on.
type streamFormat string

const StreamJSONL streamFormat = "jsonl"

// String, Set and Type implement pflag.Value.
func (f *streamFormat) String() string { return string(*f) }

func (f *streamFormat) Set(s string) error {
	if s != string(StreamJSONL) {
		return fmt.Errorf("it is not a format, use %s", StreamJSONL)
	}
	*f = StreamJSONL
	return nil
}

func (f *streamFormat) Type() string { return "format" }

type errorLine struct {
	Error *api.Error `json:"error"`
}

// Jsonl writes one object per line, each in one write.
type Jsonl struct{ e *json.Encoder }

func NewJSONL(w io.Writer) Jsonl {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return Jsonl{e}
}

func (j Jsonl) Line(v any) error { return j.e.Encode(v) }
