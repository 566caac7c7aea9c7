package runtime

import (
	"errors"
	"fmt"

	"golang.org/x/time/rate"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime/output"
	"github.com/caisson-run/caisson/runtime/plan"
)

// boundOutput refuses a command that may keep more than is kept of all of its
// sandbox: it would be lost as soon as the command ends. Where none is asked for,
// the limit is what fits.
func (h *host) boundOutput(r plan.ExecRequest, p *plan.Command) error {
	most := h.opts.KeptOutput
	if p.TTY == nil { // there are two streams
		most /= 2
	}
	most = max(most, 2)
	if r.OutputLimit == nil {
		p.OutputLimit = min(p.OutputLimit, most)
	}
	if p.OutputLimit <= most {
		return nil
	}
	return sbxerr.WithRemedy(sbxerr.Limits, "runtime.plan", fmt.Errorf("output limit %d: %w", p.OutputLimit, errors.New(h.keptSays(p))),
		fmt.Sprintf("give at most %d bytes, write to a file in the sandbox, or raise sandboxes.kept_output", most))
}

func (h *host) keptSays(p *plan.Command) string {
	if p.TTY != nil {
		return fmt.Sprintf("of one sandbox %d bytes are kept (sandboxes.kept_output)", h.opts.KeptOutput)
	}
	return fmt.Sprintf("it is for each of two streams, and of one sandbox %d bytes are kept (sandboxes.kept_output)", h.opts.KeptOutput)
}

// discardRate is how fast output is read that nobody reads or keeps, in bytes a second:
// each CPU of the sandbox's limit costs the daemon about a twentieth of one.
func discardRate(milliCPU int64) rate.Limit { return rate.Limit(milliCPU * (128 << 20) / 1000) }

// outputRoom is what the commands of one sandbox may have on the disk together
// while they run, or something that they left may write: as much as is kept of ended
// ones, and what one command at its limits has beyond them before that is cut.
func (o Options) outputRoom() *output.Room {
	return output.NewRoom(o.KeptOutput + o.KeptOutput/4 + 4<<20)
}
