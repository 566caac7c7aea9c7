package secret

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"unsafe"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/route/mask"
)

// version is one value that a secret had.
type version struct {
	name  string
	store *Store
	value []byte // in the arena, as all that follows
	mask  *mask.Set

	// Under the store's lock.
	uses     int
	replaced bool
	dropped  bool

	mu    sync.Mutex
	texts map[placement]string
	taken [][]byte // of the arena
}

// placement is how a text is made of a value.
type placement struct {
	before string
	basic  bool // base64 of both
	query  bool // percent-encoded
}

func newVersion(s *Store, name string, value []byte) (*version, error) {
	v := &version{name: name, store: s, texts: map[placement]string{}}
	forms, err := s.arena().forms(value)
	v.taken = forms
	if err != nil {
		v.free()
		return nil, err
	}
	v.value = forms[0]
	v.mask = mask.New(forms...)
	return v, nil
}

// free zeroes all of v. Nothing may use it.
func (v *version) free() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, b := range v.taken {
		v.store.arena().give(b)
	}
	v.taken, v.texts, v.value, v.mask = nil, nil, nil, nil
}

// Value is a secret in use. Whatever prints it shows its name alone, and it cannot be encoded
// or compared. The zero Value is of no secret.
type Value struct{ of func() *version }

// Release says that v, and every text that came of it, is used no more.
func (v Value) Release() {
	if v.of == nil {
		return
	}
	s := v.of().store
	s.mu.Lock()
	defer s.mu.Unlock()
	v.of().uses--
	s.dropLocked(v.of())
}

// Text returns the value after the text before, such as "Bearer ". It is valid until v is
// released, as are the others.
func (v Value) Text(before string) (string, error) { return v.text(placement{before: before}) }

// Basic returns the value of an Authorization header with user, and the secret as password
// (RFC 7617).
func (v Value) Basic(user string) (string, error) {
	return v.text(placement{before: user + ":", basic: true})
}

// Query returns the value as it is written in the query of a URL. Package net/url copies it
// into the URL of each request.
func (v Value) Query() (string, error) { return v.text(placement{query: true}) }

// Mask returns the forms in which an upstream may give the value away.
func (v Value) Mask() *mask.Set { return v.of().mask }

func (v Value) text(p placement) (string, error) {
	of := v.of()
	of.mu.Lock()
	defer of.mu.Unlock()
	if t, ok := of.texts[p]; ok {
		return t, nil
	}
	b, err := of.render(p)
	if err != nil {
		return "", sbxerr.Wrap(sbxerr.Secret, "secret.text", err)
	}
	of.texts[p] = unsafe.String(unsafe.SliceData(b), len(b))
	return of.texts[p], nil
}

// render writes a text into the arena.
func (v *version) render(p placement) ([]byte, error) {
	a := v.store.arena()
	const scheme = "Basic "
	size := len(p.before) + len(v.value)
	if p.query {
		size = 3 * len(v.value)
	}
	plain, err := a.take(size)
	if err != nil {
		return nil, err
	}
	if p.query {
		v.taken = append(v.taken, plain)
		return plain[:escape(unreserved, 0, true)(plain, v.value)], nil
	}
	copy(plain[copy(plain, p.before):], v.value)
	if !p.basic {
		v.taken = append(v.taken, plain)
		return plain, nil
	}
	defer a.give(plain)
	b, err := a.take(len(scheme) + base64.StdEncoding.EncodedLen(size))
	if err != nil {
		return nil, err
	}
	v.taken = append(v.taken, b)
	base64.StdEncoding.Encode(b[copy(b, scheme):], plain)
	return b, nil
}

// String is what may be shown.
func (v Value) String() string {
	if v.of == nil {
		return "[no secret]"
	}
	return "[secret " + v.of().name + "]"
}

// Format prints what may be shown, for every verb.
func (v Value) Format(w fmt.State, _ rune) { _, _ = io.WriteString(w, v.String()) }

// LogValue is what may be shown.
func (v Value) LogValue() slog.Value { return slog.StringValue(v.String()) }

var errEncode = errors.New("a secret cannot be encoded")

// MarshalText refuses.
func (v Value) MarshalText() ([]byte, error) { return nil, errEncode }

// MarshalJSON refuses.
func (v Value) MarshalJSON() ([]byte, error) { return nil, errEncode }

// MarshalBinary refuses.
func (v Value) MarshalBinary() ([]byte, error) { return nil, errEncode }
