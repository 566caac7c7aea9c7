package unified

import (
	"testing"
	"time"

	"github.com/caisson-run/caisson/rootfs/patch"
)

// Names are quoted as git quotes them, and where git apply needs it.
func TestQuoted(t *testing.T) {
	for name, want := range map[string]string{
		"a": "a", "a b": "a b", "a\tb": `"a\011b"`, "a\nb": `"a\012b"`, `a"b\c`: `"a\"b\\c"`, "ü": `"\303\274"`, "\xff": `"\377"`, "\x7f": `"\177"`, "a /b": `"a /b"`,
	} {
		if got := quoted(name); got != want {
			t.Errorf("%q: %s, want %s", name, got, want)
		}
	}
}

// What is not compared in time, or does not fit, is left out. The same file is shown before.
func TestOutOfTime(t *testing.T) {
	f := patch.File{New: &patch.Side{Name: []byte("link"), Mode: patch.ModeLink, Link: []byte("to")}}
	m := maker{until: time.Now().Add(time.Hour)}
	if text, left := m.one(0, f); text == "" || left != 0 {
		t.Errorf("%q, %v", text, left)
	}
	m.until = time.Now().Add(-time.Second)
	if text, left := m.one(0, f); text != "" || left != patch.TooSlow {
		t.Errorf("out of time: %q, %v", text, left)
	}
}
