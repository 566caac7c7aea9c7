package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// resolve replaces Root and State by the directories that their symbolic links lead
// to, since the daemon follows no link when it changes its own directories. The socket
// and the instance keep the names that follow from the configured paths: clients and an
// earlier daemon know them.
func (c *Config) resolve() error {
	c.instance = c.Instance()
	var errs []error
	for _, d := range []struct {
		key  string
		path *string
	}{{"root", &c.Root}, {"state", &c.State}} {
		if absolute(d.key, *d.path) != nil { // Validate refuses it
			continue
		}
		resolved, err := resolveExisting(*d.path)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: follow the symbolic links of %q: %w", d.key, *d.path, err))
			continue
		}
		*d.path = resolved
	}
	return sbxerr.Wrap(sbxerr.StateDir, "config.resolve", errors.Join(errs...))
}

// resolveExisting follows the links in the part of path that exists. The rest is made
// later, without links. A link that leads nowhere is an error: nothing can be made in
// its place.
func resolveExisting(path string) (string, error) {
	_, err := os.Lstat(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return filepath.EvalSymlinks(path)
	}
	parent, err := resolveExisting(filepath.Dir(path))
	if err != nil {
		return "", err
	}
	return filepath.Join(parent, filepath.Base(path)), nil
}
