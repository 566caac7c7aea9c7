package runtime

import (
	"math"
	"os"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/api/sbxerr/errtest"
	"github.com/caisson-run/caisson/runtime/pid1"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/runtime/posture"
)

// TestRlimitNames: a request can name every limit that the kernel tells of.
func TestRlimitNames(t *testing.T) {
	text, err := os.ReadFile("/proc/self/limits")
	if err != nil {
		t.Fatal(err)
	}
	have, err := posture.ParseLimits(string(text))
	if err != nil || len(have) != plan.MaxRlimits || len(plan.RlimitNumbers) != plan.MaxRlimits {
		t.Fatalf("the kernel has %d limits, %d are known by name, %d may be given: %v", len(have), len(plan.RlimitNumbers), plan.MaxRlimits, err)
	}
	seen := map[int]bool{}
	for _, l := range have {
		n, ok := plan.RlimitNumbers[l.Type]
		if !ok || seen[n] {
			t.Errorf("%s is not known, or %d is two limits", l.Type, n)
		}
		seen[n] = true
	}
}

func TestRlimitsAreOnlyLowered(t *testing.T) {
	have := []specs.POSIXRlimit{{Type: "RLIMIT_NOFILE", Soft: 1024, Hard: 4096}, {Type: "RLIMIT_CPU", Soft: math.MaxUint64, Hard: math.MaxUint64}}
	for _, l := range []pid1.Rlimit{
		{Resource: unix.RLIMIT_NOFILE, Soft: 4096, Hard: 4096}, {Resource: unix.RLIMIT_NOFILE}, {Resource: unix.RLIMIT_CPU, Soft: 1, Hard: math.MaxUint64},
	} {
		if err := belowRlimits([]pid1.Rlimit{l}, have); err != nil {
			t.Errorf("%+v: %v", l, err)
		}
	}
	err := belowRlimits([]pid1.Rlimit{{Resource: unix.RLIMIT_NOFILE, Soft: 64, Hard: math.MaxUint64}}, have)
	errtest.Want(t, err, sbxerr.Config, "RLIMIT_NOFILE: 64:unlimited was asked for, and the sandbox's hard limit is 4096")
}
