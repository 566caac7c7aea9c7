package pid1

import (
	"testing"

	"github.com/caisson-run/caisson/initproto"
	"github.com/caisson-run/caisson/tests/cost/bound"
)

// TestCost: what a PID 1 leaves of its commands costs no more than a request may.
func TestCost(t *testing.T) {
	for name, one := range map[string]func(n int) initproto.Ended{
		"one command":   func(int) initproto.Ended { return initproto.Ended{Kind: initproto.EndsStdout, Exec: 1} },
		"many commands": func(n int) initproto.Ended { return initproto.Ended{Kind: initproto.EndsStdout, Exec: uint32(n + 1)} },
		"with output": func(n int) initproto.Ended {
			return initproto.Ended{Kind: initproto.EndsStderr, Exec: uint32(n + 1), Data: []byte{'a'}}
		},
		"in turns": func(n int) initproto.Ended {
			return initproto.Ended{Kind: initproto.EndsStderr, Exec: uint32(n%2 + 1), Data: []byte("0123456789")}
		},
	} {
		t.Run(name, func(t *testing.T) {
			var b []byte
			for n := 0; len(b) < initproto.EndsSize-64; n++ {
				b = initproto.AppendEnded(b, one(n))
			}
			bound.Check(t, len(b), func() { _, _ = DecodeEnds(b) })
		})
	}
}
