package doctor

import (
	"context"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/runtime/posture"
	"github.com/caisson-run/caisson/seccomp"
)

const filtersName = "seccomp filters in force"

// examineInForce tells whether the filter of a sandbox can be compared with the declared
// one. Where it cannot, every sandbox would be refused.
func examineInForce(context.Context, Host) []runtime.Check {
	return judgeInForce(posture.ProbeFilters(), seccomp.Library)
}

func judgeInForce(unreadable error, library func() (string, error)) []runtime.Check {
	const remedy = "run the daemon without a seccomp filter of its own (SystemCallFilter= of its unit, the container that it is in), on a kernel with CONFIG_CHECKPOINT_RESTORE"
	version, err := library()
	if err != nil {
		return problem(filtersName, Fail, sbxerr.SeccompUnread, sbxerr.WithRemedy(sbxerr.SeccompUnread, "doctor.filters", err, "use the caissond of this installation: make build links it with libseccomp"))
	}
	if unreadable != nil {
		return problem(filtersName, Fail, sbxerr.SeccompUnread, sbxerr.WithRemedy(sbxerr.SeccompUnread, "doctor.filters", unreadable, remedy))
	}
	return ok(filtersName, "can be read back, and compared with libseccomp "+version)
}
