package runtime

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/api/settings"
	"github.com/caisson-run/caisson/runtime/output"
	"github.com/caisson-run/caisson/runtime/pid1"
	"github.com/caisson-run/caisson/runtime/pipes"
)

// loadExecs goes on with the commands of s: with those that ended as they are
// kept, with those that PID 1 holds where they are. It returns the latter. One
// that neither knows of is lost, unless an earlier daemon kept how it ended, or PID 1
// did for want of a daemon.
func (h *host) loadExecs(ctx context.Context, s *sandbox, held []pid1.Held, left ends) (running []*execution, err error) {
	byNumber := map[uint32]pid1.Held{}
	for _, held := range held {
		n := held.Exec.Number()
		byNumber[n] = held
		s.update(func() {
			if n&firstOwn != 0 {
				s.lastOwn = max(s.lastOwn, n&^firstOwn)
			} else {
				s.lastExec = max(s.lastExec, n)
			}
		})
	}
	records, err := s.log.Load()
	var errs []error
	for n, r := range records {
		r.Number = n
		e, err := h.loadExec(s, r)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		held, known := byNumber[n]
		delete(byNumber, n)
		switch {
		case !known:
			h.goOnWithout(ctx, e, left)
		case r.Result == nil:
			if !r.Detached && n != s.kept().Main {
				e.parked = places{e.stdout.HoldAll(), e.stderr.HoldAll()}
			}
			e.take(held)
			running = append(running, e)
		default: // what it left may write still, or the daemon ended before it said that the result is kept
			e.pass()
			e.take(held)
		}
		s.knowAgain(e)
	}
	last, lastErr := lastOutput(h.paths.output(s.id), h.paths.spare(s.id))
	errs = append(errs, lastErr)
	s.update(func() {
		slices.SortFunc(s.past, func(a, b *execution) int { return cmp.Compare(a.number(), b.number()) })
		s.running, s.lastExec = len(running), max(s.lastExec, last)
	})
	for _, held := range byNumber { // of which there is no record: nobody can ask for it
		errs = append(errs, h.disown(held))
	}
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, err
	}
	if err := h.loseMain(s); err != nil {
		return nil, err
	}
	s.update(func() { s.unheard = false })
	return running, nil
}

// goOnWithout has e, of which PID 1 knows nothing, be over.
func (h *host) goOnWithout(ctx context.Context, e *execution, left ends) {
	news := e.record.Result == nil
	switch {
	case e.record.Result != nil:
	case e.record.Ending != nil:
		h.completeEnding(ctx, e)
	case !left.at.IsZero():
		h.endAsLeft(ctx, e, left)
	default:
		e.record.Result = lostResult(e, "no daemon saw how the command ended, or that it began")
	}
	if news {
		h.emitEnd(ctx, e, e.record.Result)
	}
	e.pass()
	e.finish()
}

// lastOutput is the number of the newest command that output is kept of in one of dirs.
// Where the records of commands are lost, it is not given to another one.
func lastOutput(dirs ...string) (uint32, error) {
	last := uint64(0)
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return 0, fmt.Errorf("look for kept output: %w", err)
		}
		for _, e := range entries {
			name := strings.TrimSuffix(e.Name(), filepath.Ext(e.Name()))
			if n, err := strconv.ParseUint(name, 10, 32); err == nil {
				last = max(last, n)
			}
		}
	}
	return uint32(last), nil
}

// loseMain notes the command of a detached run whose daemon ended before it noted
// that itself: whoever asks for it is to hear that it never ran.
func (h *host) loseMain(s *sandbox) error {
	r := s.kept()
	if !r.Detached || s.execs[r.Main] != nil {
		return nil
	}
	e, err := h.loadExec(s, execRecord{
		Number: s.lastExec + 1, Args: r.MainArgs, Detached: true, OutputLimit: settings.DefaultOutputLimit, Began: now(), StartedAt: time.Now().Round(0),
	})
	if err != nil {
		return err
	}
	e.record.Result = lostResult(e, "the daemon ended before it started the command")
	if err := s.log.Put(e.number(), e.record); err != nil {
		return err
	}
	e.pass()
	e.finish()
	s.update(func() { s.record.Main = e.number() })
	s.knowAgain(e)
	h.keepRecord(s)
	return nil
}

