package runtime

import (
	"io"
	"syscall"
	"time"
)

// Request asks for a sandbox and one command in it, which is all that the
// sandbox lives for.
type Request struct {
	Create CreateRequest
	Exec   ExecRequest
	// Learn lets the command reach all that is public, and tells in the result what
	// it reached. Only Run does that.
	Learn bool
}

// CreateRequest says what a sandbox is made of and how it is confined. An
// absent field takes the profile's value; what is named must be right: nothing
// is ignored.
type CreateRequest struct {
	Name      string   // unique among live sandboxes; empty is the ID
	Image     string   // empty is the profile's
	Profile   string   // empty is "strict"
	User      string   // name, uid or uid:gid of its commands; empty is the profile's
	Env       []string // K=V, of all its commands, added to the image's
	Network   string   // "none", "allow", "open" or "bridge"; empty is "allow" where Allow is given, else the profile's
	Allow     []string // egress rules, instead of the profile's; see package policy
	Deny      []string // egress rules, beside the profile's
	AllowECH  bool     // let TLS clients encrypt the name that they ask for, as the profile may
	Publish   []string // [ADDRESS:]PORT:PORT, ports of the host that lead to ports inside; see package ports
	Expose    []uint32 // ports inside to which links of the owner's other sandboxes may lead
	Links     []string // NAME=SANDBOX:PORT; see package policy
	Workspace *WorkspaceRequest
	Limits    LimitsRequest
	Labels    map[string]string
	Session   string // the caller's session ID
	Task      string // the caller's task ID
	// TTL ends the sandbox so long after its creation, IdleTimeout so long after
	// its last command ended, and removes it with what its commands wrote, also
	// while it is paused. Zero is never; nil too, but for a TTL where the caller's has
	// a ceiling, which it is then.
	TTL         *time.Duration
	IdleTimeout *time.Duration
	// Nested gives the sandbox a socket by which it can make sandboxes of its
	// own. Nil is none.
	Nested *NestedRequest
	// Ensure returns the live sandbox of this Name when it was made with the
	// same settings, instead of refusing the name.
	Ensure bool
	// Key makes a repeated request return the sandbox of the first one. Empty
	// is no key.
	Key string
}

// NestedRequest bounds what a sandbox may give to its children all together.
// Nil takes as much again as the sandbox itself has.
type NestedRequest struct {
	Sandboxes   *int64
	MemoryBytes *int64
	MilliCPU    *int64
}

// ExecRequest says what to run in a sandbox.
type ExecRequest struct {
	Args  []string // never through a shell
	Shell string   // a script for the image's /bin/sh, instead of Args
	Env   []string // K=V, added to the sandbox's
	Cwd   string   // absolute; empty is the workspace, else the image's
	User  string   // empty is the sandbox's
	Stdin bool     // the command gets an input; otherwise it reads /dev/null
	TTY   *WinSize // a terminal of this size; nil is none
	// Timeout ends the command. Nil is none.
	Timeout *time.Duration
	// OutputLimit bounds what is kept of each stream, in bytes. Nil is
	// DefaultOutputLimit.
	OutputLimit *int64
	// Rlimits lower resource limits below the sandbox's (setrlimit(2)).
	Rlimits []Rlimit
	// Limits bound the command and all that it starts, inside the sandbox's own
	// limits, by a cgroup of its own.
	Limits ExecLimits
}

// WinSize is the size of a terminal in characters.
type WinSize struct{ Rows, Cols uint16 }

// Rlimit is one resource limit by its name in setrlimit(2), such as
// RLIMIT_NOFILE. Soft must not exceed Hard, nor Hard the sandbox's.
type Rlimit struct {
	Name       string
	Soft, Hard uint64
}

// ExecLimits are the limits of one command's own cgroup. Nil leaves only the
// sandbox's; with all nil there is no cgroup.
type ExecLimits struct {
	MemoryBytes *int64
	MilliCPU    *int64
	PIDs        *int64
}

// WorkspaceRequest names a directory of the host to bind into the sandbox.
type WorkspaceRequest struct {
	Dir  string // absolute path on the host
	Mode string // "rw" or "ro"; empty is "rw"
}

