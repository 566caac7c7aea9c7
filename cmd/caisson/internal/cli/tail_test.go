package cli

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/server/servertest"
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

// What is left out counts in the offset from which on the rest is followed.
func TestLogsTail(t *testing.T) {
	f := &servertest.Fake{OnLogs: func(_ context.Context, _ string, o runtime.LogOptions, stdout, stderr io.Writer) error {
		text := "one\ntwo\nthree\n"
		if o.Follow {
			text += "four\n"
		}
		_, err := io.WriteString(stdout, text[o.StdoutOffset:])
		return err
	}}
	for line, want := range map[string]string{
		"logs --tail 2 box": "two\nthree\n", "logs -n 1 -f box": "three\nfour\n", "logs --tail all box": "one\ntwo\nthree\n", "logs --tail 0 box": "",
	} {
		if code, got, stderr := invoke(t, f, "", strings.Fields(line)...); code != 0 || got != want {
			t.Errorf("%s: %d, %q, %s", line, code, got, stderr)
		}
	}
	for line, want := range map[string]string{
		"logs --tail x box": "not a number of lines", "logs --tail -1 box": "not a number", "logs --since -5m box": "neither a time such as", "logs --since= box": "--since is empty",
		"logs --json --tail 1 box": "excludes --json", "logs --offset 1 --tail 1 box": "offsets",
	} {
		if code, _, stderr := invoke(t, f, "", strings.Fields(line)...); code != exitRuntime || !strings.Contains(stderr, want) {
			if _, out, _ := invoke(t, f, "", strings.Fields(line)...); !strings.Contains(out, want) { // --json
				t.Errorf("%s: %d, %s", line, code, stderr)
			}
		}
	}
}
