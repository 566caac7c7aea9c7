package pid1

import (
	"testing"

	"github.com/caisson-run/caisson/initproto"
)

// PID 1 is hostile: of what is not well made, nothing counts, nor what follows.
func TestDecodeEnds(t *testing.T) {
	exited := func(number, of uint32) initproto.Ended {
		return initproto.Ended{Kind: initproto.EndsExited, Exec: number, Data: initproto.Encode(initproto.Exited{Exec: of, Code: 3})}
	}
	out := initproto.Ended{Kind: initproto.EndsStdout, Exec: 1, Data: []byte("text")}
	whole := initproto.Ended{Kind: initproto.EndsWhole}
	for name, tc := range map[string]struct {
		entries []initproto.Ended
		ended   bool
		stdout  string
		whole   bool
	}{
		"all":                    {[]initproto.Ended{exited(1, 1), out, out, whole}, true, "texttext", true},
		"no end":                 {[]initproto.Ended{out, whole}, false, "text", true},
		"the end of another":     {[]initproto.Ended{out, exited(1, 2), out, whole}, false, "text", false},
		"two ends":               {[]initproto.Ended{exited(1, 1), exited(1, 1), out, whole}, true, "", false},
		"another message":        {[]initproto.Ended{{Kind: initproto.EndsExited, Exec: 1, Data: initproto.Encode(initproto.Hello{PID: 1})}, out}, false, "", false},
		"no message":             {[]initproto.Ended{{Kind: initproto.EndsExited, Exec: 1}, out}, false, "", false},
		"output without its end": {[]initproto.Ended{out}, false, "text", false},
	} {
		var file []byte
		for _, e := range tc.entries {
			file = initproto.AppendEnded(file, e)
		}
		commands, whole := DecodeEnds(file)
		got := commands[1]
		if whole != tc.whole || (got.Exit != nil) != tc.ended || string(got.Stdout) != tc.stdout || got.Exit != nil && got.Exit.Code != 3 {
			t.Errorf("%s: %+v, whole %v", name, got, whole)
		}
	}
}
