// Package images says what an image is, which names it has, and who sees it.
//
// Each user of the host has image names of its own. The store keeps root's images
// under their names, and an image of another user under UID+NAME. No image name holds
// a plus sign, so the two forms cannot collide. A reference may have either form.
package images

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/caisson-run/caisson/runtime/peer"
)

// Key is the name under which a store keeps an image.
func Key(owner uint32, name string) string {
	if owner == 0 {
		return name
	}
	return ownedName(owner, name)
}

func ownedName(owner uint32, name string) string { return fmt.Sprintf("%d+%s", owner, name) }

// SplitKey is the inverse of Key.
func SplitKey(key string) (owner uint32, name string) {
	owner, name, _ = splitOwner(key)
	return owner, name
}

// splitOwner splits UID+NAME. Without a number in its canonical form all of ref is a
// name of root's.
func splitOwner(ref string) (owner uint32, name string, explicit bool) {
	number, name, found := strings.Cut(ref, "+")
	n, err := strconv.ParseUint(number, 10, 32)
	if !found || err != nil || strconv.FormatUint(n, 10) != number {
		return 0, ref, false
	}
	return uint32(n), name, true
}

// Key is the name under which a store keeps i.
func (i Image) Key() string { return Key(i.Owner, i.Name) }

// Scope says which images a reference may mean.
type Scope struct {
	Owner uint32 // its images come first, then root's
	sees  func(owner uint32) bool
	uses  func(profile string) error // whose template it may mean; nil: each
}

// ScopeOf is the scope of a caller with g.
func ScopeOf(g peer.Grant) Scope {
	return Scope{Owner: g.Owner().UID, sees: g.SeesImages, uses: g.CheckProfile}
}

// knows reports whether the scope may know of an image. Templates hold files of root's, so
// that they are for those alone who may use the profile.
func (s Scope) knows(owner uint32, name string) bool {
	profile, isTemplate := TemplateOf(name)
	return s.sees(owner) && (owner != 0 || !isTemplate || s.uses == nil || s.uses(profile) == nil)
}

// RootScope is for names in the configuration: they always mean root's images.
var RootScope = Scope{sees: func(owner uint32) bool { return owner == 0 }}

// Keys lists the stored names that ref may mean, the nearest first.
func (s Scope) Keys(ref string) []string {
	if owner, name, explicit := splitOwner(ref); explicit {
		if !s.knows(owner, name) {
			return nil
		}
		return []string{Key(owner, name)}
	}
	if !s.knows(0, ref) {
		return []string{Key(s.Owner, ref)}
	}
	return slices.Compact([]string{Key(s.Owner, ref), ref})
}

// Visible keeps the images that the scope may know of.
func (s Scope) Visible(list []Stored) []Stored {
	return slices.DeleteFunc(list, func(i Stored) bool { return !s.knows(i.Owner, i.Name) })
}

// KeysOf lists the stored names of a digest, the nearest first.
func (s Scope) KeysOf(digest string, list []Stored) []string {
	rank := func(i Stored) int { return map[uint32]int{0: 1, s.Owner: 2}[i.Owner] }
	list = slices.DeleteFunc(s.Visible(list), func(i Stored) bool { return i.Digest != digest })
	slices.SortStableFunc(list, func(a, b Stored) int { return cmp.Compare(rank(b), rank(a)) })
	var keys []string
	for _, i := range list {
		keys = append(keys, i.Key())
	}
	return keys
}
