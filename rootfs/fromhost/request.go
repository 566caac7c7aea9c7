package fromhost

import (
	"context"
	"errors"
	"fmt"
	"regexp"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// Request names the software to collect.
type Request struct {
	Packages []string // installed packages, each NAME or NAME:ARCH
	Paths    []string // absolute paths of programs or directories
	// Minimal leaves out the base set of command line tools and the packages
	// that requested ones recommend. A shell is always included.
	Minimal bool
	Limits  Limits
}

// Limits bounds what is collected. Every field is required: zero is an error
// and never means unlimited.
type Limits struct {
	Bytes   int64 // of the content of all files
	Entries int64 // files, directories and links
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
	return r.Limits.validate()
}

func (l Limits) validate() error {
	var errs []error
	if l.Bytes <= 0 {
		errs = append(errs, fmt.Errorf("limit of bytes is %d: must be above 0", l.Bytes))
	}
	if l.Entries <= 0 {
		errs = append(errs, fmt.Errorf("limit of entries is %d: must be above 0", l.Entries))
	}
	return sbxerr.Wrap(sbxerr.Limits, "fromhost.limits", errors.Join(errs...))
}

// Host says where software is collected from.
type Host struct {
	Root string   // the host's root directory, normally "/"
	RPM  RPMQuery // asks rpm where the host has no dpkg; nil knows no packages there
}

// RPMQuery returns the output of rpm -qa with the given query format.
type RPMQuery func(ctx context.Context, format string) ([]byte, error)
