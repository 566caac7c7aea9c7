package execs

import (
	"testing"
)

func TestTail(t *testing.T) {
	for text, want := range map[string]map[int]string{
		"":              {0: "", 1: "", 3: ""},
		"a\nb\nc\n":     {0: "", 1: "c\n", 2: "b\nc\n", 3: "a\nb\nc\n", 9: "a\nb\nc\n"},
		"a\nb\nc":       {0: "", 1: "c", 2: "b\nc"},
		"\n\n":          {1: "\n", 2: "\n\n"},
		"\x00€\n\nlast": {2: "\nlast"},
	} {
		for n, want := range want {
			whole, bit := &tail{lines: n}, &tail{lines: n}
			_, _ = whole.Write([]byte(text)) // never fails
			for i := range len(text) {
				_, _ = bit.Write([]byte{text[i]})
			}
			if string(whole.kept) != want || string(bit.kept) != want {
				t.Errorf("the last %d of %q: %q, bit by bit %q; want %q", n, text, whole.kept, bit.kept, want)
			}
		}
	}
}
