package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime/images"
)

// image finds ref for the caller of ctx, or says what there is. Of a damaged image
// the name, owner and digest come with the error.
func (m *Manager) image(ctx context.Context, ref string) (images.Stored, error) {
	g, err := m.grant(ctx)
	if err != nil {
		return images.Stored{}, err
	}
	return m.imageIn(ctx, images.ScopeOf(g), ref)
}

func (m *Manager) imageIn(ctx context.Context, scope images.Scope, ref string) (images.Stored, error) {
	keys := scope.Keys(ref)
	if strings.HasPrefix(ref, "sha256:") {
		list, err := m.images.ListImages(ctx)
		if err != nil {
			return images.Stored{}, err
		}
		keys = scope.KeysOf(ref, list)
	}
	for _, key := range keys {
		img, err := m.getImage(ctx, key)
		if !errors.Is(err, sbxerr.ImageNotFound) {
			return img, err
		}
	}
	return images.Stored{}, m.noImage(ctx, scope, ref)
}

// noImage says which images there are instead.
func (h *host) noImage(ctx context.Context, scope images.Scope, ref string) error {
	there, err := h.imagesThere(ctx, scope, ref)
	if err != nil {
		return errors.Join(sbxerr.New(sbxerr.ImageNotFound, "runtime.image", "no image %q", sbxerr.Clip(ref)), err)
	}
	return sbxerr.New(sbxerr.ImageNotFound, "runtime.image", "no image %q; %s", sbxerr.Clip(ref), there)
}

// imagesThere lists the images of scope, and the one that ref may mean.
func (h *host) imagesThere(ctx context.Context, scope images.Scope, ref string) (string, error) {
	list, err := h.images.ListImages(ctx)
	if err != nil {
		return "", err
	}
	var names []string
	for _, i := range scope.Visible(list) {
		if images.OfBuild(i.Name) {
			continue
		}
		name := i.Name
		if i.Owner != scope.Owner {
			name = i.Key()
		}
		names = append(names, name)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	there := "there are: " + strings.Join(names, ", ")
	if near := sbxerr.Nearest(ref, names); near != "" && !slices.Contains(names, ref) {
		there += fmt.Sprintf("; did you mean %q?", near)
	}
	return there, nil
}
