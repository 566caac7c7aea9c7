package secret

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// The bounds of a value, in bytes. A shorter one could not be masked: it may be part of
// any text.
const (
	Least = 8
	Most  = 8 << 10
)

// MaxName bounds the name of a secret, in bytes.
const MaxName = 64

// keepReleased is how long a replaced value stays in memory after its last use. A connection
// that sent it may refer to it as long as it is idle.
const keepReleased = 2 * time.Minute

// CheckName refuses what is no name of a secret, with code sbxerr.Secret.
func CheckName(name string) error {
	if name == "" || len(name) > MaxName || strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") != "" {
		return sbxerr.WithRemedy(sbxerr.Secret, "secret.name", fmt.Errorf("%q is no name of a secret", sbxerr.Clip(name)),
			fmt.Sprintf("use letters, digits, dots, hyphens and underscores, at most %d", MaxName))
	}
	return nil
}

// Store holds the secrets of a process. What holds values is behind functions, because fmt
// shows what pointers lead to if the verb is not one for pointers.
type Store struct {
	arena func() *arena
	keep  time.Duration

	mu      sync.Mutex
	current map[string]Value
}

// NewStore takes the memory for secrets. It must be called while the process may still map
// and lock memory.
func NewStore() (*Store, error) {
	a, err := newArena()
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.Gateway, "secret.store", fmt.Errorf("lock memory for secrets: %w", err))
	}
	return &Store{arena: func() *arena { return a }, keep: keepReleased, current: map[string]Value{}}, nil
}

// Protection is how the memory of the secrets is protected.
func (s *Store) Protection() Protection { return s.arena().protection }

// Set reads the values of secrets by name, each to its end, and keeps of the others those that
// are named. A line end after a value does not count. The error names those that are no values,
// and shows nothing of them; its code is sbxerr.Secret, and all is as it was. Requests that use a
// value go on with it.
func (s *Store) Set(values map[string]io.Reader, kept ...string) error {
	next := map[string]Value{}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(values)) {
		v, err := s.valueOf(name, values[name])
		if err != nil {
			errs = append(errs, err)
			continue
		}
		next[name] = v
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(errs) > 0 {
		for _, v := range next { // nobody has seen one
			v.of().free()
		}
		return errors.Join(errs...)
	}
	for _, name := range kept {
		if v, ok := s.current[name]; ok && next[name].of == nil {
			next[name] = v
			delete(s.current, name)
		}
	}
	for _, v := range s.current {
		v.of().replaced = true
		s.dropLocked(v.of())
	}
	s.current = next
	return nil
}

// Try returns the error that Set would return for one secret, and keeps nothing of it.
func (s *Store) Try(name string, value io.Reader) error {
	v, err := s.valueOf(name, value)
	if err == nil {
		v.of().free()
	}
	return err
}

func (s *Store) valueOf(name string, r io.Reader) (Value, error) {
	if err := CheckName(name); err != nil {
		return Value{}, err
	}
	v, err := s.read(name, r)
	if err != nil {
		return Value{}, sbxerr.WithRemedy(sbxerr.Secret, "secret.set", fmt.Errorf("secret %q: %w", name, err),
			fmt.Sprintf("give one line of %d to %d printable ASCII characters", Least, Most))
	}
	return Value{func() *version { return v }}, nil
}

// Use returns the value of name, which the caller releases. A nil Store has none.
func (s *Store) Use(name string) (Value, bool) {
	if s == nil {
		return Value{}, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.current[name]
	if v.of == nil {
		return Value{}, false
	}
	v.of().uses++
	return v, true
}

// Current reports whether v is what Use would return.
func (s *Store) Current(v Value) bool {
	if s == nil || v.of == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.current[v.of().name]
	return now.of != nil && now.of() == v.of()
}

// Close zeroes and unmaps all values. Nothing may use any of them.
func (s *Store) Close() error { return s.arena().close() }

// read takes a value over from r without a copy on the heap.
func (s *Store) read(name string, r io.Reader) (*version, error) {
	buffer, err := s.arena().take(Most + len("\r\n") + 1)
	if err != nil {
		return nil, err
	}
	defer s.arena().give(buffer)
	n, err := io.ReadFull(r, buffer)
	switch {
	case err == nil:
		return nil, fmt.Errorf("the value is longer than %d bytes", Most)
	case !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
		return nil, fmt.Errorf("the value cannot be read: %w", err)
	}
	value := trimLineEnd(buffer[:n])
	if err := check(value); err != nil {
		return nil, err
	}
	return newVersion(s, name, value)
}

func trimLineEnd(b []byte) []byte {
	if n := len(b); n > 0 && b[n-1] == '\n' {
		b = b[:n-1]
		if n := len(b); n > 0 && b[n-1] == '\r' {
			b = b[:n-1]
		}
	}
	return b
}

// check says what is wrong with value without showing it.
func check(value []byte) error {
	switch {
	case len(value) == 0:
		return errors.New("the value is empty")
	case len(value) < Least:
		return fmt.Errorf("the value has fewer than %d bytes, so it could not be masked", Least)
	case len(value) > Most:
		return fmt.Errorf("the value is longer than %d bytes", Most)
	case value[0] == ' ' || value[len(value)-1] == ' ':
		return errors.New("the value begins or ends with a space")
	}
	for _, c := range value {
		if c < ' ' || c > '~' {
			return errors.New("the value holds a line end, another control character, or a character that is not ASCII")
		}
	}
	return nil
}

// dropLocked frees v when nothing uses it any more, after a while.
func (s *Store) dropLocked(v *version) {
	if v.replaced && v.uses == 0 && !v.dropped {
		v.dropped = true
		time.AfterFunc(s.keep, v.free)
	}
}
