package initproto

import (
	"reflect"
	"testing"
)

func TestDecodeEnds(t *testing.T) {
	exited := Ended{EndsExited, 7, Encode(Exited{Exec: 7, Code: 3})}
	stdout := Ended{EndsStdout, 7, []byte("text")}
	whole := Ended{Kind: EndsWhole}
	file := func(list ...Ended) (b []byte) {
		for _, e := range list {
			b = AppendEnded(b, e)
		}
		return b
	}
	for name, tc := range map[string]struct {
		file  []byte
		want  []Ended
		whole bool
	}{
		"nothing":             {},
		"all":                 {file(exited, stdout, whole), []Ended{exited, stdout}, true},
		"no commands":         {file(whole), nil, true},
		"without its end":     {file(exited, stdout), []Ended{exited, stdout}, false},
		"cut in the data":     {file(exited, stdout)[:len(file(exited, stdout))-1], []Ended{exited}, false},
		"cut in a header":     {append(file(exited), 3, 7), []Ended{exited}, false},
		"more after its end":  {file(exited, whole, stdout), []Ended{exited}, false},
		"an unknown kind":     {file(exited, Ended{endsKindEnd, 7, nil}), []Ended{exited}, false},
		"no kind":             {file(Ended{0, 7, nil}, exited), nil, false},
		"no command":          {file(Ended{EndsStdout, 0, nil}), nil, false},
		"a size past the end": {append(file(exited), 2, 1, 0, 0, 0, 255, 255, 255, 255, 1), []Ended{exited}, false},
	} {
		got, whole := DecodeEnds(tc.file)
		if whole != tc.whole || len(got) != len(tc.want) || len(got) > 0 && !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s: %v, whole %v", name, got, whole)
		}
	}
}

func FuzzDecodeEnds(f *testing.F) {
	f.Add(AppendEnded(AppendEnded(nil, Ended{EndsStderr, 1, []byte("x")}), Ended{Kind: EndsWhole}))
	f.Fuzz(func(t *testing.T, b []byte) {
		entries, whole := DecodeEnds(b)
		var again []byte
		for _, e := range entries {
			again = AppendEnded(again, e)
		}
		if whole {
			again = AppendEnded(again, Ended{Kind: EndsWhole})
		}
		if len(again) > len(b) || string(again) != string(b[:len(again)]) || whole && len(again) != len(b) {
			t.Errorf("%x was read as %v", b, entries)
		}
	})
}
