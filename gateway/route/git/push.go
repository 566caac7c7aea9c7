package git

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The bounds of what is read of a push.
const (
	maxHead    = 1 << 20 // bytes
	maxUpdates = 4096
	maxRef     = 1024 // bytes
)

// Update is one change of a ref.
type Update struct {
	Ref    string
	Delete bool
}

// Updates is the head of a push: what comes before its pack.
type Updates struct {
	List         []Update
	Capabilities []string // of the client
	Head         []byte   // as it was read, to be sent on before the rest
}

// String names the refs, the first of them if they are many.
func (u Updates) String() string {
	const most = 3
	var refs []string
	for _, update := range u.List[:min(len(u.List), most)] {
		refs = append(refs, clip(update.Ref))
	}
	text := strings.Join(refs, ", ")
	if more := len(u.List) - len(refs); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// ReadUpdates reads the head of a push, and no byte past it. With an error, it returns what
// it had read of it.
func ReadUpdates(r io.Reader) (Updates, error) {
	l := &lines{from: r, most: maxHead}
	var u Updates
	err := u.read(l)
	u.Head = l.read
	return u, err
}

func (u *Updates) read(l *lines) error {
	first := true
	for {
		line, err := l.next()
		switch {
		case err != nil:
			return err
		case line == nil && len(u.List) == 0:
			return atEnd(l.from)
		case line == nil:
			return nil
		}
		text, capabilities, found := bytes.Cut(bytes.TrimSuffix(line, []byte("\n")), []byte{0})
		if found != first { // git has them after the first line, and nowhere else
			if bytes.HasPrefix(text, []byte("shallow ")) && !found && isID(text[len("shallow "):]) {
				continue // such lines come before the first
			}
			return errors.New("its capabilities are not where they belong")
		}
		if first {
			if u.Capabilities, err = readCapabilities(capabilities); err != nil {
				return err
			}
			first = false
		}
		if err := u.add(string(text)); err != nil {
			return err
		}
	}
}

// atEnd refuses more bytes. Before a large push, git sends a list without a ref.
func atEnd(r io.Reader) error {
	if n, err := io.ReadFull(r, make([]byte, 1)); n > 0 || !errors.Is(err, io.EOF) {
		return errors.New("it updates no ref, but goes on")
	}
	return nil
}

func readCapabilities(text []byte) ([]string, error) {
	if bytes.ContainsFunc(text, func(c rune) bool { return c < ' ' || c > '~' }) {
		return nil, errors.New("its capabilities are not printable ASCII")
	}
	return strings.Fields(string(text)), nil
}

// add reads one line: the old and the new object, and the ref.
func (u *Updates) add(line string) error {
	if line == "push-cert" {
		return errors.New("a signed push cannot be looked through: push without a signature")
	}
	before, rest, _ := strings.Cut(line, " ")
	after, ref, _ := strings.Cut(rest, " ")
	switch {
	case !isID([]byte(before)) || !isID([]byte(after)) || len(before) != len(after) || ref == "":
		return errors.New("a line of it is not the update of a ref")
	case len(ref) > maxRef:
		return fmt.Errorf("a ref is longer than %d bytes", maxRef)
	case !utf8.ValidString(ref) || strings.ContainsFunc(ref, unicode.IsControl):
		return errors.New("a ref is not UTF-8 or has a control character")
	case len(u.List) == maxUpdates:
		return fmt.Errorf("it updates more than %d refs", maxUpdates)
	}
	u.List = append(u.List, Update{ref, strings.Trim(after, "0") == ""})
	return nil
}

// isID reports whether b names an object.
func isID(b []byte) bool {
	const sha1, sha256 = 40, 64
	_, err := hex.DecodeString(string(b))
	return err == nil && (len(b) == sha1 || len(b) == sha256)
}

// can reports whether the client understands an answer of this kind, or asked for it.
func (u Updates) can(capability string) bool {
	return slices.ContainsFunc(u.Capabilities, func(c string) bool {
		name, _, _ := strings.Cut(c, "=")
		return name == capability
	})
}

// errOptions is about options of a push, by which some servers merge or write elsewhere.
var errOptions = errors.New("push options are refused where the route names branches: push without -o")

// Refuses says why a push does not pass: for each ref that may not be updated, or as an error
// for the push as a whole.
func (s Scope) Refuses(u Updates) (map[string]string, error) {
	if u.can("push-options") && len(s.Branches) > 0 {
		return nil, errOptions
	}
	refused := map[string]string{}
	for _, update := range u.List {
		branch, isBranch := strings.CutPrefix(update.Ref, "refs/heads/")
		switch {
		case !isBranch || checkName(branch) != nil:
			refused[update.Ref] = "only branches may be pushed"
		case update.Delete:
			refused[update.Ref] = "branches may not be deleted"
		case len(s.Branches) > 0 && !matchesAny(s.Branches, branch):
			refused[update.Ref] = "only " + clip(strings.Join(s.Branches, ", ")) + " may be pushed"
		}
	}
	return refused, nil
}
