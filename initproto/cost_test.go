package initproto

import (
	"bytes"
	"testing"

	"github.com/caisson-run/caisson/tests/cost/bound"
)

// TestCost: no payload costs more than a request may.
func TestCost(t *testing.T) {
	tail := make([]byte, 64)
	count := func(n int) []byte { e := encoder{}; e.u32(uint32(n)); return e.b }
	for name, b := range map[string][]byte{
		"empty arguments": append(count(MaxPayload/4-32), make([]byte, MaxPayload-4)...),
		"short arguments": append(append(count((MaxPayload-100)/5), bytes.Repeat([]byte{1, 0, 0, 0, 'a'}, (MaxPayload-100)/5)...), tail...),
		"many groups":     append(append([]byte{1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, count(MaxPayload/4-64)...), make([]byte, MaxPayload-200)...),
		"promised":        append(count(1<<32-1), make([]byte, MaxPayload-4)...),
	} {
		t.Run(name, func(t *testing.T) {
			bound.Check(t, len(b), func() { _, _ = DecodePayload(b) }) // it may be refused
		})
	}
}
