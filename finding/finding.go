// Package finding is what was found out about the host.
package finding

// Answer is the result of a probe.
type Answer uint8

// The answers. The zero Answer is the one that refuses.
const (
	Unknown Answer = iota // the probe itself did not work
	No
	Yes
)

// Of turns what was found into an Answer.
func Of(found bool) Answer {
	if found {
		return Yes
	}
	return No
}

// String returns "yes", "no" or "could not tell".
func (a Answer) String() string {
	switch a {
	case Yes:
		return "yes"
	case No:
		return "no"
	default:
		return "could not tell"
	}
}

// MarshalText makes an Answer readable in JSON.
func (a Answer) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// Feature is one thing that the host may have.
type Feature struct {
	Name   string
	Answer Answer
	Detail string
	Err    error // what stands behind No and Unknown; nil for Yes
	// Needed is set for what no sandbox can do without; in package netns, not even one in
	// the mode none.
	Needed bool
}
