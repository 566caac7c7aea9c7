package config

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/caisson-run/caisson/api/settings"
)

// Unisolated names the profiles whose commands may run without isolation from the host. Such
// a profile says so too: neither alone has an effect.
type Unisolated struct {
	Profiles []string `yaml:"profiles" json:"profiles" jsonschema:"description=Profiles with isolation none"`
	User     Account  `yaml:"user" json:"user" jsonschema:"description=User of the host as whom their commands run\\, by name or number; not root"`
}

// The values of isolation.
const (
	isolationSandbox = "sandbox"
	isolationNone    = "none"
)

// builtins are the profiles of every daemon, which always have isolation.
var builtins = []string{"strict", "compat", "debug", "dev"}

func (c *Config) validateUnisolated() error {
	var errs []error
	u := c.Unisolated
	for _, name := range slices.Sorted(maps.Keys(c.Profiles)) {
		for _, err := range c.Profiles[name].validateIsolation(name, u) {
			errs = append(errs, fmt.Errorf("profiles.%s.%w", name, err))
		}
	}
	for _, name := range u.Profiles {
		if c.Profiles[name].Isolation != isolationNone {
			errs = append(errs, fmt.Errorf("unisolated.profiles: %q is no profile with isolation: none", name))
		}
	}
	switch {
	case len(u.Profiles) == 0 && u.User == "":
		return errors.Join(errs...)
	case len(u.Profiles) == 0:
		errs = append(errs, errors.New("unisolated.user: no profile is named"))
	case u.User == "":
		errs = append(errs, errors.New("unisolated.user: name the user of the host as whom the commands run"))
	case u.User == "root" || u.User == "0":
		errs = append(errs, errors.New("unisolated.user: root is not possible: name an unprivileged user"))
	default:
		errs = append(errs, checkAccount("unisolated.user", u.User))
	}
	if c.AirGapped {
		errs = append(errs, errors.New("unisolated: the host's network cannot be bounded, which air_gapped demands"))
	}
	for i, p := range c.Pools {
		if slices.Contains(u.Profiles, p.Profile) {
			errs = append(errs, fmt.Errorf("pools[%d].profile: %q has isolation none: no sandbox without isolation is made ahead", i, p.Profile))
		}
	}
	return errors.Join(errs...)
}

// validateIsolation refuses keys of a profile that would not be enforced.
func (p Profile) validateIsolation(name string, u Unisolated) (errs []error) {
	if p.Timeout < 0 {
		errs = append(errs, fmt.Errorf("timeout: %s is negative", time.Duration(p.Timeout)))
	}
	switch p.Isolation {
	case "", isolationSandbox:
		return errs
	case isolationNone:
	default:
		return append(errs, fmt.Errorf("isolation: %q is none of %q", p.Isolation, []string{isolationSandbox, isolationNone}))
	}
	if slices.Contains(builtins, name) {
		errs = append(errs, errors.New("isolation: a built-in profile keeps its isolation: choose another name"))
	}
	if !slices.Contains(u.Profiles, name) {
		errs = append(errs, errors.New("isolation: none needs the profile's name in unisolated.profiles, too"))
	}
	if p.Timeout == 0 {
		errs = append(errs, errors.New("timeout: isolation none needs one"))
	}
	for i := range settings.Table {
		row := &settings.Table[i]
		if f := limitKey(p, row); !row.Unisolated && f.IsValid() && !f.IsZero() {
			errs = append(errs, notEnforced(row.Key))
		}
	}
	for _, f := range []struct {
		key   string
		given bool
	}{
		{"image", p.Image != ""}, {"setup", !p.Setup.Empty()}, {"user", p.User != ""}, {"rootfs", p.Rootfs != ""}, {"caches", len(p.Caches) > 0 || p.MergeCaches}, {"root_user", p.RootUser != ""}, {"mounts", len(p.Mounts) > 0}, {"nested", p.Nested != Nested{}},
		{"routes", len(p.Routes) > 0}, {"network", !reflect.ValueOf(p.Network).IsZero()}, {"alerts.tmpfs", p.Alerts.Tmpfs != Threshold{}}, {"alerts.refusals", p.Alerts.Refusals != 0},
	} {
		if f.given {
			errs = append(errs, notEnforced(f.key))
		}
	}
	return errs
}

func notEnforced(key string) error {
	return fmt.Errorf("%s: it cannot be enforced with isolation none", key)
}
