package owndir

import (
	"errors"
	"os"
	"path/filepath"
)

// Next is where WriteFile writes before the file at path is replaced. A killed process leaves it.
func Next(path string) string { return path + ".new" }

// WriteFile replaces the file at path, which root alone can read, in one step. After it, the new
// content outlives a loss of power.
func WriteFile(path string, data []byte) error {
	next := Next(path)
	f, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := Rename(next, filepath.Base(path)); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// syncDir keeps the names in a directory.
func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
