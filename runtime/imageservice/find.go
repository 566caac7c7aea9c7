package imageservice

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime/images"
	"github.com/caisson-run/caisson/runtime/registry"
)

// Find finds the image that the caller of ctx means by ref, or says what there is. Of a damaged
// image the name, owner and digest come with the error.
func (s *Service) Find(ctx context.Context, ref string) (images.Stored, error) {
	g, err := s.fleet.Grant(ctx)
	if err != nil {
		return images.Stored{}, err
	}
	return s.findIn(ctx, images.ScopeOf(g), ref)
}

// FindForSandbox is Find for an image that a sandbox is to be made of. That counts as a use.
func (s *Service) FindForSandbox(ctx context.Context, ref string) (images.Stored, error) {
	return s.used(s.verified(s.Find(ctx, ref)))
}

// FindOfRoot finds an image of root's that a sandbox is to be made of.
func (s *Service) FindOfRoot(ctx context.Context, ref string) (images.Stored, error) {
	return s.verified(s.findIn(ctx, images.RootScope, ref))
}

func (s *Service) findIn(ctx context.Context, scope images.Scope, ref string) (images.Stored, error) {
	keys := scope.Keys(ref)
	if strings.HasPrefix(ref, "sha256:") {
		list, err := s.store.ListImages(ctx)
		if err != nil {
			return images.Stored{}, err
		}
		keys = scope.KeysOf(ref, list)
	}
	for _, key := range keys {
		img, err := s.getImage(ctx, key)
		if !errors.Is(err, sbxerr.ImageNotFound) {
			return img, err
		}
	}
	return images.Stored{}, s.noImage(ctx, scope, ref)
}

// noImage says which images there are instead.
func (s *Service) noImage(ctx context.Context, scope images.Scope, ref string) error {
	there, err := s.imagesThere(ctx, scope, ref)
	if err != nil {
		return errors.Join(sbxerr.New(sbxerr.ImageNotFound, "images.image", "no image %q", sbxerr.Clip(ref)), err)
	}
	err = fmt.Errorf("no image %q; %s", sbxerr.Clip(ref), there)
	if remedy := s.pullRemedy(ref); remedy != "" {
		return sbxerr.WithRemedy(sbxerr.ImageNotFound, "images.image", err, remedy)
	}
	return sbxerr.Wrap(sbxerr.ImageNotFound, "images.image", err)
}

// pullRemedy says how an image is pulled whose name lacks a registry. It is empty where ref
// has one, is no such name, or no registry is ever asked.
func (s *Service) pullRemedy(ref string) string {
	whole, host := registry.Whole(ref)
	allowed := s.settings().Registry.Allowed()
	const list = "list the images that are here: caisson image ls; "
	switch {
	case whole == "" || s.options.AirGapped:
		return ""
	case slices.Contains(allowed, host):
		return list + "a name with its registry is pulled: " + whole
	case len(allowed) > 0:
		return fmt.Sprintf("%sa name with its registry is pulled, such as %s/%s; registries.allowed in the daemon's configuration says which: %s", list, allowed[0], ref, strings.Join(allowed, ", "))
	}
	return fmt.Sprintf("%sa name with its registry, such as %s, is pulled once registries.allowed in the daemon's configuration has %q; "+
		"import others from a file: caisson image import", list, whole, host)
}

// imagesThere lists the images of scope, and the one that ref may mean.
func (s *Service) imagesThere(ctx context.Context, scope images.Scope, ref string) (string, error) {
	list, err := s.store.ListImages(ctx)
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
