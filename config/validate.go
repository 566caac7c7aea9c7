package config

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// maxSocketPath is what sun_path holds, less the final NUL (unix(7)).
const maxSocketPath = 107

// maxRatio is more than any compression that archives use can reach.
const maxRatio = 1 << 20

// blockSize is the ids of one sandbox.
const blockSize = 65536

// lastHostID is the greatest id that a block may hold: ids from 2^31 on are
// taken for negative by some programs (CVE-2024-40635).
const lastHostID = 1<<31 - 1

// Validate reports all that is wrong with a completed configuration.
func (c *Config) Validate() error {
	errs := []error{
		absolute("root", c.Root), absolute("state", c.State), absolute("socket", c.Socket), c.validateCgroup(),
		c.validatePaths(), c.validateIDs(), c.validateProfiles(), c.validateSecrets(), c.validateUnisolated(),
		c.validateSandboxes(), c.validatePools(), c.validatePeers(), c.validateListen(), c.Network.validateProxy(), c.validateAudit(), c.validateMetrics(), c.validatePage(), c.validateWebhooks(), c.validateTelemetry(), c.Registries.validate(),
		oneOf("log.level", c.Log.Level, "debug", "info", "warn", "error"),
		oneOf("log.format", c.Log.Format, "text", "json"),
	}
	errs = append(errs, c.Workspaces.validate()...)
	errs = append(errs, c.Snapshots.validate()...)
	for language, image := range c.Images.Languages {
		if !profileName.MatchString(language) || image == "" {
			errs = append(errs, fmt.Errorf("images.languages: %q: %q is no language and image, give one such as python: registry.example.com/python:3.12", language, image))
		}
	}
	if c.Images.MaxBytes <= 0 || c.Images.MaxEntries <= 0 {
		errs = append(errs, errors.New("images.max_bytes and images.max_entries must be above 0"))
	}
	if _, err := c.Images.Prune.Free(1); err != nil {
		errs = append(errs, fmt.Errorf("images.prune.min_free: %w", err))
	}
	if c.Images.Prune.UnusedFor < 0 {
		errs = append(errs, fmt.Errorf("images.prune.unused_for: %s is negative", time.Duration(c.Images.Prune.UnusedFor)))
	}
	if c.Images.MaxRatio <= 0 || c.Images.MaxRatio > maxRatio {
		errs = append(errs, fmt.Errorf("images.max_ratio: %d is not in 1 to %d", c.Images.MaxRatio, maxRatio))
	}
	if c.StopGrace < 0 || c.IdleTimeout < 0 {
		errs = append(errs, errors.New("stop_grace and idle_timeout must not be negative"))
	}
	errs = append(errs, c.validateTimeouts())
	return sbxerr.Wrap(sbxerr.DaemonConf, "config.validate", errors.Join(errs...))
}

func absolute(key, path string) error {
	if !filepath.IsAbs(path) || filepath.Clean(path) != path || path == "/" {
		return fmt.Errorf("%s: %q is not a clean absolute path below /", key, path)
	}
	return nil
}

func oneOf(key, value string, allowed ...string) error {
	if !slices.Contains(allowed, value) {
		return fmt.Errorf("%s: %q is none of %q", key, value, allowed)
	}
	return nil
}

func (c *Config) validatePaths() error {
	var errs []error
	if len(c.Socket) > maxSocketPath {
		errs = append(errs, fmt.Errorf("socket: %q is longer than %d bytes", c.Socket, maxSocketPath))
	}
	if c.Root == c.State {
		errs = append(errs, errors.New("root and state must be two directories"))
	}
	if c.Containerd.Address != "" {
		errs = append(errs, absolute("containerd.address", c.Containerd.Address))
	}
	if c.BinDir != "" {
		errs = append(errs, absolute("bin_dir", c.BinDir))
	}
	return errors.Join(errs...)
}

func (c *Config) validateIDs() error {
	if c.IDs.Blocks == 0 || c.IDs.Blocks > 16384 {
		return fmt.Errorf("ids.blocks: %d is not in 1 to 16384", c.IDs.Blocks)
	}
	if c.IDs.Base == 0 {
		return nil
	}
	if c.IDs.Base < blockSize {
		return fmt.Errorf("ids.base: %d overlaps the host's own ids, give at least %d", c.IDs.Base, blockSize)
	}
	if end := uint64(c.IDs.Base) + uint64(c.IDs.Blocks)*blockSize; end > lastHostID+1 {
		return fmt.Errorf("ids: the range ends at %d, past %d", end-1, lastHostID)
	}
	return nil
}

var groupName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

func (c *Config) validateCgroup() error {
	if !groupName.MatchString(c.Cgroup.Parent) {
		return fmt.Errorf("cgroup.parent: %q is no name: give lower-case letters, digits, - and _", c.Cgroup.Parent)
	}
	return nil
}

var profileName = regexp.MustCompile(`^[a-z0-9][a-z0-9_.-]{0,62}$`)

func (c *Config) validateProfiles() error {
	var errs []error
	for name, p := range c.Profiles {
		if !profileName.MatchString(name) {
			errs = append(errs, fmt.Errorf("profiles: %q is no name: give lower-case letters, digits, and _ . - between them", name))
		}
		if p.PIDs < 0 || p.Files < 0 {
			errs = append(errs, fmt.Errorf("profiles.%s: pids and open_files must be above 0", name))
		}
		if p.Alerts.Refusals < 0 {
			errs = append(errs, fmt.Errorf("profiles.%s.alerts.refusals: %d is negative", name, p.Alerts.Refusals))
		}
		errs = append(errs, c.validateSetup(name, p.Setup)...)
		for _, kv := range p.Env {
			if k, _, ok := strings.Cut(kv, "="); !ok || k == "" {
				errs = append(errs, fmt.Errorf("profiles.%s.env: %q is not NAME=VALUE", name, kv))
			}
		}
	}
	return errors.Join(errs...)
}
