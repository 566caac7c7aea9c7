package runtime

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"syscall"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/initproto"
	"github.com/caisson-run/caisson/owndir"
	"github.com/caisson-run/caisson/runtime/pid1"
)

// ends is what a PID 1 left to which no daemon came back within the orphan grace.
type ends struct {
	at       time.Time // zero: it left nothing
	whole    bool      // all of it had room
	commands map[uint32]pid1.Left
}

// openEnds opens the file for PID 1, empty.
func (h *host) openEnds(id string) (*os.File, error) {
	path := h.paths.ends(id)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_TRUNC|syscall.O_NOFOLLOW, 0)
	return f, sbxerr.Wrap(sbxerr.StateDir, "runtime.ends", err)
}

// readEnds reads the file of a PID 1 that has ended.
func (h *host) readEnds(id string) (ends, error) {
	path := h.paths.ends(id)
	data, err := owndir.ReadFile(path, initproto.EndsSize)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(data) == 0 {
		return ends{}, nil
	}
	if err != nil {
		return ends{}, sbxerr.Wrap(sbxerr.StateDir, "runtime.ends", err)
	}
	info, err := os.Lstat(path)
	if err != nil {
		return ends{}, sbxerr.Wrap(sbxerr.StateDir, "runtime.ends", err)
	}
	commands, whole := pid1.DecodeEnds(data)
	return ends{info.ModTime(), whole, commands}, nil
}

// endAsLeft has e, of which PID 1 knows nothing any more, be over as the file says.
func (h *host) endAsLeft(ctx context.Context, e *execution, left ends) {
	of := left.commands[e.number()]
	_, outErr := e.stdout.Write(of.Stdout)
	_, errErr := e.stderr.Write(of.Stderr)
	if err := errors.Join(outErr, errErr); err != nil {
		h.log.Warn("keep what a command wrote without a daemon", "sandbox", e.s.id, "exec", e.number(), "err", err)
	}
	e.record.EndedAt = left.at
	if of.Exit == nil {
		e.record.Result = lostResult(e, "no daemon came back within orphan_grace: the command ended with its sandbox")
	} else {
		e.record.Ending = &ending{
			Exit: *of.Exit, Known: true, Reason: exitReason(*of.Exit), Duration: max(0, left.at.Sub(e.record.StartedAt).Round(time.Millisecond)),
		}
		h.completeEnding(ctx, e)
	}
	if !left.whole {
		e.record.Result.Warnings = append(e.record.Result.Warnings, "what commands wrote last had no room where PID 1 keeps it")
	}
	if err := e.s.log.Put(e.number(), e.record); err != nil {
		h.log.Warn("keep result", "sandbox", e.s.id, "exec", e.number(), "err", err)
	}
}

// finishEnds returns when all that this daemon has begun to tell of the commands
// of s, which it leaves, is kept. It reports whether the command that s is for
// was among them: then there is nothing to leave, and s ends like any other.
func (h *host) finishEnds(ctx context.Context, s *sandbox) (over bool) {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout+h.opts.Timeouts.Start) // above what each step of that may take
	defer cancel()
	for _, e := range s.executions() {
		if !s.isConcluding(e) {
			continue
		}
		if err := wait(ctx, e.kept); err != nil {
			h.log.Error("keep result", "sandbox", s.id, "exec", e.number(), "err", err)
			return false
		}
		over = over || s.isMain(e)
	}
	if over {
		for _, e := range s.stay() {
			go h.watch(context.WithoutCancel(ctx), e)
		}
	}
	return over
}
