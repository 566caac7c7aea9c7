// Package idle pauses sandboxes in which nothing works, and wakes those that somebody uses.
package idle

import (
	"cmp"
	"time"

	"github.com/caisson-run/caisson/runtime/clock"
)

// What happens to a sandbox when it was idle for its timeout.
const (
	Remove = "remove"
	Pause  = "pause"
)

// Who paused a sandbox.
const (
	ByCaller = "caller"
	ByIdle   = "idle"
)

// Clock is what the record of a sandbox says of its being idle.
type Clock struct {
	IdleTimeout time.Duration `json:"idle_timeout"`      // 0 is never
	IdleSince   clock.Moment  `json:"idle_since"`        // 0 while it is in use
	OnIdle      string        `json:"on_idle,omitempty"` // empty is Remove
	Asleep      bool          `json:"asleep,omitempty"`  // it is paused because it was idle
}

// Pauses reports whether the sandbox is paused when it is idle. Commands in it count by what
// they do.
func (c Clock) Pauses() bool { return c.OnIdle == Pause }

// Touch begins the time of an idle sandbox anew.
func (c *Clock) Touch() {
	if c.IdleSince != 0 {
		c.IdleSince = clock.Now()
	}
}

// Over is when the timeout is over if nothing happens; 0 is never.
func (c Clock) Over() clock.Moment {
	if c.IdleTimeout == 0 || c.IdleSince == 0 {
		return 0
	}
	return c.IdleSince + clock.Moment(c.IdleTimeout)
}

// At is Over of a sandbox that may be paused already.
func (c Clock) At(paused bool) clock.Moment {
	if paused && c.Pauses() {
		return 0
	}
	return c.Over()
}

// Action is what happens then; empty is nothing.
func (c Clock) Action() string {
	if c.IdleTimeout == 0 {
		return ""
	}
	return cmp.Or(c.OnIdle, Remove)
}

// PausedBy is who paused it; empty while it is not.
func (c Clock) PausedBy(paused bool) string {
	switch {
	case !paused:
		return ""
	case c.Asleep:
		return ByIdle
	}
	return ByCaller
}
