package plan

import (
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime/pid1"
)

// CheckLowered refuses what is above the hard limits that a process has.
func CheckLowered(asked []pid1.Rlimit, have []specs.POSIXRlimit) error {
	var errs []error
	for _, h := range have {
		for _, a := range asked {
			if a.Resource == RlimitNumbers[h.Type] && a.Hard > h.Hard {
				errs = append(errs, fmt.Errorf("%s: %s:%s was asked for, and the sandbox's hard limit is %s", h.Type, rlimitText(a.Soft), rlimitText(a.Hard), rlimitText(h.Hard)))
			}
		}
	}
	return sbxerr.WithRemedy(sbxerr.Config, "runtime.plan", errors.Join(errs...),
		"ask for no more than the sandbox has: a command may only lower its limits. A sandbox has more RLIMIT_NOFILE by --open-files, and more RLIMIT_NPROC by --pids")
}

func rlimitText(n uint64) string {
	if n == math.MaxUint64 {
		return "unlimited"
	}
	return strconv.FormatUint(n, 10)
}
