package runtime

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/sbxerr"
)

// Each user of the host has image names of its own. The store keeps root's images
// under their names, and an image of another user under UID+NAME. No image name may
// hold a plus sign, so the two forms cannot collide. A reference may have either form.

// ImageKey is the name under which a store keeps an image.
func ImageKey(owner uint32, name string) string {
	if owner == 0 {
		return name
	}
	return ownedName(owner, name)
}

func ownedName(owner uint32, name string) string { return fmt.Sprintf("%d+%s", owner, name) }

// SplitImageKey is the inverse of ImageKey.
func SplitImageKey(key string) (owner uint32, name string) {
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
func (i Image) Key() string { return ImageKey(i.Owner, i.Name) }

// imageScope says which images a reference may mean.
type imageScope struct {
	owner uint32 // its images come first, then root's
	sees  func(owner uint32) bool
}

func scopeOf(g peer.Grant) imageScope { return imageScope{owner: g.Owner().UID, sees: g.SeesImages} }

// rootScope is for names in the configuration: they always mean root's images.
var rootScope = imageScope{sees: func(owner uint32) bool { return owner == 0 }}

// keys lists the stored names that ref may mean, the nearest first.
func (s imageScope) keys(ref string) []string {
	if owner, name, explicit := splitOwner(ref); explicit {
		if !s.sees(owner) {
			return nil
		}
		return []string{ImageKey(owner, name)}
	}
	return slices.Compact([]string{ImageKey(s.owner, ref), ref})
}

// visible keeps the images that the scope may know of.
func (s imageScope) visible(list []StoredImage) []StoredImage {
	return slices.DeleteFunc(list, func(i StoredImage) bool { return !s.sees(i.Owner) })
}

// keysOf lists the stored names of a digest, the nearest first.
func (s imageScope) keysOf(digest string, list []StoredImage) []string {
	rank := func(i StoredImage) int { return map[uint32]int{0: 1, s.owner: 2}[i.Owner] }
	list = slices.DeleteFunc(s.visible(list), func(i StoredImage) bool { return i.Digest != digest })
	slices.SortStableFunc(list, func(a, b StoredImage) int { return cmp.Compare(rank(b), rank(a)) })
	var keys []string
	for _, i := range list {
		keys = append(keys, i.Key())
	}
	return keys
}

// image finds ref for the caller of ctx, or says what there is. Of a damaged image
// the name, owner and digest come with the error.
func (m *Manager) image(ctx context.Context, ref string) (StoredImage, error) {
	g, err := m.grant(ctx)
	if err != nil {
		return StoredImage{}, err
	}
	return m.imageIn(ctx, scopeOf(g), ref)
}

func (m *Manager) imageIn(ctx context.Context, scope imageScope, ref string) (StoredImage, error) {
	keys := scope.keys(ref)
	if strings.HasPrefix(ref, "sha256:") {
		list, err := m.images.ListImages(ctx)
		if err != nil {
			return StoredImage{}, err
		}
		keys = scope.keysOf(ref, list)
	}
	for _, key := range keys {
		img, err := m.getImage(ctx, key)
		if !errors.Is(err, sbxerr.ImageNotFound) {
			return img, err
		}
	}
	return StoredImage{}, m.noImage(ctx, scope, ref)
}

// noImage says which images there are instead.
func (m *Manager) noImage(ctx context.Context, scope imageScope, ref string) error {
	err := sbxerr.New(sbxerr.ImageNotFound, "runtime.image", "no image %q", sbxerr.Clip(ref))
	list, listErr := m.images.ListImages(ctx)
	if listErr != nil {
		return errors.Join(err, listErr)
	}
	var names []string
	for _, i := range scope.visible(list) {
		name := i.Name
		if i.Owner != scope.owner {
			name = i.Key()
		}
		names = append(names, name)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	msg := fmt.Sprintf("no image %q; there are: %s", sbxerr.Clip(ref), strings.Join(names, ", "))
	if near := sbxerr.Nearest(ref, names); near != "" {
		msg += fmt.Sprintf("; did you mean %q?", near)
	}
	return sbxerr.New(sbxerr.ImageNotFound, "runtime.image", "%s", msg)
}
