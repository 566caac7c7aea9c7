package runtime

import (
	"syscall"
	"time"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/runtime/pool"
)

// ExecState is where a command stands.
type ExecState string

// The states of a command, in the order in which it passes them.
const (
	ExecStarting ExecState = "starting"
	ExecRunning  ExecState = "running"
	ExecExited   ExecState = "exited"
)

// ExecInfo is one command of a sandbox as a list shows it.
type ExecInfo struct {
	ID        string // unique in its sandbox, never used again there
	SandboxID string
	Args      []string
	State     ExecState
	PID       int // in the sandbox's pid namespace, by PID 1's word; 0 before it runs
	TTY       bool
	Stdin     bool // its input is open
	StartedAt time.Time
	EndedAt   time.Time // zero while it runs
	// StdoutBytes and StderrBytes are the totals written so far, and so the
	// offsets at which what comes next begins.
	StdoutBytes int64
	StderrBytes int64
	Result      *Result // nil until it exited
}

// AttachOptions say where in the streams of a command its reader stands.
type AttachOptions struct {
	StdoutOffset int64 // bytes that the reader has had already
	StderrOffset int64
}

// SignalRequest asks for a signal to a command.
type SignalRequest struct {
	Signal syscall.Signal
	// All sends it to every process that the command started and that can be
	// told to be its: its cgroup where it has one, else its session.
	All bool
}

// UpdateRequest changes a live sandbox. Nil leaves a setting as it is.
type UpdateRequest struct {
	Limits      *caissonv1.Limits // those that a live sandbox can change
	TTL         *time.Duration    // from now; 0 is never
	IdleTimeout *time.Duration    // 0 is never
	OnIdle      *string
	Labels      map[string]string // merged; an empty value removes the label
	// Network, Allow and Deny replace those of the request that made the sandbox.
	// What is open and no longer allowed is cut.
	Network *string
	Allow   *Rules
	Deny    *Rules
	Publish *Rules // the ports that it publishes, all of them, with other clients
}

// Rules is a list of egress rules that may be empty on purpose.
type Rules struct{ Rules []string }

// HostInfo is what the daemon counts.
type HostInfo struct {
	Sandboxes           map[State]int
	Execs               int // that run
	Queued              int // requests that wait for their turn to make a sandbox
	Pools               []pool.Stats
	Networks            []NetworkStats // of the live sandboxes that the gateway serves, oldest first
	Capacity, Available peer.Resources // that the caller may have, and what is left of it
}

// NetworkStats is what went through the gateway for one sandbox.
type NetworkStats struct {
	SandboxID string
	Name      string
	Network   string // mode
	Egress    EgressCounters
}
