// Package owned names what a user of the host has: volumes and snapshots. Each user has names
// of its own.
package owned

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// Key names one such thing on the host.
type Key struct {
	Owner uint32 // uid of the user to whom it belongs
	Name  string
}

// String is the form UID+NAME.
func (k Key) String() string { return fmt.Sprintf("%d+%s", k.Owner, k.Name) }

// ParseKey reads NAME, which is self's, or UID+NAME. kind says what it is in a refusal.
func ParseKey(kind, ref string, self uint32) (Key, error) {
	k := Key{Owner: self, Name: ref}
	if number, name, found := strings.Cut(ref, "+"); found {
		uid, err := strconv.ParseUint(number, 10, 32)
		if k = (Key{uint32(uid), name}); err != nil || k.String() != ref {
			return Key{}, CheckName(kind, ref)
		}
	}
	return k, CheckName(kind, k.Name)
}

var nameForm = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,127}$`)

// CheckName refuses what cannot be a name.
func CheckName(kind, name string) error {
	if nameForm.MatchString(name) {
		return nil
	}
	return sbxerr.New(sbxerr.Config, "owned.name", "%s %q: give 1 to 128 letters, digits, and _ . - after the first", kind, sbxerr.Clip(name))
}
