package execs

import (
	"errors"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
)

// defaultDetachKeys are Docker's.
const defaultDetachKeys = "ctrl-p,ctrl-q"

var (
	errDetached = errors.New("detached")
	errHungUp   = errors.New("the terminal was closed")
)

// parseDetachKeys reads a list of keys as Docker writes it: characters, and ctrl- with a
// letter or one of @ [ \ ] ^ _. Nothing is no keys.
func parseDetachKeys(s string) ([]byte, error) {
	if s == "" {
		return nil, nil
	}
	var keys []byte
	for _, key := range strings.Split(s, ",") {
		name, ctrl := strings.CutPrefix(key, "ctrl-")
		switch {
		case len(name) != 1 || name[0] <= ' ' || name[0] > '~':
			return nil, errDetachKeys(s)
		case !ctrl:
			keys = append(keys, name[0])
		case name[0] >= 'a' && name[0] <= 'z', name[0] >= '@' && name[0] <= '_' && !(name[0] >= 'A' && name[0] <= 'Z'):
			keys = append(keys, name[0]&0x1f)
		default:
			return nil, errDetachKeys(s)
		}
	}
	return keys, nil
}

func errDetachKeys(s string) error {
	return cli.Usage("--detach-keys: %q is not a list of keys, such as %s: each is a character, or ctrl- and one of a to z @ [ \\ ] ^ _", s, defaultDetachKeys)
}

// detacher is the input from a raw terminal, in which keys end the call. The first of them
// are held back until the next one tells. A raw terminal has no end but its own: that is
// not the end of the command's input.
type detacher struct {
	io.Reader
	keys  []byte
	leave func(error)

	matched int // of keys, held back
	over    error
}

// Read implements io.Reader. p has room for more than the keys.
func (d *detacher) Read(p []byte) (int, error) {
	if d.over != nil {
		leave := sync.OnceFunc(func() { d.leave(d.over) })
		time.AfterFunc(unreadPatience, leave)
		return 0, left{d.over, leave}
	}
	typed := make([]byte, len(p)-len(d.keys))
	n, err := d.Reader.Read(typed)
	out := p[:0]
	for _, b := range typed[:n] {
		if len(d.keys) > 0 && b == d.keys[d.matched] {
			if d.matched++; d.matched == len(d.keys) {
				d.over = errDetached
				break
			}
			continue
		}
		out = append(out, d.keys[:d.matched]...)
		if d.matched = 0; len(d.keys) > 0 && b == d.keys[0] {
			d.matched = 1
			continue
		}
		out = append(out, b)
	}
	if err != nil && d.over == nil {
		d.over = errHungUp
	}
	return len(out), nil // the next Read ends the call
}

// unreadPatience is how long what was typed before the keys is waited for, where the command
// does not read it.
const unreadPatience = time.Second

// left is an error of a detacher. The client calls Leave when it has sent what was read before.
type left struct {
	error
	leave func()
}

// Leave ends the call.
func (l left) Leave() { l.leave() }

func (l left) Unwrap() error { return l.error }