// LimitsRequest holds the limits that a request names. Nil takes the
// profile's value; zero is an error and never means unlimited.
type LimitsRequest struct {
	MemoryBytes *int64
	MilliCPU    *int64 // 1000 is one CPU
	PIDs        *int64
	OpenFiles   *int64
	TmpfsBytes  *int64 // of each tmpfs
}

// IO connects a foreground command with its caller.
type IO struct {
	Stdin   io.Reader // nil: the command reads /dev/null
	Stdout  io.Writer // nil: only kept, not streamed
	Stderr  io.Writer
	Signals <-chan syscall.Signal // delivered to the command's process group
	Resizes <-chan WinSize        // of the command's terminal
	// Started is called once, when the command runs.
	Started func(Info, ExecInfo)
}

// State is where a sandbox stands.
type State string

// The states, in the order in which a sandbox passes them.
const (
	StateCreating State = "creating"
	StateAdopting State = "adopting" // an earlier daemon's, which has not yet answered this one
	StateRunning  State = "running"
	StatePaused   State = "paused"
	StateStopping State = "stopping"
	StateExited   State = "exited"
	StateRemoving State = "removing"
)

// Reason says why a command ended.
type Reason string

// The reasons.
const (
	ReasonExited   Reason = "exited"   // by itself
	ReasonSignaled Reason = "signaled" // by a signal, its own or that of a command or a caller
	ReasonTimeout  Reason = "timeout"  // its time was over
	ReasonOOM      Reason = "oom"      // out of the sandbox's memory
	ReasonCanceled Reason = "canceled" // its sandbox was stopped or removed, its daemon ended, or its caller went away
	ReasonLost     Reason = "lost"     // PID 1 ended without a word
	ReasonExpired  Reason = "expired"  // the sandbox's time was over: its TTL, or its idle timeout

	// ReasonKernelMemory is that of a sandbox which took too much kernel memory that no limit counts.
	ReasonKernelMemory Reason = "kernel_memory"
)

// Stage is one step of the making of a sandbox and what it took.
type Stage struct {
	Name     string        `json:"name"`
	Duration time.Duration `json:"duration"`
}

// Result is how a command ended. A command that fails is a Result, not an
// error.
type Result struct {
	SandboxID    string        `json:"sandbox_id"`
	ExecID       string        `json:"exec_id"`
	ExitCode     int           `json:"exit_code"` // 128+n on signal n, 124 on timeout
	Signal       int           `json:"signal"`    // 0: none
	TimedOut     bool          `json:"timed_out"`
	OOMKilled    bool          `json:"oom_killed"`
	PIDsLimitHit bool          `json:"pids_limit_hit"`
	StdoutBytes  int64         `json:"stdout_bytes"` // true totals, also past the limit
	StderrBytes  int64         `json:"stderr_bytes"`
	Truncated    bool          `json:"truncated"`
	LostBytes    int64         `json:"lost_bytes,omitempty"` // of output that the disk did not take
	Duration     time.Duration `json:"duration"`             // from the command's start to its end
	// CPU is user and system time: all of it where the sandbox is for this command alone, or
	// the command has limits of its own; else that of the command and the processes that it waited for.
	CPU              time.Duration `json:"cpu"`
	PeakMemoryBytes  int64         `json:"peak_memory_bytes"` // 0: not counted, as of most commands of a session
	MaxRSSBytes      int64         `json:"max_rss_bytes"`     // of the largest process
	ThrottledPeriods int64         `json:"cpu_throttled_periods"`
	Remaining        int           `json:"remaining"` // processes that went on running in the sandbox
	Network          string        `json:"network"`
	// Egress is what went through the gateway so far, for the sandbox as a whole:
	// complete where the sandbox was for this command, else as far as it was told. In
	// the mode none it is nil, but where the sandbox was for this command and tried something.
	Egress   *EgressCounters `json:"egress"`
	Learned  *Learned        `json:"learned"` // nil unless Request.Learn
	Source   string          `json:"source"`  // "command" or "runtime"
	Reason   Reason          `json:"reason"`
	Stages   []Stage         `json:"stages"`
	Warnings []string        `json:"warnings"` // what was clamped or only reported
}

