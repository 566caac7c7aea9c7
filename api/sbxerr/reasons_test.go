package sbxerr

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestReasons(t *testing.T) {
	var r Reasons
	if r.Add(nil); r.Err() != nil {
		t.Errorf("no reason: %v", r.Err())
	}
	for i := range 1000 {
		r.Add(New(Limits, "a.b", "reason %d", i))
	}
	err := r.Err()
	if lines := strings.Split(err.Error(), "\n"); len(lines) != maxReasons+1 || lines[maxReasons] != "and 984 more" {
		t.Errorf("%d lines: %v", len(lines), err)
	}
	if Of(err) != Limits || !errors.Is(err, Limits) {
		t.Errorf("the code is %s", Of(err))
	}
	r = Reasons{}
	for range maxReasons {
		r.Add(errors.New("x"))
	}
	if strings.Contains(r.Err().Error(), "more") {
		t.Errorf("all are told: %v", r.Err())
	}
}

func TestClip(t *testing.T) {
	short := strings.Repeat("x", maxQuoted)
	if Clip(short) != short || Clip("") != "" {
		t.Errorf("%q, %q", Clip(short), Clip(""))
	}
	for _, long := range []string{short + "y", strings.Repeat("é", 1<<20), "a" + strings.Repeat("é", 1<<20), strings.Repeat("\x80", 300)} {
		got := Clip(long)
		if len(got) > maxQuoted || !strings.HasSuffix(got, "…") || utf8.ValidString(long) && !utf8.ValidString(got) {
			t.Errorf("%.10q: %q", long, got)
		}
	}
	if got := fmt.Sprintf("%q", ClipTo("abcdef", 5)); got != `"ab…"` {
		t.Errorf("%s", got)
	}
}
