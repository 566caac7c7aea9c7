package runtime

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime/pid1"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/runtime/posture"
)

// checkRlimits refuses limits above those of PID 1, which are what a command of s
// has where it names none, and which none of them may raise. Where they cannot be
// read, PID 1 is gone, or the kernel says which it refuses.
func (s *sandbox) checkRlimits(asked []pid1.Rlimit) error {
	if len(asked) == 0 {
		return nil
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", s.process.pid))
	if err != nil {
		return nil // see above
	}
	have, err := posture.ParseLimits(string(text))
	if err != nil {
		return sbxerr.Wrap(sbxerr.Internal, "runtime.rlimits", err)
	}
	return belowRlimits(asked, have)
}

// belowRlimits refuses what is above the hard limits that a process has.
func belowRlimits(asked []pid1.Rlimit, have []specs.POSIXRlimit) error {
	var errs []error
	for _, h := range have {
		for _, a := range asked {
			if a.Resource == plan.RlimitNumbers[h.Type] && a.Hard > h.Hard {
				errs = append(errs, fmt.Errorf("%s: %s:%s was asked for, and the sandbox's hard limit is %s", h.Type, rlimitText(a.Soft), rlimitText(a.Hard), rlimitText(h.Hard)))
			}
		}
	}
	return sbxerr.WithRemedy(sbxerr.Config, "runtime.rlimits", errors.Join(errs...),
		"ask for no more than the sandbox has: a command may only lower its limits. A sandbox has more RLIMIT_NOFILE by --open-files, and more RLIMIT_NPROC by --pids")
}

func rlimitText(n uint64) string {
	if n == math.MaxUint64 {
		return "unlimited"
	}
	return strconv.FormatUint(n, 10)
}
