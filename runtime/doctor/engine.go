package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/runtime/ctrd"
	"github.com/caisson-run/caisson/seccomp"
)

// ownPrograms are needed with any engine.
var ownPrograms = []string{"caisson-init", "caisson-gateway", "caisson-images", "runc"}

func examineEngine(ctx context.Context, h Host) []runtime.Check {
	found := examinePrograms(h)
	versions := h.Engine
	if versions == nil && h.External {
		return append(found, examineRunc(ctx, h)...) // the daemon asks it when it connects
	}
	if versions == nil {
		versions = func(ctx context.Context) (string, string, error) { return ctrd.ProgramVersions(ctx, h.BinDir) }
	}
	containerd, runc, err := versions(ctx)
	if err != nil {
		return append(found, problem("engine versions", Fail, sbxerr.EngineVersion, err)...)
	}
	found = append(found, versionCheck("containerd", containerd, ctrd.CheckContainerd(containerd)))
	found = append(found, versionCheck("runc", runc, ctrd.CheckRunc(runc)))
	return append(found, examineRunc(ctx, h)...)
}

func examinePrograms(h Host) []runtime.Check {
	const name = "programs"
	programs := slices.Clone(ownPrograms)
	if !h.External {
		programs = append(programs, ctrd.EnginePrograms()...)
	}
	var errs []error
	for _, p := range programs {
		st, err := os.Stat(filepath.Join(h.BinDir, p))
		if err == nil && (!st.Mode().IsRegular() || st.Mode()&0o111 == 0) {
			err = fmt.Errorf("%q cannot be executed", p)
		}
		if err == nil && st.Mode()&0o022 != 0 {
			err = fmt.Errorf("%q can be written by others than its owner", p)
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return problem(name, Fail, sbxerr.Binary, err)
	}
	return ok(name, strings.Join(programs, ", ")+" in "+h.BinDir)
}

func versionCheck(name, version string, f ctrd.VersionFinding) runtime.Check {
	c := runtime.Check{Name: name + " version", Status: OK, Detail: version}
	if f.Severity == ctrd.Fine {
		return c
	}
	c.Status = Fail
	d, _ := sbxerr.Describe(sbxerr.EngineVersion)
	c.Detail, c.Code, c.Remedy = version+": "+f.Reason, string(sbxerr.EngineVersion), d.Remedy
	if f.Severity == ctrd.Warned {
		c.Status = Warn
		c.Remedy = "sandboxes run: other barriers cover it. Update caisson, or a containerd or runc of the host, when there is a newer one"
	}
	return c
}

// runcFeatures is the part of `runc features` that a sandbox rests on
// (runtime-spec, features.md).
type runcFeatures struct {
	Annotations map[string]string
	Linux       struct {
		Namespaces []string
		Seccomp    struct{ Enabled *bool }
	}
}

func examineRunc(ctx context.Context, h Host) []runtime.Check {
	const name = "runc seccomp"
	cmd := exec.CommandContext(ctx, filepath.Join(h.BinDir, "runc"), "features")
	cmd.Env = []string{}
	out, err := cmd.Output()
	if err != nil {
		return problem(name, Fail, sbxerr.Seccomp, fmt.Errorf("ask runc for its features: %w", err))
	}
	var f runcFeatures
	if err := json.Unmarshal(out, &f); err != nil {
		return problem(name, Fail, sbxerr.Seccomp, fmt.Errorf("read runc's features: %w", err))
	}
	if f.Linux.Seccomp.Enabled == nil || !*f.Linux.Seccomp.Enabled {
		return problem(name, Fail, sbxerr.Seccomp, errors.New("this runc was built without seccomp: it would run sandboxes unfiltered"))
	}
	return judgeLibrary(name, f.Annotations["io.github.seccomp.libseccomp.version"])
}

// judgeLibrary compares the libseccomp of runc with the daemon's, by which the filters of
// sandboxes are checked. Another one may know other system calls.
func judgeLibrary(name, ofRunc string) []runtime.Check {
	own, err := seccomp.Library()
	if err != nil || ofRunc == "" { // examineInForce tells why there is none
		return ok(name, "built in")
	}
	if ofRunc != own {
		return []runtime.Check{{
			Name: name, Status: Warn, Detail: fmt.Sprintf("runc has libseccomp %q, the daemon %q: where they know other system calls, every sandbox is refused", ofRunc, own),
			Code: string(sbxerr.Posture), Remedy: "use the runc of this installation",
		}}
	}
	return ok(name, "built in, libseccomp "+own)
}
