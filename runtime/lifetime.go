package runtime

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime/clock"
	"github.com/caisson-run/caisson/runtime/failpoint"
	"github.com/caisson-run/caisson/runtime/layers"
	"github.com/caisson-run/caisson/runtime/memwatch"
)

type moment = clock.Moment

var now, in = clock.Now, clock.In

// The causes with which a sandbox is ended.
var (
	// ErrRemoved is that of Remove.
	ErrRemoved = errors.New("the sandbox was removed")
	// ErrStopped is that of Stop.
	ErrStopped = errors.New("the sandbox was stopped")
	// ErrExpired is that of a TTL.
	ErrExpired = errors.New("the sandbox's time to live is over")
	// ErrIdle is that of an idle timeout.
	ErrIdle = errors.New("the sandbox was idle for too long")
	// ErrStopping is that of Close.
	ErrStopping = errors.New("the daemon is stopping")

	errMainEnded  = errors.New("its command ended")
	errInitLost   = errors.New("PID 1 ended")
	errCallerLeft = errors.New("its caller went away")
	errLeft       = errors.New("the daemon leaves it to the next one")
	errUnrecorded = errors.New("no record of it can be written")
	errNoDaemon   = errors.New("it ended while no daemon ran")
)

// keeps reports whether a sandbox that ended for cause stays, with what its
// commands wrote, until it is removed. One in a pool is nobody's to remove.
func (r record) keeps(cause error) bool {
	byItself := errors.Is(cause, errMainEnded) || errors.Is(cause, errInitLost) || errors.Is(cause, ErrStopped) || errors.Is(cause, memwatch.ErrUncharged) || errors.Is(cause, layers.ErrLost)
	return byItself && r.outlives()
}

// outlives reports whether a sandbox may be left to the next daemon: one that is
// for a caller that waits here is not.
func (r record) outlives() bool { return !r.Pooled && (r.Detached || r.Main == 0) }

// untilEnding is ctx for what is of no more use, or never comes to pass, once s is to
// end: a freezer of cgroup v1 waits in vain for a PID 1 that was killed.
func (s *sandbox) untilEnding(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-s.asked:
			cancel(s.endCause())
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// endReason is what the commands of s tell that ended with it.
func (s *sandbox) endReason() Reason {
	switch cause := s.endCause(); {
	case errors.Is(cause, ErrExpired), errors.Is(cause, ErrIdle):
		return ReasonExpired
	case errors.Is(cause, memwatch.ErrUncharged):
		return ReasonKernelMemory
	case cause == nil, errors.Is(cause, errInitLost), errors.Is(cause, errMainEnded), errors.Is(cause, layers.ErrLost):
		return ReasonLost
	}
	return ReasonCanceled
}

// busyLocked notes that a command is about to run.
func (s *sandbox) busyLocked() { s.record.IdleSince = 0 }

// idleLocked notes the time from which no command runs and nobody works on files. Where s is
// paused then, commands count by what they do.
func (s *sandbox) idleLocked() {
	if s.record.IdleSince == 0 && s.filework == 0 && (s.running == 0 || s.record.Pauses()) {
		s.record.IdleSince = now()
	}
}

// idleAgainLocked is for a sandbox that is adopted: its record may have been kept
// before its last command.
func (s *sandbox) idleAgainLocked() {
	if s.record.FileWork { // until the earlier daemon ended
		s.record.IdleSince, s.record.FileWork = now(), false
	}
	for _, e := range s.past {
		s.record.IdleSince = max(s.record.IdleSince, e.record.over())
	}
	if s.running > 0 || s.record.Pauses() && !s.record.Paused {
		s.busyLocked()
	}
	s.idleLocked()
}

// workOnFiles notes that somebody works on the files of s, until done is called. A
// daemon that comes next has no other word of it.
func (h *host) workOnFiles(s *sandbox) (done func()) {
	awake, over := s.keeper.Awake(context.Background()), sleeper{h, s}.Use()
	s.update(func() { s.filed, s.record.FileWork = true, true })
	h.keepUse(s)
	return func() {
		over()
		awake()
		s.update(func() { s.record.FileWork = s.filework > 0 })
		h.keepUse(s)
		s.rearm()
	}
}

// keepUse keeps whether s is idle, where that may end it.
func (h *host) keepUse(s *sandbox) {
	if s.kept().IdleTimeout > 0 && s.endCause() == nil {
		h.keepRecord(s)
	}
}

// over is when a command ended; when it began for one that was lost.
func (r execRecord) over() moment { return r.Began + moment(r.Result.Duration) }

// age is how long ago the sandbox was made.
func (r record) age() time.Duration {
	if r.Born == 0 {
		return time.Since(r.CreatedAt)
	}
	return time.Duration(now() - r.Born)
}

// due is when the time of s will be over if nothing happens, and why; 0 is never.
func (r record) due() (moment, error) {
	at, why := r.Expires, ErrExpired
	if idle := r.Over(); idle != 0 && !r.Pauses() && (at == 0 || idle < at) {
		at, why = idle, ErrIdle
	}
	return at, why
}

// rearm sets the alarm of s to when its time will be over. It is called again
// whenever that may have changed; an alarm that comes early is set again.
func (s *sandbox) rearm() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rearmLocked()
}

