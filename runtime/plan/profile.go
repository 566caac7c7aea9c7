package plan

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/sbxerr"
	"github.com/caisson-run/caisson/seccomp"
)

// Profile is a named set of defaults. A request overrides them field by field.
type Profile struct {
	Image   string
	Seccomp string // name of a seccomp profile
	User    string
	Env     []string
	Limits  Limits
	Network Network
}

// Validate reports every reason why no request could run with p as it is.
func (p Profile) Validate() error {
	_, err := seccomp.Lookup(p.Seccomp)
	return errors.Join(err, p.Limits.Validate())
}

// DefaultProfile is the profile of a request that names none.
const DefaultProfile = "strict"

// DefaultLimits bound a sandbox where neither request nor profile does.
func DefaultLimits() Limits {
	return Limits{MemoryBytes: 512 << 20, MilliCPU: 1000, PIDs: 256, OpenFiles: 1024, TmpfsBytes: 64 << 20}
}

// BuiltinProfiles are the profiles of every daemon: one for each seccomp
// profile, under its name.
func BuiltinProfiles() map[string]Profile {
	profiles := map[string]Profile{}
	for _, name := range seccomp.Names() {
		profiles[name] = Profile{Image: "base", Seccomp: name, User: "1000:1000", Limits: DefaultLimits()}
	}
	return profiles
}

// LookupProfile finds a profile; the empty name is [DefaultProfile]. An unknown name is
// refused with the nearest one.
func LookupProfile(profiles map[string]Profile, name string) (Profile, error) {
	if name == "" {
		name = DefaultProfile
	}
	p, ok := profiles[name]
	if ok {
		return p, nil
	}
	names := slices.Sorted(maps.Keys(profiles))
	msg := fmt.Sprintf("no profile %q; there are %s", sbxerr.Clip(name), strings.Join(names, ", "))
	if near := sbxerr.Nearest(name, names); near != "" {
		msg = fmt.Sprintf("no profile %q, did you mean %q?", name, near)
	}
	return Profile{}, sbxerr.New(sbxerr.Profile, "runtime.plan", "%s", msg)
}
