package plan

import "time"

// Alerts says what of a sandbox is told as an event. The zero Alerts says nothing.
type Alerts struct {
	Memory   Threshold
	CPU      Threshold
	PIDs     Threshold
	Tmpfs    Threshold // of the size of any one
	Refusals int64     // connections and lookups; an alert when there are more, 0 is none
}

// Threshold is a share of a limit that is passed for some time.
type Threshold struct {
	Percent int64 // of the limit; 0 is none
	For     time.Duration
}
