package runtime

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/caisson-run/caisson/runtime/pid1"
	"github.com/caisson-run/caisson/runtime/posture"
	"github.com/caisson-run/caisson/sbxerr"
)

// rlimits are those that r names, as the kernel numbers them.
func (r ExecRequest) rlimits() ([]pid1.Rlimit, error) {
	if err := atMost(len(r.Rlimits), maxRlimits, "resource limits"); err != nil {
		return nil, err
	}
	var out []pid1.Rlimit
	var errs []error
	for _, l := range r.Rlimits {
		n, ok := rlimitNumbers[l.Name]
		if !ok {
			errs = append(errs, invalidName("resource limit", l.Name, slices.Sorted(maps.Keys(rlimitNumbers))))
			continue
		}
		if l.Soft > l.Hard {
			errs = append(errs, invalid("%s: the soft limit %d is above the hard limit %d", l.Name, l.Soft, l.Hard))
		}
		out = append(out, pid1.Rlimit{Resource: n, Soft: l.Soft, Hard: l.Hard})
	}
	return out, errors.Join(errs...)
}

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
			if a.Resource == rlimitNumbers[h.Type] && a.Hard > h.Hard {
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
