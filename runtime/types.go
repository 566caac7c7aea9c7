package runtime

import (
	"io"
	"time"

	"github.com/caisson-run/caisson/runtime/plan"
)

// IO connects a foreground command with its caller. Attach does not look at Stdin.
type IO struct {
	Stdin  []byte    // all of the command's input; nil: SendInput sends it, where it has one
	Stdout io.Writer // nil: only kept, not streamed
	Stderr io.Writer
	// Started is called once, when the command runs.
	Started func(Info, ExecInfo)
}

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
	Throttled        time.Duration `json:"cpu_throttled,omitempty"` // summed over CPUs
	LimitsHit        []string      `json:"limits_hit,omitempty"`    // of "memory", "pids", "cpu", "tmpfs", "disk", "volume"
	// SandboxLimitsHit were hit in the sandbox while the command ran, by it or by something
	// else that ran there: of "memory", "pids".
	SandboxLimitsHit []string `json:"sandbox_limits_hit,omitempty"`
	FullTmpfs        []string `json:"full_tmpfs,omitempty"` // full when the command failed
	FullVolumes      []string `json:"full_volumes,omitempty"`
	// ReadOnlyHint says that a failed command ended its standard error with the words of EROFS.
	ReadOnlyHint bool   `json:"read_only_hint,omitempty"`
	IOReadBytes  *int64 `json:"io_read_bytes,omitempty"`  // from block devices; nil: not counted
	IOWriteBytes *int64 `json:"io_write_bytes,omitempty"` // likewise, with cgroup v1 always
	// EndedProcesses were ended with the command, which is not one of them.
	EndedProcesses int    `json:"ended_processes,omitempty"`
	Remaining      int    `json:"remaining"` // processes that went on running in the sandbox
	Network        string `json:"network"`
	// Egress is what went through the gateway so far, for the sandbox as a whole:
	// complete, but for connections that are open. In the mode none it is nil if nothing was
	// tried.
	Egress *EgressCounters `json:"egress"`
	// Refusals are what was refused while the command ran, 10 at most.
	Refusals []Refusal `json:"refusals,omitempty"`
	Learned  *Learned  `json:"learned"` // nil unless Request.Learn
	Source   string    `json:"source"`  // "command" or "runtime"
	Reason   Reason    `json:"reason"`
	Cause    Cause     `json:"cause,omitempty"` // of ReasonCanceled
	Stages   []Stage   `json:"stages"`
	Warnings []string  `json:"warnings"` // what was clamped or only reported

	ImageVerified string `json:"image_verified,omitempty"` // the rule that the image was verified by when it was pulled
}

// Info is one sandbox as a list shows it.
type Info struct {
	Warnings  []string // what was clamped, or picked for the caller
	ID        string
	Name      string
	State     State
	Image     string
	Profile   string
	Isolation string // plan.IsolationSandbox or plan.IsolationNone
	Args      []string
	CreatedAt time.Time
	ExitedAt  time.Time // zero while it runs
	Result    *Result   // nil until its one command ended, and where it is for none
	Labels    map[string]string
	Session   string
	Task      string
	PID       int // of PID 1 on the host; 0 when it is gone
	Workspace *plan.WorkspaceRequest
	Mounts    []plan.MountRequest // beside the workspace

	ExpiresAt   time.Time     // by its TTL; zero is never
	IdleTimeout time.Duration // 0 is never
	IdleSince   time.Time     // zero while a command runs
	IdleAt      time.Time     // when IdleTimeout is over if nothing happens; zero is never
	OnIdle      string        // idle.Pause or idle.Remove; empty without IdleTimeout
	PausedBy    string        // idle.ByCaller or idle.ByIdle; empty while it is not paused
	Network     string
	Ports       []PortInfo // of the host, that lead inside; without one that could not be opened again
	Exposed     []uint32   // ports inside to which links may lead
	OwnerUID    uint32     // of the peer that made it
	Parent      string     // ID of the sandbox that made it; empty is none
	Execs       int        // commands that run
	Replaced    string     // of Create alone: ID of the sandbox of that name that this one replaces; empty is none
}

// PortInfo leads from an address of the host to a port inside of a sandbox.
type PortInfo struct {
	Address  string
	HostPort uint16
	Port     uint16   // inside
	Clients  []string // that may connect; empty is any
}

// Detail is all that is known of one sandbox.
type Detail struct {
	Info
	Limits      plan.Limits
	Cgroup      string // path below the hierarchy's root
	ImageDigest string
	HostIDBase  uint32
	HostIDSize  uint32
	SpecJSON    []byte
	Posture     []PostureCheck
	Egress      *EgressCounters // what went through the gateway, or past it in the mode bridge; nil in the mode none if nothing was tried
	// NetworkFailure is why nothing gets out by the gateway at the moment, or in by
	// it; empty while it serves the sandbox. In the mode bridge it is why no refusal
	// is recorded, or the bytes of the link are not counted.
	NetworkFailure string
	AllowECH       bool // its TLS clients may encrypt the name that they ask for
	Routes         []string
}

// PostureCheck is one comparison of the live sandbox with its declaration.
type PostureCheck struct {
	Name     string
	Declared string
	Live     string
}

// Leftover is something of this daemon's that no live sandbox owns.
type Leftover struct {
	Kind    string // "remains" of a sandbox that ended, "sandbox", "container", "cgroup", "output", "disk", "snapshot", or "foreign"
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
	// Since leaves out what came before it, Until what came after it; zero leaves out
	// nothing. What may have come between them is not left out. Follow ends at Until.
	Since, Until time.Time
}

// Skipper is what a writer of a command's output may be too. It is then told
// how many bytes are left out at a place, because the stream passed its limit,
// and does not get the mark that other writers get there: so it knows the
// offset in the stream of every byte.
type Skipper interface{ Skip(n int64) error }

// Placer is an optional interface of a writer of Logs. Place gives the offset of the next
// Write and the time at which those bytes came: at first, and whenever the time changes. Zero
// is an unknown time.
type Placer interface {
	Place(offset int64, came time.Time) error
}

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
