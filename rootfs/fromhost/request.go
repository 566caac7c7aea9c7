package fromhost

import (
	"errors"
	"fmt"
	"regexp"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// Request names the software to collect.
type Request struct {
	Root     string   `json:"root"`     // the host's root directory, normally "/"
	Packages []string `json:"packages"` // installed packages, each NAME or NAME:ARCH
	Paths    []string `json:"paths"`    // absolute paths of programs or directories
	Limits   Limits   `json:"limits"`
}

// Limits bounds what is collected. Every field is required: zero is an error
// and never means unlimited.
type Limits struct {
	Bytes   int64 `json:"bytes"`   // of the content of all files
	Entries int64 `json:"entries"` // files, directories and links
}

// packageName is what dpkg and rpm allow: no blanks, slashes or leading dash.
var packageName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9+._~-]*(:[a-z0-9-]+)?$`)

// maxAsked is how many packages, and how many paths, can be asked for.
const maxAsked = 4096

// Validate reports every reason why the request can never succeed.
func (r Request) Validate() error {
	var reasons sbxerr.Reasons
	switch most := max(len(r.Packages), len(r.Paths)); {
	case most == 0:
		reasons.Add(errors.New("nothing is asked for: name at least one package or path"))
	case most > maxAsked:
		return sbxerr.New(sbxerr.Config, "fromhost.request", "%d packages or paths are more than %d", most, maxAsked)
	}
	for _, p := range r.Packages {
		if !packageName.MatchString(p) {
			reasons.Add(fmt.Errorf("package name %q is malformed", sbxerr.Clip(p)))
		}
	}
	for _, p := range r.Paths {
		reasons.Add(checkPath(p))
	}
	if err := reasons.Err(); err != nil {
		return sbxerr.Wrap(sbxerr.Config, "fromhost.request", err)
	}
	if r.Limits.Bytes <= 0 || r.Limits.Entries <= 0 {
		return sbxerr.New(sbxerr.Limits, "fromhost.limits", "limits are %d bytes and %d entries: both must be above 0", r.Limits.Bytes, r.Limits.Entries)
	}
	return nil
}
