package execs

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"github.com/caisson-run/caisson/api/sbxerr"
)

func TestParseDetachKeys(t *testing.T) {
	for text, want := range map[string]string{"": "", "ctrl-p,ctrl-q": "\x10\x11", "a": "a", "ctrl-@,x,ctrl-_": "\x00x\x1f"} {
		if got, err := parseDetachKeys(text); err != nil || string(got) != want {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
	for _, text := range []string{"ctrl-", "ctrl-P", "ctrl-1", "ab", ",", "ctrl-p,", "é", "\x10"} {
		if got, err := parseDetachKeys(text); sbxerr.Of(err) != sbxerr.APIUsage {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
}

// What is typed comes through but for the keys that end the call, also where they come
// one by one; and the end of the terminal is never that of the input.
func TestDetacher(t *testing.T) {
	for typed, want := range map[string]struct {
		passed string
		cause  error
	}{
		"ls\n\x10\x11more":   {"ls\n", errDetached},
		"a\x10b\x10\x10\x11": {"a\x10b\x10", errDetached},
		"\x11\x10":           {"\x11", errHungUp},
		"":                   {"", errHungUp},
	} {
		for name, r := range map[string]io.Reader{"at once": bytes.NewReader([]byte(typed)), "one by one": iotest.OneByteReader(bytes.NewReader([]byte(typed)))} {
			var cause error
			d := &detacher{Reader: r, keys: []byte("\x10\x11"), leave: func(err error) { cause = err }}
			got, err := io.ReadAll(d)
			if l := (left{}); errors.As(err, &l) {
				l.Leave()
			}
			if string(got) != want.passed || !errors.Is(err, want.cause) || !errors.Is(cause, want.cause) {
				t.Errorf("%q %s: %q, %v, %v", typed, name, got, err, cause)
			}
		}
	}
}
