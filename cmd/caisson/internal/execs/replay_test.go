package execs

import (
	"bytes"
	"testing"
)

// A terminal answers queries. Those of earlier output are left out, wherever a write ends.
func TestReplay(t *testing.T) {
	for earlier, want := range map[string]string{
		"plain\r\n":                             "plain\r\n",
		"\x1b[31mred\x1b[0m \x1b]0;title\x07x":  "\x1b[31mred\x1b[0m \x1b]0;title\x07x",
		"\x1b[?1049h\x1b[2;1H\x1b[K\x1b(B\x1b=": "\x1b[?1049h\x1b[2;1H\x1b[K\x1b(B\x1b=",
		"a\x1b[cb\x1b[>0cc\x1b[6nd\x1b[?6n":     "abcd",
		"\x1b]11;?\x1b\\x\x1b]10;?\ay":          "xy",
		"\x1b]52;c;?\a\x1b]4;1;?\a":             "",
		"\x1bP$qm\x1b\\\x1bP+q544e\x1b\\":       "",
		"\x1b[?2026$p\x1b[>q\x1b[?u\x1b[x":      "",
		"\x1b[14t\x1b[18t\x1b[21t\x1b[8;24;80t": "\x1b[8;24;80t",
		"\x1b[22;0t\x1b[23;0t\x1b[u\x1b[2 q":    "\x1b[22;0t\x1b[23;0t\x1b[u\x1b[2 q",
		"\x05\x1bZ\x1b_Gi=31,a=q;AAAA\x1b\\":    "",
		"\x1b[!p\x1b[3S\x1b[?1;1S":              "\x1b[!p\x1b[3S",
	} {
		const later = "\x1b[6n"
		text := earlier + later
		want += later
		for size := 1; size <= len(text); size++ {
			var b bytes.Buffer
			r := &replay{Writer: &b, until: int64(len(earlier))}
			for rest := []byte(text); len(rest) > 0; rest = rest[min(size, len(rest)):] {
				if n, err := r.Write(rest[:min(size, len(rest))]); err != nil || n != min(size, len(rest)) {
					t.Fatal(n, err)
				}
			}
			if b.String() != want {
				t.Errorf("%q in writes of %d: %q, want %q", text, size, b.String(), want)
			}
		}
	}
}

// The tail of an output may begin in the middle of a control sequence.
func TestReplayBeginsWhole(t *testing.T) {
	var b bytes.Buffer
	r := &replay{Writer: &b, at: 9, until: 100, torn: true}
	_, _ = r.Write([]byte("1;2m half a line\r\nnext\x1b[6n"))
	_ = r.Skip(7)
	_, _ = r.Write([]byte("5H\x1b[1mbold"))
	if b.String() != "\nnext\x1b[1mbold" {
		t.Errorf("%q", b.String())
	}
	long := "\x1b]8;;" + string(bytes.Repeat([]byte("x"), longestQuery)) + "?\a"
	b.Reset()
	r = &replay{Writer: &b, until: 1 << 20}
	_, _ = r.Write([]byte(long + "y"))
	if b.String() != long+"y" {
		t.Errorf("%d bytes of a long sequence, want %d", b.Len(), len(long)+1)
	}
}
