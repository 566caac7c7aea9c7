package image

import (
	"errors"
	"fmt"
	"regexp"
	"slices"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/image/internal/flow"
)

// MaxName bounds the name of an image, in bytes.
const MaxName = 255

// nameRE is the usual grammar of image references without the digest: an
// optional host, lower-case path components, an optional tag. No component can
// be "." or "..".
var nameRE = regexp.MustCompile(`^` +
	`(?:[A-Za-z0-9]+(?:[.-]+[A-Za-z0-9]+)*(?::[0-9]{1,5})?/)?` +
	`[a-z0-9]+(?:(?:[.]|_{1,2}|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:[.]|_{1,2}|-+)[a-z0-9]+)*)*` +
	`(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?$`)

// CheckName reports why name cannot name an image. Names are compared as they
// are: "python" is not "docker.io/library/python:latest", because nothing is
// ever fetched by a name.
func CheckName(name string) error {
	if len(name) > MaxName || !nameRE.MatchString(name) {
		return sbxerr.New(sbxerr.Config, "image.name", "name %s is no image name: use lower-case letters, digits and . _ - / with an optional :tag, at most %d bytes", flow.Quote(name), MaxName)
	}
	return nil
}

// choose returns the name that the caller wants, or else the one name that the
// archive states.
func choose(wanted string, stated []string) (string, error) {
	if wanted != "" {
		return wanted, CheckName(wanted)
	}
	stated = slices.Clone(stated)
	slices.Sort(stated)
	stated = slices.Compact(stated)
	switch len(stated) {
	case 0:
		return "", sbxerr.WithRemedy(sbxerr.Config, "image.name", errors.New("the archive states no name: give one"), "import it with --name NAME")
	case 1:
		return stated[0], CheckName(stated[0])
	}
	return "", sbxerr.WithRemedy(sbxerr.Config, "image.name", fmt.Errorf("the archive states %d names, give one: %q", len(stated), stated), "import it with --name NAME")
}
