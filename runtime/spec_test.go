package runtime

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/api/sbxerr/errtest"
	"github.com/caisson-run/caisson/oci"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/seccomp"
)

func TestSpec(t *testing.T) {
	f := newFixture(t)
	v, err := f.Spec(callerContext(t), plan.Request{Create: plan.CreateRequest{Profile: "debug", Workspace: &plan.WorkspaceRequest{Dir: f.dir, Mode: "ro"}}, Exec: plan.ExecRequest{Args: []string{"true"}}})
	if err != nil {
		t.Fatal(err)
	}
	var spec specs.Spec
	if err := json.Unmarshal(v.SpecJSON, &spec); err != nil {
		t.Fatal(err)
	}
	if err := oci.Verify(&spec); err != nil {
		t.Error(err)
	}
	if v.SeccompProfile != "debug" || len(v.SeccompRules) == 0 || len(v.NetworkRules) == 0 || v.CgroupValues["memory.max"] != "536870912" {
		t.Errorf("view %+v", v)
	}
	if lines := strings.Join(v.Mounts, "\n"); !strings.Contains(lines, "/workspace") {
		t.Errorf("mounts:\n%s", lines)
	}
	if spec.Process.Args[0] != "/run/caisson/caisson-init" || spec.Linux.UIDMappings[0].HostID != 1879048192 {
		t.Errorf("process %+v, ids %+v", spec.Process, spec.Linux.UIDMappings)
	}
	_, err = f.Spec(callerContext(t), plan.Request{})
	errtest.Want(t, err, sbxerr.Config, "no command")
	f.groups.Controllers = nil
	_, err = f.Spec(callerContext(t), request("true"))
	errtest.Want(t, err, sbxerr.CgroupController)
	f.wantNothingLeft(t) // it only looks
}

func TestOwnLimits(t *testing.T) {
	may := MayRaiseLimits()
	limits, err := ownRlimits()
	if err != nil || may != (len(limits) == 0) || (!may && len(limits) != len(plan.RlimitNumbers)) {
		t.Errorf("may raise %v, own %+v, %v", may, limits, err)
	}
	score, err := ownOOMScoreAdj()
	if err != nil || score < -1000 || score > 1000 {
		t.Errorf("oom_score_adj %d, %v", score, err)
	}
}

// The pseudo filter code is of the filter that the run would get.
func TestPseudoFilter(t *testing.T) {
	if _, err := seccomp.Library(); err != nil {
		t.Skip(err) // built without cgo: PseudoFilter refuses then
	}
	f := newFixture(t)
	for profile, traces := range map[string]bool{"strict": false, "debug": true} {
		text, err := f.PseudoFilter(callerContext(t), plan.Request{Create: plan.CreateRequest{Profile: profile}, Exec: plan.ExecRequest{Args: []string{"true"}}})
		if err != nil || !strings.Contains(text, `"openat"`) || strings.Contains(text, `"ptrace"`) != traces {
			t.Errorf("%s: %v\n%.300s", profile, err, text)
		}
	}
	_, err := f.PseudoFilter(callerContext(t), plan.Request{})
	errtest.Want(t, err, sbxerr.Config, "no command")
}
