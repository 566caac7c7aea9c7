package tokens

import (
	"bytes"
	"encoding/json"
	"io"
)

// MaxAsked is the longest request that Ask may get, in bytes.
const MaxAsked = 4 << 20

// Ask has a request for a stream of chat completions ask for the usage, which is told only then.
// It returns the request as it was, and false, if that asks already, or for no stream.
func Ask(request []byte) ([]byte, bool) {
	var members map[string]json.RawMessage
	var stream bool
	if json.Unmarshal(request, &members) != nil || json.Unmarshal(members["stream"], &stream) != nil || !stream {
		return request, false
	}
	var options map[string]json.RawMessage
	if had := members["stream_options"]; had != nil && json.Unmarshal(had, &options) != nil || options["include_usage"] != nil {
		return request, false
	}
	if options == nil {
		options = map[string]json.RawMessage{}
	}
	options["include_usage"] = json.RawMessage("true")
	text, err := json.Marshal(options)
	if err != nil {
		return request, false
	}
	members["stream_options"] = text
	if text, err = json.Marshal(members); err != nil {
		return request, false
	}
	return text, true
}

// maxEvent is the longest event that is looked at whole.
const maxEvent = 256 << 10

// Unasked leaves out of a stream the event that came because of Ask, since clients that did not
// ask may not expect one without a choice. Each event passes when it is whole.
func Unasked(from io.Reader) io.Reader { return &unasked{from: from, buf: make([]byte, 32<<10)} }

type unasked struct {
	from  io.Reader
	buf   []byte
	event []byte // that is not whole
	ready []byte
	err   error
	line  int  // bytes of the line that is not whole
	long  bool // the event is too long to be looked at
}

// Read returns whole events.
func (u *unasked) Read(p []byte) (int, error) {
	for len(u.ready) == 0 {
		if u.err != nil {
			return 0, u.err
		}
		n, err := u.from.Read(u.buf)
		if u.take(u.buf[:n]); err != nil {
			u.err = err
			u.ready, u.event = append(u.ready, u.event...), nil
		}
	}
	n := copy(p, u.ready)
	if u.ready = u.ready[n:]; len(u.ready) == 0 {
		u.ready = nil
	}
	return n, nil
}

func (u *unasked) take(p []byte) {
	for len(p) > 0 {
		part := p
		if n := bytes.IndexByte(p, '\n'); n >= 0 {
			part = p[:n+1]
		}
		p = p[len(part):]
		u.event = append(u.event, part...)
		text := bytes.TrimSuffix(part, []byte("\n"))
		u.line += len(bytes.TrimSuffix(text, []byte("\r")))
		ends := len(text) < len(part)
		whole := ends && u.line == 0
		if ends {
			u.line = 0
		}
		if !whole && !u.long && len(u.event) <= maxEvent {
			continue
		}
		if u.long || !whole || !onlyUsage(u.event) {
			u.ready = append(u.ready, u.event...)
		}
		u.long, u.event = !whole, u.event[:0]
	}
}

// onlyUsage reports whether an event of chat completions has a usage and no choice.
func onlyUsage(event []byte) bool {
	data, found := bytes.CutPrefix(bytes.TrimSpace(event), []byte(prefix))
	if !found || !bytes.Contains(data, []byte(`"usage"`)) {
		return false
	}
	var chunk struct {
		Choices []json.RawMessage `json:"choices"`
		Usage   *struct{}         `json:"usage"`
	}
	return json.Unmarshal(data, &chunk) == nil && chunk.Choices != nil && len(chunk.Choices) == 0 && chunk.Usage != nil
}
