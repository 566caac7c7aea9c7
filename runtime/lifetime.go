package runtime

import (
	"errors"
	"time"
)

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
)

// keeps reports whether a sandbox that ended for cause stays, with what its
// commands wrote, until it is removed. One in a pool is nobody's to remove.
func (r record) keeps(cause error) bool {
	byItself := errors.Is(cause, errMainEnded) || errors.Is(cause, errInitLost) || errors.Is(cause, ErrStopped)
	return byItself && !r.Pooled && (r.Detached || r.Main == 0)
}

// endReason is what the commands of s tell that ended with it.
func (s *sandbox) endReason() Reason {
	switch cause := s.endCause(); {
	case errors.Is(cause, ErrExpired), errors.Is(cause, ErrIdle):
		return ReasonExpired
	case cause == nil, errors.Is(cause, errInitLost), errors.Is(cause, errMainEnded):
		return ReasonLost
	}
	return ReasonCanceled
}

// busyLocked notes that a command is about to run.
func (s *sandbox) busyLocked() { s.record.IdleSince = 0 }

// idleLocked notes the time from which no command runs.
func (s *sandbox) idleLocked() {
	if s.record.IdleSince == 0 && s.running == 0 {
		s.record.IdleSince = now()
	}
}

// due is when the time of s will be over if nothing happens, and why; 0 is never.
func (r record) due() (moment, error) {
	at, why := r.Expires, ErrExpired
	if r.IdleTimeout > 0 && r.IdleSince != 0 {
		if idle := r.IdleSince + moment(r.IdleTimeout); at == 0 || idle < at {
			at, why = idle, ErrIdle
		}
	}
	return at, why
}

// rearm sets the alarm of s to when its time will be over. It is called again
// whenever that may have changed; an alarm that comes early is set again.
func (s *sandbox) rearm() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.alarm != nil {
		s.alarm.Stop()
		s.alarm = nil
	}
	at, _ := s.record.due()
	if at == 0 || s.ending != nil {
		return
	}
	s.alarm = time.AfterFunc(at.left(), s.checkTime)
}

// checkTime ends s if its time is over.
func (s *sandbox) checkTime() {
	at, why := s.kept().due()
	if at != 0 && at.left() == 0 {
		s.end(why)
		return
	}
	s.rearm()
}