// Info is one sandbox as a list shows it.
type Info struct {
	ID        string
	Name      string
	State     State
	Image     string
	Profile   string
	Args      []string
	CreatedAt time.Time
	ExitedAt  time.Time // zero while it runs
	Result    *Result   // nil until its one command ended, and where it is for none
	Labels    map[string]string
	Session   string
	Task      string
	PID       int // of PID 1 on the host; 0 when it is gone
	Workspace *WorkspaceRequest

	ExpiresAt   time.Time     // by its TTL; zero is never
	IdleTimeout time.Duration // 0 is never
	IdleSince   time.Time     // zero while a command runs
	Network     string
	Ports       []PortInfo // of the host, that lead inside; without one that could not be opened again
	Exposed     []uint32   // ports inside to which links may lead
	OwnerUID    uint32     // of the peer that made it
	Parent      string     // ID of the sandbox that made it; empty is none
	Execs       int        // commands that run
}

// PortInfo leads from an address of the host to a port inside of a sandbox.
type PortInfo struct {
	Address  string
	HostPort uint16
	Port     uint16 // inside
}

// Limits is what bounds one sandbox, resolved. Every field is positive.
type Limits struct {
	MemoryBytes int64
	MilliCPU    int64
	PIDs        int64
	OpenFiles   int64
	TmpfsBytes  int64
}

// HardOpenFiles is how many files each process may open, after it raised its own limit.
func (l Limits) HardOpenFiles() int64 { return max(l.OpenFiles, hardOpenFiles) }

// Detail is all that is known of one sandbox.
type Detail struct {
	Info
	Limits      Limits
	Cgroup      string // path below the hierarchy's root
	ImageDigest string
	HostIDBase  uint32
	HostIDSize  uint32
	SpecJSON    []byte
	Posture     []PostureCheck
	Egress      *EgressCounters // what went through the gateway, or past it in the mode bridge; nil in the mode none if nothing was tried
	// NetworkFailure is why nothing gets out by the gateway at the moment, or in by
	// it; empty while it serves the sandbox. In the mode bridge it is why nothing is
	// recorded.
	NetworkFailure string
	AllowECH       bool // its TLS clients may encrypt the name that they ask for
}

// PostureCheck is one comparison of the live sandbox with its declaration.
type PostureCheck struct {
	Name     string
	Declared string
	Live     string
}

// Leftover is something of this daemon's that no live sandbox owns.
type Leftover struct {
	Kind    string // "remains" of a sandbox that ended, "sandbox", "container", "cgroup", "output", "snapshot", or "foreign"
	ID      string
	Reason  string
	Removed bool
}

// LogOptions choose what Logs returns.
type LogOptions struct {
	Exec         string // ID of the command; empty is the one that the sandbox is for
	Follow       bool
	Stream       string // "stdout", "stderr"; empty is both
	StdoutOffset int64  // bytes that the reader has had already
	StderrOffset int64
}

// Skipper is what a writer of a command's output may be too. It is then told
// how many bytes are left out at a place, because the stream passed its limit,
// and does not get the mark that other writers get there: so it knows the
// offset in the stream of every byte.
type Skipper interface{ Skip(n int64) error }

// SpecView is what a run would get, for people and programs; nothing is made.
type SpecView struct {
	SpecJSON       []byte
	CgroupValues   map[string]string
	Mounts         []string
	SeccompProfile string
	SeccompRules   []SeccompRule
	NetworkRules   []string
}

// SeccompRule is one reasoned line of a profile.
type SeccompRule struct {
	Syscalls  []string
	Action    string
	Condition string // empty: unconditional
	Why       string
}

// Check is one finding of the doctor.
type Check struct {
	Name   string `json:"name"`
	Status string `json:"status"` // "ok", "warn", "fail", "unknown"
	Detail string `json:"detail"`
	Code   string `json:"code,omitempty"` // what a run would fail with
	Remedy string `json:"remedy,omitempty"`
}

// Capability says how a field of a request is honoured on this host.
type Capability struct {
	Field   string `json:"field"`
	Support string `json:"support"` // "enforced", "best_effort", "unsupported"
	Detail  string `json:"detail"`
}

// Versions says what is running.
type Versions struct {
	Version, Commit, GoVersion string
	Containerd                 string
	ContainerdAddress          string
	Runc                       string
	Root, Instance             string
}

// DefaultOutputLimit is what is kept of each stream when nothing else is
// asked for: 10 MiB, the first half and the last half.
const DefaultOutputLimit = 10 << 20
