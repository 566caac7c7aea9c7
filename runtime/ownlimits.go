package runtime

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime/plan"
)

// ownRlimits returns the limits of this process where it may not raise them:
// what it cannot have, it cannot give to a sandbox. With CAP_SYS_RESOURCE
// nothing bounds it, and the list is empty.
func ownRlimits() ([]specs.POSIXRlimit, error) {
	const op = "runtime.rlimits"
	mayRaise, err := hasCapability(unix.CAP_SYS_RESOURCE)
	if err != nil || mayRaise {
		return nil, sbxerr.Wrap(sbxerr.Internal, op, err)
	}
	var out []specs.POSIXRlimit
	for name, n := range plan.RlimitNumbers {
		var l unix.Rlimit
		if err := unix.Getrlimit(n, &l); err != nil {
			return nil, sbxerr.Wrap(sbxerr.Internal, op, fmt.Errorf("read %s: %w", name, err))
		}
		out = append(out, specs.POSIXRlimit{Type: name, Soft: l.Cur, Hard: l.Max})
	}
	return out, nil
}

// setRlimits gives the process pid the limits that are declared for it. It takes
// CAP_SYS_RESOURCE over the process (prlimit(2)), which the owner of its user
// namespace has: where that is refused, the process is in another one.
func setRlimits(pid int, limits []specs.POSIXRlimit) error {
	for _, l := range limits {
		n, ok := plan.RlimitNumbers[l.Type]
		if !ok {
			return sbxerr.New(sbxerr.Internal, "runtime.rlimits", "unknown limit %s", l.Type)
		}
		err := unix.Prlimit(pid, n, &unix.Rlimit{Cur: l.Soft, Max: l.Hard}, nil)
		if errors.Is(err, unix.ESRCH) {
			return sbxerr.New(sbxerr.Init, "runtime.rlimits", "PID 1 ended before it was started")
		}
		if err != nil {
			return sbxerr.Wrap(sbxerr.Posture, "runtime.rlimits", fmt.Errorf("set %s to %d, %d: %w", l.Type, l.Soft, l.Hard, err))
		}
	}
	return nil
}

// MayRaiseLimits reports whether this process may give a sandbox resource
// limits above its own.
func MayRaiseLimits() bool {
	may, err := hasCapability(unix.CAP_SYS_RESOURCE)
	return err == nil && may
}

// hasCapability reports whether this process has a capability in effect.
func hasCapability(capability uint) (bool, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return false, fmt.Errorf("read own capabilities: %w", err)
	}
	return data[capability/32].Effective&(1<<(capability%32)) != 0, nil
}

// ownOOMScoreAdj reads this process's oom_score_adj, which a child without
// CAP_SYS_RESOURCE cannot go below (proc(5)).
func ownOOMScoreAdj() (int, error) {
	data, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		return 0, sbxerr.Wrap(sbxerr.Internal, "runtime.oom", err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(data)))
	return n, sbxerr.Wrap(sbxerr.Internal, "runtime.oom", err)
}
