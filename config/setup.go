package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Setup is done once for all sandboxes of a profile. The result, a template, is their image.
type Setup struct {
	Copy    []SetupCopy  `yaml:"copy" json:"copy" jsonschema:"description=Files and directories of the host that root copies in\\, before run"`
	Run     []string     `yaml:"run" json:"run" jsonschema:"description=Commands for the image's shell\\, as root inside\\, each in a sandbox of its own"`
	Profile string       `yaml:"profile" json:"profile" jsonschema:"description=Profile of these sandboxes\\, with its limits and network; empty is compat"`
	Network SetupNetwork `yaml:"network" json:"network"`
}

// SetupCopy is a file or directory that is copied in.
type SetupCopy struct {
	From string `yaml:"from" json:"from" jsonschema:"description=Absolute path on the host; of a directory the content is copied"`
	To   string `yaml:"to" json:"to" jsonschema:"description=Absolute path inside; one that ends with a slash is a directory"`
}

// SetupNetwork says how far the commands of a set-up reach.
type SetupNetwork struct {
	Mode  string   `yaml:"mode" json:"mode" jsonschema:"description=Absent is allow where allow names something\\, else that of setup.profile,enum=none,enum=allow,enum=open,enum=bridge"`
	Allow []string `yaml:"allow" json:"allow" jsonschema:"description=Destinations that may be reached while the commands run\\, as in network"`
	Deny  []string `yaml:"deny" json:"deny" jsonschema:"description=Destinations that may not"`
}

// Empty reports whether s does nothing.
func (s Setup) Empty() bool { return len(s.Copy) == 0 && len(s.Run) == 0 }

// Bounds of a set-up.
const (
	maxSetupSteps   = 128         // of either kind
	maxSetupCommand = 128<<10 - 1 // bytes: the kernel's bound of an argument (MAX_ARG_STRLEN)
)

// imagePart matches names of profiles that can be part of an image's name, as a template's needs.
var imagePart = regexp.MustCompile(`^[a-z0-9]+([._-][a-z0-9]+)*$`)

// validateSetup refuses set-ups that could never succeed.
func (c *Config) validateSetup(profile string, s Setup) (errs []error) {
	refuse := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("profiles.%s.setup%s", profile, fmt.Sprintf(format, args...)))
	}
	if s.Empty() {
		if s.Profile != "" || s.Network.Mode != "" || len(s.Network.Allow)+len(s.Network.Deny) > 0 {
			refuse(": has neither run nor copy: give one of them")
		}
		return errs
	}
	if !imagePart.MatchString(profile) {
		refuse(": the name of the profile cannot be part of an image's: give lower-case letters and digits, with one of _ . - between them")
	}
	switch steps, known := c.Profiles[s.Profile]; {
	case s.Profile == "":
	case !known && !slices.Contains(builtins, s.Profile):
		refuse(".profile: there is no profile %q", s.Profile)
	case steps.Isolation == isolationNone:
		refuse(".profile: %q has isolation none: a set-up happens in sandboxes", s.Profile)
	}
	for key, n := range map[string]int{"copy": len(s.Copy), "run": len(s.Run)} {
		if n > maxSetupSteps {
			refuse(".%s: has %d entries, at most %d", key, n, maxSetupSteps)
		}
	}
	for n, script := range s.Run {
		switch {
		case strings.TrimSpace(script) == "":
			refuse(".run[%d]: is empty", n)
		case len(script) > maxSetupCommand || strings.ContainsRune(script, 0):
			refuse(".run[%d]: has %d bytes, at most %d, and none may be zero: copy a script in", n, len(script), maxSetupCommand)
		}
	}
	for n, c := range s.Copy {
		if err := c.validate(); err != nil {
			refuse(".copy[%d]%v", n, err)
		}
	}
	return errs
}

func (c SetupCopy) validate() error {
	switch {
	case !filepath.IsAbs(c.From):
		return fmt.Errorf(".from: %q is no absolute path of the host", c.From)
	case strings.ContainsAny(c.From, `*?[\`):
		return fmt.Errorf(`.from: %q holds one of * ? [ \: name one file or directory`, c.From)
	case !path.IsAbs(c.To):
		return fmt.Errorf(".to: %q is no absolute path inside", c.To)
	case slices.Contains(strings.Split(c.To, "/"), ".."):
		return fmt.Errorf(".to: %q holds ..: give the path that it leads to", c.To)
	}
	_, err := os.Stat(c.From)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf(".from: there is no %q on the host", c.From)
	}
	if err != nil {
		return fmt.Errorf(".from: %w", err)
	}
	return nil
}
