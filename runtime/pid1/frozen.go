package pid1

import (
	"math"
	"sync/atomic"
	"time"
)

// ice says whether PID 1 is frozen, and so cannot answer.
type ice struct {
	frozen atomic.Bool
	thawed atomic.Int64 // when it last ended, as of time.Since(epoch)
}

// epoch is what moments are counted from.
var epoch = time.Now()

// SetFrozen says that PID 1 is about to be frozen, or goes on. While it is, it
// is not held against it that it does not answer.
func (c *Client) SetFrozen(frozen bool) {
	if !frozen {
		c.ice.thawed.Store(int64(time.Since(epoch)))
	}
	c.ice.frozen.Store(frozen)
}

// FrozenWithin reports whether PID 1 is frozen, or was so less than d ago. What is in
// its sandbox is, and was, so too.
func (c *Client) FrozenWithin(d time.Duration) bool { return c.ice.excuses(d) }

// excuses reports whether PID 1 had less than d to answer.
func (i *ice) excuses(d time.Duration) bool {
	thawed := i.thawed.Load()
	return i.frozen.Load() || thawed != 0 && time.Since(epoch)-time.Duration(thawed) < d
}

// overdue returns what is closed when PID 1 has had its time for an answer. stop
// is to be called when that is of no more interest.
func (c *Client) overdue() (at <-chan struct{}, stop func() bool) {
	late := make(chan struct{})
	var t *time.Timer
	t = time.AfterFunc(math.MaxInt64, func() {
		if c.ice.excuses(c.wait.answer) {
			t.Reset(c.wait.answer)
			return
		}
		close(late)
	})
	t.Reset(c.wait.answer)
	return late, t.Stop
}