func (h *host) loadExec(s *sandbox, r execRecord) (*execution, error) {
	stdout, stderr, err := h.stores(output.Open, s, r.Number, r.OutputLimit)
	if err != nil {
		return nil, fmt.Errorf("output of command %d: %w", r.Number, err)
	}
	return newExecution(s, r, stdout, stderr), nil
}

// pass is for a command that had ended before this daemon, and that nobody knows yet.
func (e *execution) pass() {
	e.state = ExecExited
	close(e.settled)
	close(e.done)
	close(e.kept)
}

// knowAgain makes e known, once it is what it will be to this daemon.
func (s *sandbox) knowAgain(e *execution) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.knowLocked(e)
	if e.isDone() && e.number() != s.record.Main {
		s.past = append(s.past, e)
	}
}

// finish is for a command that nothing is left of to write.
func (e *execution) finish() {
	e.stdout.Finish()
	e.stderr.Finish()
	close(e.drained)
}

func lostResult(e *execution, warning string) *Result {
	r := &Result{
		SandboxID: e.s.id, ExecID: number(e.number()), ExitCode: exitKilled, Signal: int(syscall.SIGKILL), Reason: ReasonLost,
		Source: "runtime", Network: string(e.s.kept().Network), Warnings: []string{warning},
	}
	r.StdoutBytes, _ = e.stdout.Total()
	r.StderrBytes, _ = e.stderr.Total()
	return r
}

func (h *host) disown(held pid1.Held) error {
	ctx, cancel := context.WithTimeout(context.Background(), h.opts.Timeouts.Start)
	defer cancel()
	_, err := held.Exec.SignalAll(ctx, syscall.SIGKILL)
	if errors.Is(err, sbxerr.State) { // it has ended
		err = nil
	}
	return errors.Join(err, pipes.Close(held.Stdin, held.Stdout, held.Stderr, held.Staging), held.Exec.Release())
}

func closeHeld(held []pid1.Held) error {
	var errs []error
	for _, h := range held {
		errs = append(errs, pipes.Close(h.Stdin, h.Stdout, h.Stderr, h.Staging))
	}
	return errors.Join(errs...)
}

// loseExecs tells those who wait for a command of s, all of which have ended, that
// nobody knows how: callers find the commands before it is known what becomes of s.
func (h *host) loseExecs(ctx context.Context, s *sandbox) {
	for _, e := range s.executions() {
		if e.isDone() {
			continue
		}
		h.settle(ctx, e)
		e.stopFilling() // a writer may live on: do not wait for it
		result := lostResult(e, "the daemon that came after the one which started the command could not go on with its sandbox")
		e.mu.Lock()
		e.record.Result, e.record.EndedAt, e.state = result, time.Now().Round(0), ExecExited
		e.mu.Unlock()
		s.update(func() { s.running-- })
		close(e.settled)
		close(e.done)
		close(e.kept)
	}
}

// loadGroups goes on with the cgroups of the running commands, and ends and
// removes those of commands with limits of their own that are over.
func (h *host) loadGroups(ctx context.Context, s *sandbox, running []*execution) error {
	ctx, cancel := context.WithTimeout(ctx, h.opts.Timeouts.Start)
	defer cancel()
	group, err := h.group(s.id)
	if err != nil {
		return err
	}
	names, err := group.Children()
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		child, err := group.Child(name)
		if err != nil {
			return err
		}
		at := slices.IndexFunc(running, func(e *execution) bool { return e.record.Cgroup == name })
		if at >= 0 {
			running[at].setGroup(child)
			continue
		}
		errs = append(errs, child.Kill(ctx), child.Remove(ctx))
	}
	errs = append(errs, h.loadTags(s, group, running), h.lookAtLimits(ctx, s))
	return errors.Join(errs...)
}
