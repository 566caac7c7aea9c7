package mcp

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/caisson-run/caisson/api"
)

// window keeps the beginning and the end of what a stream brought since it was last taken.
type window struct {
	mu    sync.Mutex
	limit int64
	kept  *api.Kept
	total int64
	line  []byte // the last one, as far as it came
}

func newWindow(limit int64) *window { return &window{limit: limit, kept: api.NewKept(limit)} }

// maxLine bounds the last line that is shown of a stream, in bytes.
const maxLine = 200

// Write implements io.Writer.
func (w *window) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.total += int64(len(p))
	rest := bytes.TrimRight(p, "\n")
	if i := bytes.LastIndexByte(rest, '\n'); i >= 0 {
		w.line, rest = w.line[:0], rest[i+1:]
	}
	w.line = append(w.line, rest[:min(len(rest), max(0, maxLine-len(w.line)))]...)
	return w.kept.Write(p)
}

// Skip implements [api.Skipper].
func (w *window) Skip(n int64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.total += n
	return w.kept.Skip(n)
}

// progress is how much came in all, and the last line.
func (w *window) progress() (total int64, line string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.total, strings.ToValidUTF8(string(w.line), "�")
}

// piece is a part of a stream as a model gets it.
type piece struct {
	text  string
	bytes int64 // of the part, also those that are left out
	cut   bool
}

// take returns what came since the last call. more tells where the whole can be read.
func (w *window) take(more string) piece {
	w.mu.Lock()
	defer w.mu.Unlock()
	kept, skipped := w.kept.Bytes(0)
	w.kept = api.NewKept(w.limit)
	p := piece{bytes: int64(len(kept)) + skipped, cut: skipped > 0}
	if !p.cut {
		p.text = strings.ToValidUTF8(string(kept), "�")
		return p
	}
	head := min(int64(len(kept)), w.limit-w.limit/2)
	mark := fmt.Sprintf("\n… %d bytes left out%s …\n", skipped, more)
	p.text = valid(kept[:head]) + mark + valid(kept[head:])
	return p
}

// valid is a text whose first and last character may be cut.
func valid(b []byte) string {
	for n := 0; n < utf8.UTFMax && len(b) > 0 && !utf8.RuneStart(b[0]); n++ {
		b = b[1:]
	}
	for n := 1; n < utf8.UTFMax && n <= len(b); n++ {
		if last := b[len(b)-n:]; utf8.RuneStart(last[0]) {
			if !utf8.FullRune(last) {
				b = b[:len(b)-n]
			}
			break
		}
	}
	return strings.ToValidUTF8(string(b), "�")
}
