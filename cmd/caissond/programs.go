package main

import (
	"os"
	"path/filepath"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/initproto"
)

// programDirs are where the programs of the installation may be, as seen from
// the daemon's own directory: beside it in a build, apart when installed, so
// that no other containerd and runc land on a user's PATH. A package has a directory
// for each version: while it replaces the programs, a daemon of the old version must find
// its own, and so must the shims of its sandboxes.
func programDirs(version string) []string {
	return []string{".", filepath.Join("../libexec/caisson", version), "../libexec/caisson"}
}

// findPrograms returns the directory that holds the programs of this
// installation. Where there is none it is the daemon's own, and the doctor says
// what is missing there.
func findPrograms() (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", sbxerr.Wrap(sbxerr.Binary, "caissond.path", err)
	}
	exe, err = filepath.EvalSymlinks(exe)
	if err != nil {
		return "", sbxerr.Wrap(sbxerr.Binary, "caissond.path", err)
	}
	return findProgramsFrom(filepath.Dir(exe), version), nil
}

func findProgramsFrom(own, version string) string {
	for _, d := range programDirs(version) {
		dir := filepath.Join(own, d)
		if _, err := os.Stat(filepath.Join(dir, initproto.BinaryName)); err == nil {
			return dir
		}
	}
	return own
}
