package mcp

import (
	"bufio"
	"bytes"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/caisson-run/caisson/tests/cost/bound"
)

// TestCost: no line of a client costs more than a request may.
func TestCost(t *testing.T) {
	const call = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":`
	fill := func(part string) string { return strings.Repeat(part, (bound.Size-1000)/len(part)) }
	for name, line := range map[string]string{
		"deep":            call + fill(`{"a":`),
		"deep list":       call + fill(`[`),
		"deep, whole":     call + strings.Repeat("[", 9000) + strings.Repeat("]", 9000) + "}",
		"no JSON":         fill("x"),
		"many fields":     call + "{" + fill(`"a":1,`) + `"a":1}}`,
		"same field":      `{"jsonrpc":"2.0",` + fill(`"id":1,`) + `"method":"a"}`,
		"batch":           "[" + fill(`{"jsonrpc":"2.0","method":"a"},`) + `{"jsonrpc":"2.0","method":"a"}]`,
		"empty batch":     "[" + fill(`{},`) + "{}]",
		"most of a batch": "[" + strings.Repeat(`{"jsonrpc":"2.0","method":"a"},`, maxBatch-1) + `{"jsonrpc":"2.0","method":"a"}]`,
		"quoted":          `["` + fill(`\\",{},[`) + `"]`,
		"numbers":         "[" + fill(`1,`) + "1]",
		"long text":       call + `"` + fill(`\u0001`) + `"}`,
		"long ID":         `{"jsonrpc":"2.0","method":"a","id":"` + fill("a") + `"}`,
		"empty lines":     fill("\n"),
	} {
		t.Run(name, func(t *testing.T) {
			bound.Check(t, len(line), func() {
				r, w := io.Pipe()
				l := &lineFilter{in: bufio.NewReaderSize(strings.NewReader(line), 64<<10), out: io.Discard, messages: w, open: map[any]bool{}}
				l.told = sync.NewCond(&l.mu)
				done := make(chan struct{})
				go func() { _, _ = io.Copy(io.Discard, r); close(done) }() // until the pipe is closed
				for err := error(nil); err == nil; {
					var text []byte
					if text, err = l.read(); len(bytes.TrimSpace(text)) > 0 {
						_ = l.take(bytes.TrimSpace(text)) // it may be refused
					}
				}
				_ = w.Close()
				<-done
			})
		})
	}
}

func TestCountElements(t *testing.T) {
	for text, want := range map[string]int{
		`[]`: 1, `[1]`: 1, `[1,2]`: 2, `[[1,2,3],{"a":1,"b":[1,2]}]`: 2, `["a,b\\",2]`: 2, `["a\",b"]`: 1, `[1,2,3,4,5,6]`: 5,
	} {
		if n := countElements([]byte(text), 4); n != want {
			t.Errorf("%s has %d elements, want %d", text, n, want)
		}
	}
}
