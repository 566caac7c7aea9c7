package cli

import (
	"bytes"
	"testing"
	"unicode/utf8"
)

func TestScreenEscapes(t *testing.T) {
	for in, want := range screenTests {
		var got bytes.Buffer
		if n, err := (&screen{w: &got}).Write([]byte(in)); err != nil || n != len(in) {
			t.Errorf("%q: wrote %d, %v", in, n, err)
		}
		if got.String() != want {
			t.Errorf("%q is shown as %q, want %q", in, got.String(), want)
		}
	}
}

// However the text is cut into writes, plain text arrives whole and no control does.
func FuzzScreenCut(f *testing.F) {
	for in := range screenTests {
		f.Add([]byte(in), uint8(1))
		f.Add([]byte(in), uint8(2))
	}
	f.Fuzz(func(t *testing.T, in []byte, step uint8) {
		var got bytes.Buffer
		s := &screen{w: &got}
		for rest := in; len(rest) > 0; {
			n := min(len(rest), int(step)%5+1)
			if _, err := s.Write(rest[:n]); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		harmless := true
		for data := in; len(data) > 0; {
			r, size := utf8.DecodeRune(data)
			harmless = harmless && !isControl(r)
			data = data[size:]
		}
		if harmless && !bytes.Equal(got.Bytes(), in) {
			t.Errorf("%q is shown as %q", in, got.Bytes())
		}
		for data := got.Bytes(); len(data) > 0; {
			r, size := utf8.DecodeRune(data)
			if isControl(r) {
				t.Errorf("%q is shown as %q, with %U in it", in, got.Bytes(), r)
			}
			data = data[size:]
		}
	})
}

var screenTests = map[string]string{
	"plain\ttext\r\n":       "plain\ttext\r\n",
	"größe 日本 🙂":            "größe 日本 🙂",
	"\x1b]0;title\a":        `\x1b]0;title\x07`,
	"\x1b[31mred":           `\x1b[31mred`,
	"a\b\x7f\x00":           `a\x08\x7f\x00`,
	"csi \u009b2J":          `csi \u009b2J`,
	"a \u202egnp.exe\u2066": `a \u202egnp.exe\u2066`,
	"no UTF-8 \xe9\xff":     "no UTF-8 \xe9\xff",
}
