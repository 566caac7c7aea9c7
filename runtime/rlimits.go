package runtime

import (
	"fmt"
	"os"

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
	return plan.CheckLowered(asked, have)
}
