package runtime

import (
	"io"
	"syscall"
	"time"
)

// Request says what to run and how to confine it. An absent field takes the
// profile's value; what is named must be right: nothing is ignored.
type Request struct {
	Args      []string
	Env       []string // K=V, added to the image's
	Cwd       string   // absolute; empty is the workspace, else the image's
	User      string   // name, uid or uid:gid; empty is the profile's
	Name      string   // unique among live sandboxes; empty is the ID
	Image     string   // empty is the profile's
	Profile   string   // empty is "strict"
	Network   string   // empty is "none"
	Allow     []string // egress rules; refused while the mode is "none"
	Workspace *WorkspaceRequest
	Limits    LimitsRequest
	Timeout   *time.Duration // nil is none
	// OutputLimit bounds what is kept of each stream, in bytes. Nil is
	// DefaultOutputLimit.
	OutputLimit *int64
	Labels      map[string]string
	Session     string // the caller's session ID
	Task        string // the caller's task ID
	TTY         bool   // refused until terminals are offered
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
	Started func(Info)            // called once, when the command runs
}

// State is where a sandbox stands.
type State string

// The states, in the order in which a sandbox passes them.
const (
	StateCreating State = "creating"
	StateRunning  State = "running"
	StateExited   State = "exited"
	StateRemoving State = "removing"
)

// Reason says why a command ended.
type Reason string

// The reasons.
const (
	ReasonExited   Reason = "exited"   // by itself
	ReasonSignaled Reason = "signaled" // by a signal, its own or the caller's
	ReasonTimeout  Reason = "timeout"  // its time was over
	ReasonOOM      Reason = "oom"      // out of the sandbox's memory
	ReasonCanceled Reason = "canceled" // the caller went away or cancelled
	ReasonLost     Reason = "lost"     // PID 1 ended without a word
)

// Stage is one step of the making of a sandbox and what it took.
type Stage struct {
	Name     string        `json:"name"`
	Duration time.Duration `json:"duration"`
}

// Result is how a command ended. A command that fails is a Result, not an
// error.
type Result struct {
	SandboxID        string        `json:"sandbox_id"`
	ExitCode         int           `json:"exit_code"` // 128+n on signal n, 124 on timeout
	Signal           int           `json:"signal"`    // 0: none
	TimedOut         bool          `json:"timed_out"`
	OOMKilled        bool          `json:"oom_killed"`
	PIDsLimitHit     bool          `json:"pids_limit_hit"`
	StdoutBytes      int64         `json:"stdout_bytes"` // true totals, also past the limit
	StderrBytes      int64         `json:"stderr_bytes"`
	Truncated        bool          `json:"truncated"`
	Duration         time.Duration `json:"duration"` // from the command's start to its end
	CPU              time.Duration `json:"cpu"`      // user and system, of the whole sandbox
	PeakMemoryBytes  int64         `json:"peak_memory_bytes"`
	MaxRSSBytes      int64         `json:"max_rss_bytes"` // of the largest process
	ThrottledPeriods int64         `json:"cpu_throttled_periods"`
	Network          string        `json:"network"`
	Source           string        `json:"source"` // "command" or "runtime"
	Reason           Reason        `json:"reason"`
	Stages           []Stage       `json:"stages"`
	Warnings         []string      `json:"warnings"` // what was clamped or only reported
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
	Result    *Result   // nil until it exited
	Labels    map[string]string
	Session   string
	Task      string
	PID       int // of PID 1 on the host; 0 when it is gone
	Workspace *WorkspaceRequest
}

// Limits is what bounds one sandbox, resolved. Every field is positive.
type Limits struct {
	MemoryBytes int64
	MilliCPU    int64
	PIDs        int64
	OpenFiles   int64
	TmpfsBytes  int64
}

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
}

// PostureCheck is one comparison of the live sandbox with its declaration.
type PostureCheck struct {
	Name     string
	Declared string
	Live     string
}

// Leftover is something of this daemon's that no live sandbox owns.
type Leftover struct {
	Kind    string // "sandbox", "container", "cgroup", "mount", "directory", "snapshot"
	ID      string
	Reason  string
	Removed bool
}

// LogOptions choose what Logs returns.
type LogOptions struct {
	Follow bool
	Stream string // "stdout", "stderr"; empty is both
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

// Image is one image that sandboxes can be made of.
type Image struct {
	Name      string
	Digest    string
	SizeBytes int64
	CreatedAt time.Time
	Source    string // "embedded", "oci-layout", "docker-archive", "rootfs", "from-host"
}

// ImageDetail is all that is known of one image.
type ImageDetail struct {
	Image
	ConfigJSON []byte
	Layers     []string
	Report     ImportReport
}

// ImportReport says what the import filter did.
type ImportReport struct {
	Entries  int64
	Bytes    int64
	Stripped map[string]int64 // kind: count
}

// FromHostRequest names the software of the host that an image is made of.
type FromHostRequest struct {
	Name     string
	Packages []string
	Paths    []string
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
