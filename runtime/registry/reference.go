package registry

import (
	"errors"
	"fmt"
	"strings"

	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/image"
)

const opReference = "registry.reference"

// Docker Hub is called docker.io in names, and its API is elsewhere.
const (
	hub      = "docker.io"
	hubAPI   = "registry-1.docker.io"
	hubRealm = "auth.docker.io"
)

// Reference names an image in a registry.
type Reference struct {
	Name   string        // HOST/PATH[:TAG], as given; the name of the image once it is stored
	Host   string        // HOST[:PORT]
	Digest digest.Digest // that it is pinned to; empty for none
	repo   string        // HOST/PATH
	full   string        // with a tag or a digest
}

// String is the name with its tag and digest.
func (r Reference) String() string { return r.full }

// Repository is HOST/PATH.
func (r Reference) Repository() string { return r.repo }

// Parse reads HOST/PATH[:TAG][@DIGEST]. A name without a host is refused: it would
// depend on the reader which registry it means.
func Parse(ref string) (Reference, error) {
	name, pinned, isPinned := strings.Cut(ref, "@")
	if err := image.CheckName(name); err != nil {
		return Reference{}, err
	}
	named, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return Reference{}, sbxerr.New(sbxerr.Config, opReference, "name %q: %w", sbxerr.Clip(name), err)
	}
	if named.String() != name {
		return Reference{}, sbxerr.WithRemedy(sbxerr.Config, opReference, fmt.Errorf("name %q is not the whole name of an image in a registry", sbxerr.Clip(name)),
			fmt.Sprintf("give the whole name, such as %s", named))
	}
	r := Reference{Name: name, Host: reference.Domain(named), repo: named.Name(), full: reference.TagNameOnly(named).String()}
	if !isPinned {
		return r, nil
	}
	if r.Digest, err = digest.Parse(pinned); err == nil && r.Digest.Algorithm() != digest.SHA256 && r.Digest.Algorithm() != digest.SHA512 {
		err = digest.ErrDigestUnsupported
	}
	if err != nil {
		return Reference{}, sbxerr.New(sbxerr.Config, opReference, "digest %q: %w", sbxerr.Clip(pinned), err)
	}
	r.full = name + "@" + pinned
	return r, nil
}

// Has reports whether a name says in which registry the image is.
func Has(ref string) bool {
	_, err := Parse(ref)
	return err == nil
}

// Whole returns the whole name of an image that ref may mean, as Docker understands it, and its
// registry. It is empty where ref is whole, or none.
func Whole(ref string) (name, host string) {
	short, digest, pinned := strings.Cut(ref, "@")
	named, err := reference.ParseNormalizedNamed(short)
	if err != nil || named.String() == short {
		return "", ""
	}
	if pinned {
		digest = "@" + digest
	}
	return named.String() + digest, reference.Domain(named)
}

// errNotAllowed is the cause of a refusal to ask a host.
var errNotAllowed = errors.New("the configuration does not allow this registry")