func (s *sandbox) rearmLocked() {
	if s.alarm != nil {
		s.alarm.Stop()
		s.alarm = nil
	}
	at, _ := s.record.due()
	if at == 0 || s.ending != nil {
		return
	}
	s.alarm = time.AfterFunc(at.Left(), s.checkTime)
}

// checkTime ends s if its time is over. A command that is admitted comes before or
// after that, and never between the look and the end.
func (s *sandbox) checkTime() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at, why := s.record.due(); at != 0 && at.Left() == 0 {
		s.endLocked(why)
		return
	}
	s.rearmLocked()
}

// endedLocked is the refusal of a command in a sandbox that does not run, and says
// why it does not where that is known.
func (s *sandbox) endedLocked() error {
	const op = "runtime.exec"
	state := s.state
	if s.ending != nil && state == StateRunning {
		state = StateStopping
	}
	if s.ending == nil {
		return notNow(op, s.record.Name, state)
	}
	err := fmt.Errorf("sandbox %s is %s: %w", s.record.Name, state, s.ending)
	if errors.Is(s.ending, ErrExpired) || errors.Is(s.ending, ErrIdle) {
		return sbxerr.Final(sbxerr.WithRemedy(sbxerr.State, op, err, "make another one, with a longer --ttl or --idle-timeout"))
	}
	return sbxerr.Final(sbxerr.Wrap(sbxerr.State, op, err))
}

// notNow is the refusal of what a sandbox in state does not take. One that has ended, or
// is to, never will.
func notNow(op, name string, state State) error {
	err := sbxerr.New(sbxerr.State, op, "sandbox %s is %s", name, state)
	if state.over() {
		return sbxerr.Final(err)
	}
	return err
}

// orEnded is why something could not be done with s: err, or that it was ended
// meanwhile, and with it PID 1 and the cgroup that err misses.
func (s *sandbox) orEnded(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	missed := errors.Is(err, sbxerr.Init) || errors.Is(err, sbxerr.Cgroup)
	if !missed || s.ending == nil || errors.Is(s.ending, errInitLost) {
		return err
	}
	return s.endedLocked()
}

// completeLocked makes s live where it is all that was asked for: it takes commands
// from here on, and a later daemon goes on with it. What waits in a pool is for nobody
// yet, and what is for one command lacks that until it is admitted.
func (h *host) completeLocked(s *sandbox) error {
	if s.ending != nil {
		return s.ending
	}
	if s.record.Pooled || s.record.Main == mainToCome {
		return nil
	}
	s.record.Ready = true
	s.idleLocked()
	if err := errors.Join(h.writeLocked(s), failpoint.At("create/record")); err != nil {
		return err
	}
	h.moveLocked(s, StateRunning)
	close(s.made)
	return nil
}

// complete is completeLocked.
func (h *host) complete(s *sandbox) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return h.completeLocked(s)
}

func (s *sandbox) isStopping() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state == StateStopping
}

// awaited reports whether it is not yet known if this daemon goes on with s.
func (s *sandbox) awaited() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state == StateAdopting
}
