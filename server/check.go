package server

import (
	"fmt"
	"regexp"
	"unicode"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// maxImageName is more than any registry allows, with an owner before it.
const maxImageName = 255 + 11

// refPattern is what a sandbox's name or ID looks like.
var refPattern = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,127}$`)

// checkRef refuses what cannot name a sandbox, before it reaches a path.
func checkRef(field, ref string) error {
	if refPattern.MatchString(ref) {
		return nil
	}
	return sbxerr.New(sbxerr.Config, "server.check",
		"%s %.80q is not a name: use 1 to 128 of A-Z a-z 0-9 _ . - and begin with a letter or digit", field, ref)
}

// checkImage refuses what cannot name an image. The image store knows the
// exact form.
func checkImage(name string) error {
	if name == "" || len(name) > maxImageName {
		return sbxerr.New(sbxerr.Config, "server.check", "an image name has 1 to %d characters, such as base or python:3.12", maxImageName)
	}
	for _, r := range name {
		if !unicode.IsGraphic(r) || unicode.IsSpace(r) {
			return sbxerr.New(sbxerr.Config, "server.check", "image name %.80q holds a character that no name may hold", name)
		}
	}
	return nil
}

// checkStream refuses a stream that is not one.
func checkStream(stream string) error {
	switch stream {
	case "", "stdout", "stderr":
		return nil
	}
	err := fmt.Errorf("stream %.80q is neither stdout nor stderr", stream)
	return sbxerr.Wrap(sbxerr.Config, "server.check", err)
}

// checkOffset refuses a place before the beginning of a stream.
func checkOffset(field string, offset int64) error {
	if offset < 0 {
		return refuse("%s is %d: an offset counts the bytes that the caller has had, from 0", field, offset)
	}
	return nil
}
