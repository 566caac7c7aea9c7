package image

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/image/internal/flow"
)

// Bounds of a configuration, below what execve(2) takes (MAX_ARG_STRLEN is
// 128 KiB, all strings together are a quarter of the stack limit).
const (
	maxStrings     = 1024      // entries of each list
	maxString      = 64 << 10  // bytes of one entry
	maxConfigBytes = 256 << 10 // of all entries
)

// Config is the configuration of an image.
type Config struct {
	ocispec.ImageConfig
	ForBuilds
}

// Document is ocispec.Image with ForBuilds.
type Document struct {
	Created *time.Time `json:"created,omitempty"`
	Author  string     `json:"author,omitempty"`
	ocispec.Platform
	Config  Config            `json:"config"`
	RootFS  ocispec.RootFS    `json:"rootfs"`
	History []ocispec.History `json:"history,omitempty"`
}

// Image is d without ForBuilds.
func (d Document) Image() ocispec.Image {
	return ocispec.Image{Created: d.Created, Author: d.Author, Platform: d.Platform, Config: d.Config.ImageConfig, RootFS: d.RootFS, History: d.History}
}

// clean is cleanConfig, and refuses what no build could begin with.
func (c Config) clean() (ocispec.ImageConfig, error) {
	config, err := cleanConfig(c.ImageConfig)
	return config, errors.Join(err, c.ForBuilds.check())
}

// cleanConfig returns the fields of c that an image may set, and an error with
// every reason when one of them makes no sense. Labels, volumes, ports, stop
// signals and all else are not among them (CVE-2022-23648, CVE-2026-53488).
func cleanConfig(c ocispec.ImageConfig) (ocispec.ImageConfig, error) {
	dir, dirErr := cleanWorkingDir(c.WorkingDir)
	err := errors.Join(
		checkStrings("env", c.Env),
		checkStrings("entrypoint", c.Entrypoint),
		checkStrings("cmd", c.Cmd),
		checkConfigSize(c),
		checkEnv(c.Env),
		checkConfigUser(c.User),
		dirErr,
	)
	return ocispec.ImageConfig{
		User:       c.User,
		Env:        MergeEnv(c.Env),
		Entrypoint: slices.Clone(c.Entrypoint),
		Cmd:        slices.Clone(c.Cmd),
		WorkingDir: dir,
	}, sbxerr.Wrap(sbxerr.ImageContent, "image.config", err)
}

func checkStrings(what string, list []string) error {
	if len(list) > maxStrings {
		return fmt.Errorf("%s has %d entries: at most %d", what, len(list), maxStrings)
	}
	var errs []error
	for _, s := range list {
		switch {
		case len(s) > maxString:
			errs = append(errs, fmt.Errorf("an entry of %s has %d bytes: at most %d", what, len(s), maxString))
		case strings.ContainsRune(s, 0):
			errs = append(errs, fmt.Errorf("%s %s holds a NUL", what, flow.Quote(s)))
		case !utf8.ValidString(s):
			errs = append(errs, fmt.Errorf("%s %s is not UTF-8", what, flow.Quote(s)))
		}
	}
	return errors.Join(errs...)
}

func checkConfigSize(c ocispec.ImageConfig) error {
	n := 0
	for _, s := range slices.Concat(c.Env, c.Entrypoint, c.Cmd) {
		n += len(s) + 1
	}
	if n > maxConfigBytes {
		return fmt.Errorf("env, entrypoint and cmd have %d bytes: at most %d", n, maxConfigBytes)
	}
	return nil
}

func checkEnv(env []string) error {
	var errs []error
	for _, kv := range env {
		if strings.Index(kv, "=") < 1 {
			errs = append(errs, fmt.Errorf("env %s is not of the form NAME=VALUE", flow.Quote(kv)))
		}
	}
	return errors.Join(errs...)
}

// MergeEnv joins lists of NAME=VALUE. The last value of a name wins, at the place of the
// first: getenv(3) would return the first value, shells the last.
func MergeEnv(lists ...[]string) []string {
	at := map[string]int{}
	var out []string
	for _, kv := range slices.Concat(lists...) {
		name, _, _ := strings.Cut(kv, "=")
		if i, ok := at[name]; ok {
			out[i] = kv
			continue
		}
		at[name] = len(out)
		out = append(out, kv)
	}
	return out
}

func checkConfigUser(user string) error {
	if user == "" {
		return nil
	}
	_, err := parseUser(user)
	return err
}

// cleanWorkingDir refuses directories that are links out of the sandbox's own
// files for a runtime (CVE-2024-21626: /proc/self/fd/7).
func cleanWorkingDir(dir string) (string, error) {
	if dir == "" {
		return "/", nil
	}
	clean := path.Clean(dir)
	switch {
	case len(dir) > MaxPath:
		return "", fmt.Errorf("the working directory has %d bytes: at most %d", len(dir), MaxPath)
	case strings.ContainsRune(dir, 0) || !utf8.ValidString(dir):
		return "", fmt.Errorf("the working directory %s holds a NUL or is not UTF-8", flow.Quote(dir))
	case !path.IsAbs(dir):
		return "", fmt.Errorf("the working directory %s is not absolute", flow.Quote(dir))
	case slices.Contains(strings.Split(dir, "/"), ".."):
		return "", fmt.Errorf("the working directory %s has the component \"..\"", flow.Quote(dir))
	case slices.Contains(specialDirs, strings.Split(clean, "/")[1]):
		return "", fmt.Errorf("the working directory %s is inside /dev, /proc or /sys", flow.Quote(dir))
	}
	return clean, nil
}
