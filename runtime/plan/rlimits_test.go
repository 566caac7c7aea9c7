package plan

import (
	"math"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/api/sbxerr/errtest"
	"github.com/caisson-run/caisson/runtime/pid1"
)

func TestRlimitsAreOnlyLowered(t *testing.T) {
	have := []specs.POSIXRlimit{{Type: "RLIMIT_NOFILE", Soft: 1024, Hard: 4096}, {Type: "RLIMIT_CPU", Soft: math.MaxUint64, Hard: math.MaxUint64}}
	for _, l := range []pid1.Rlimit{
		{Resource: unix.RLIMIT_NOFILE, Soft: 4096, Hard: 4096}, {Resource: unix.RLIMIT_NOFILE}, {Resource: unix.RLIMIT_CPU, Soft: 1, Hard: math.MaxUint64},
	} {
		if err := CheckLowered([]pid1.Rlimit{l}, have); err != nil {
			t.Errorf("%+v: %v", l, err)
		}
	}
	err := CheckLowered([]pid1.Rlimit{{Resource: unix.RLIMIT_NOFILE, Soft: 64, Hard: math.MaxUint64}}, have)
	errtest.Want(t, err, sbxerr.Config, "RLIMIT_NOFILE: 64:unlimited was asked for, and the sandbox's hard limit is 4096")
}
