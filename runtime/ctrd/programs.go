package ctrd

import (
	"context"
	"errors"
	"path/filepath"
	"strings"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime/ctrd/shimcall"
)

// ShimProgram is the file name of what a containerd of ours runs as its shim.
const ShimProgram = "caisson-shim"

// EnginePrograms are the file names of what belongs to a containerd of ours.
func EnginePrograms() []string { return []string{"containerd", ShimProgram, shimcall.Program} }

// ProgramVersions asks the programs in binDir for their versions.
func ProgramVersions(ctx context.Context, binDir string) (containerd, runc string, err error) {
	containerd, cErr := containerdVersion(ctx, filepath.Join(binDir, "containerd"))
	runc, rErr := runcVersion(ctx, filepath.Join(binDir, "runc"))
	return containerd, runc, errors.Join(cErr, rErr)
}

func containerdVersion(ctx context.Context, path string) (string, error) {
	out, err := versionOutput(ctx, path)
	if err != nil {
		return "", err
	}
	// "containerd github.com/containerd/containerd/v2 v2.4.2 REVISION"
	fields := strings.Fields(out)
	if len(fields) < 3 || fields[0] != "containerd" {
		return "", sbxerr.New(sbxerr.EngineVersion, "ctrd.versions", "parse version of %q: %.100q", path, out)
	}
	return fields[2], nil
}
