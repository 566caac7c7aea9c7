package runtime

import "errors"

// Cause says what canceled a command.
type Cause string

// The causes.
const (
	CauseStopped      Cause = "stopped"        // its sandbox was stopped
	CauseRemoved      Cause = "removed"        // its sandbox was removed
	CauseDaemon       Cause = "daemon_stopped" // the daemon stopped, and did not leave it to the next one
	CauseCaller       Cause = "caller_left"    // its caller went away, or canceled its call
	CauseParent       Cause = "parent_ended"   // the sandbox that made its sandbox ended
	CauseSandboxEnded Cause = "sandbox_ended"  // its sandbox ended for another reason, which an event tells
)

// causeOf is the cause of an end for the reason why.
func causeOf(why error) Cause {
	for _, c := range []struct {
		why   error
		cause Cause
	}{
		{ErrStopped, CauseStopped}, {ErrRemoved, CauseRemoved}, {ErrStopping, CauseDaemon},
		{errCallerLeft, CauseCaller}, {errCallerGone, CauseCaller}, {errParentEnded, CauseParent},
	} {
		if errors.Is(why, c.why) {
			return c.cause
		}
	}
	return CauseSandboxEnded
}

// cause is what canceled e, which ended as end says.
func (e *execution) cause(end ending) Cause {
	why := e.s.endCause()
	switch {
	case end.Reason != ReasonCanceled:
		return ""
	case end.Cause != "":
		return end.Cause
	case why == nil || errors.Is(why, errMainEnded): // a stop asks commands before it ends the sandbox
		return CauseStopped
	}
	return causeOf(why)
}
