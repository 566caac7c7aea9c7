package decide

import (
	"errors"
	"fmt"
)

// Decider says what becomes of a call as a filter's return value (linux/seccomp.h), or
// names an unknown bit of the call without which it cannot tell.
type Decider interface {
	Decide(c Call) (uint32, Bit)
}

// Difference is a call that two deciders do not treat alike. The bits of it that are not
// known do not matter.
type Difference struct {
	Call      Call
	Want, Got uint32
}

// String shows a difference in one line.
func (d Difference) String() string {
	return fmt.Sprintf("%s: %s, declared %s", d.Call, Action(d.Got), Action(d.Want))
}

// steps bounds a comparison. That of two filters of some 350 calls takes 70,000.
const steps = 4_000_000

// Compare returns a call that got does not treat as want does, nil if there is none in the
// whole space of calls. It is an error if that is too hard to tell.
func Compare(want, got Decider) (*Difference, error) {
	c := comparison{want: want, got: got, left: steps}
	return c.compare(Call{})
}

type comparison struct {
	want, got Decider
	left      int
}

func (c *comparison) compare(call Call) (*Difference, error) {
	if c.left--; c.left < 0 {
		return nil, errors.New("the filter decides by more cases than can be compared")
	}
	want, missing := c.want.Decide(call)
	if missing.missing {
		return c.both(call, missing)
	}
	got, missing := c.got.Decide(call)
	if missing.missing {
		return c.both(call, missing)
	}
	if want, got = normal(want), normal(got); want != got {
		return &Difference{call, want, got}, nil
	}
	return nil, nil
}

func (c *comparison) both(call Call, b Bit) (*Difference, error) {
	for _, set := range []bool{false, true} {
		if d, err := c.compare(call.with(b, set)); d != nil || err != nil {
			return d, err
		}
	}
	return nil, nil
}

// The parts and values of what a filter returns (linux/seccomp.h).
const (
	actionMask  = 0xffff0000
	dataMask    = 0x0000ffff
	killProcess = 0x80000000
	killThread  = 0x00000000
	trap        = 0x00030000
	refuse      = 0x00050000 // with the error in the data
	notify      = 0x7fc00000
	trace       = 0x7ff00000
	logged      = 0x7ffc0000
	allow       = 0x7fff0000
)

// Refuse is the return value that fails a call with an error.
func Refuse(errno uint32) uint32 { return refuse | errno&dataMask }

// The return values that need no data.
const (
	Allow uint32 = allow
	Kill  uint32 = killThread // what libseccomp does to other architectures
)

// normal leaves out the data that the kernel does not use.
func normal(ret uint32) uint32 {
	switch action := ret & actionMask; action {
	case allow, killThread, killProcess, logged:
		return action
	}
	return ret
}

// Action names a return value.
func Action(ret uint32) string {
	switch ret & actionMask {
	case killProcess:
		return "kill the process"
	case killThread:
		return "kill"
	case trap:
		return "trap"
	case refuse:
		return fmt.Sprintf("error %d", ret&dataMask)
	case notify:
		return "notify"
	case trace:
		return "trace"
	case logged:
		return "log and allow"
	case allow:
		return "allow"
	}
	return fmt.Sprintf("unknown action %#x", ret)
}

// Stack are the programs of a process in the order in which they were put in force. All of
// them run for each call.
type Stack []*Program

// Decide returns the strictest decision, of equal ones the one of the latest program
// (kernel/seccomp.c, seccomp_run_filters). An empty stack allows everything.
func (s Stack) Decide(c Call) (uint32, Bit) {
	ret := uint32(allow)
	for i := len(s) - 1; i >= 0; i-- {
		one, missing := s[i].Decide(c)
		if missing.missing {
			return 0, missing
		}
		if int32(one&actionMask) < int32(ret&actionMask) { // signed: to kill the process is the least
			ret = one
		}
	}
	return ret, Bit{}
}
