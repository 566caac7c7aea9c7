package events

import (
	"fmt"
	"strings"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// Data is what is known of an event. A field that says nothing about it is empty.
type Data struct {
	Caller    string `json:"caller,omitempty"`     // "uid 1000", "uid 1000 by key NAME", "sandbox ID" or "the daemon"
	RequestID string `json:"request_id,omitempty"` // of the call that led to the event

	SandboxID string `json:"sandbox_id,omitempty"`
	Name      string `json:"name,omitempty"` // of the sandbox
	ExecID    string `json:"exec_id,omitempty"`
	Session   string `json:"session,omitempty"`
	Task      string `json:"task,omitempty"`
	Profile   string `json:"profile,omitempty"`
	Pooled    bool   `json:"pooled,omitempty"`    // made for a pool
	Isolation string `json:"isolation,omitempty"` // "none": commands run as a user of the host; else empty

	Image        string  `json:"image,omitempty"`
	ImageDigest  string  `json:"image_digest,omitempty"`
	Verified     string  `json:"image_verified,omitempty"` // the rule that the image was verified by when it was pulled
	Network      string  `json:"network,omitempty"`        // mode
	PolicyDigest string  `json:"policy_digest,omitempty"`  // SHA-256 of the effective egress policy as JSON
	FilterDigest string  `json:"filter_digest,omitempty"`  // SHA-256 of the seccomp filters that PID 1 has in force
	Workspace    string  `json:"workspace,omitempty"`      // directory of the host
	Mounts       []Mount `json:"mounts,omitempty"`         // beside the workspace
	Volume       string  `json:"volume,omitempty"`         // name
	Snapshot     string  `json:"snapshot,omitempty"`       // name

	Changes int `json:"changes,omitempty"` // that were applied

	MemoryBytes int64   `json:"memory_bytes,omitempty"` // limits
	MilliCPU    int64   `json:"milli_cpu,omitempty"`
	PIDs        int64   `json:"pids,omitempty"`
	Stages      []Stage `json:"stages,omitempty"` // of the creation

	Args       []string `json:"args,omitempty"`
	ArgsDigest string   `json:"args_digest,omitempty"` // SHA-256 of all args, each with a zero byte at its end; where Args has less than all
	ArgsBytes  int64    `json:"args_bytes,omitempty"`  // of which ArgsDigest is
	Env        []string `json:"env,omitempty"`         // names of variables, never values
	Cwd        string   `json:"cwd,omitempty"`
	User       string   `json:"user,omitempty"` // inside

	Inputs []Input `json:"inputs,omitempty"` // input files of a command

	ExitCode    *int   `json:"exit_code,omitempty"`
	Signal      int    `json:"signal,omitempty"`
	Reason      string `json:"reason,omitempty"`      // of an end or a refusal
	StdinBytes  int64  `json:"stdin_bytes,omitempty"` // that the command's pipe took
	StdoutBytes int64  `json:"stdout_bytes,omitempty"`
	StderrBytes int64  `json:"stderr_bytes,omitempty"`
	LostBytes   int64  `json:"lost_bytes,omitempty"` // of output that the disk did not take

	CPU             Duration `json:"cpu,omitempty"`
	PeakMemoryBytes int64    `json:"peak_memory_bytes,omitempty"`
	Duration        Duration `json:"duration,omitempty"`

	Limit string `json:"limit,omitempty"` // that was hit: "memory", "pids", "cpu", "kernel_memory", "time", "output", "tmpfs"; of an alert also "refusals"

	Kind          string `json:"kind,omitempty"`    // of an attempt, as in the policy log
	Verdict       string `json:"verdict,omitempty"` // likewise
	Host          string `json:"host,omitempty"`    // name that was asked for
	Port          uint16 `json:"port,omitempty"`
	Address       string `json:"address,omitempty"`
	Peer          string `json:"peer,omitempty"`       // that came in from outside
	Rule          string `json:"rule,omitempty"`       // that decided
	Request       string `json:"request,omitempty"`    // to a route: method and path, without the query
	Status        int    `json:"status,omitempty"`     // of its answer
	Credential    string `json:"credential,omitempty"` // that was added, set or removed: the name of a secret
	Skipped       uint64 `json:"skipped,omitempty"`
	SentBytes     int64  `json:"sent_bytes,omitempty"`     // from the sandbox
	ReceivedBytes int64  `json:"received_bytes,omitempty"` // by the sandbox

	InputTokens  int64   `json:"input_tokens,omitempty"` // that models read for the sandbox
	OutputTokens int64   `json:"output_tokens,omitempty"`
	Cost         float64 `json:"cost,omitempty"` // in the unit of prices

	Action string `json:"action,omitempty"` // on a file: "read", "write", "make", "move", "remove", "copy_in", "copy_out"
	Path   string `json:"path,omitempty"`   // inside
	To     string `json:"to,omitempty"`     // of a move
	Bytes  int64  `json:"bytes,omitempty"`

	Call    string      `json:"call,omitempty"`    // procedure of the API
	Code    sbxerr.Code `json:"code,omitempty"`    // of a failure
	Message string      `json:"message,omitempty"` // of a failure of the host

	Version      string `json:"version,omitempty"`       // of the daemon
	ConfigDigest string `json:"config_digest,omitempty"` // SHA-256 of the effective configuration as JSON
	// ConfigDigestBefore is ConfigDigest of the configuration that was in force before.
	ConfigDigestBefore string   `json:"config_digest_before,omitempty"`
	Keys               []string `json:"keys,omitempty"` // of the configuration, whose values changed
	Lost               uint64   `json:"lost,omitempty"` // events that the reader missed
}

// Stage is one step of the creation of a sandbox.
type Stage struct {
	Name     string   `json:"name"`
	Duration Duration `json:"duration"`
}

// Duration is one in JSON, such as "1.5s".
type Duration time.Duration

// Seconds is d in them.
func (d Duration) Seconds() float64 { return time.Duration(d).Seconds() }

// MarshalText implements encoding.TextMarshaler. It writes at most nine digits of a
// fraction, which is what google.protobuf.Duration can read: a float may need more.
func (d Duration) MarshalText() ([]byte, error) {
	sign, whole, part := "", int64(d/1e9), int64(d%1e9)
	if d < 0 {
		sign, whole, part = "-", -whole, -part
	}
	text := fmt.Sprintf("%s%d.%09d", sign, whole, part)
	return []byte(strings.TrimSuffix(strings.TrimRight(text, "0"), ".") + "s"), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(text []byte) error {
	of, err := time.ParseDuration(string(text))
	*d = Duration(of)
	return err
}

// maxText bounds a message, in bytes.
const maxText = 1 << 10

// Fail notes the code of a failure. Its text stays out: it may quote what a caller sent.
func (d *Data) Fail(err error) { d.Code = sbxerr.Of(err) }

// Tell is Fail for a failure of the host, of which the text is told too.
func (d *Data) Tell(err error) {
	d.Code = sbxerr.Of(err)
	d.Message = sbxerr.ClipTo(strings.ToValidUTF8(err.Error(), "\ufffd"), maxText)
}

// Input is an input file of a command.
type Input struct {
	Path  string `json:"path"` // inside
	Bytes int64  `json:"bytes"`
}

// Mount is a mount of a sandbox beside its workspace.
type Mount struct {
	Type      string `json:"type"`
	Source    string `json:"source,omitempty"` // directory of the host, or name of a volume
	Target    string `json:"target"`
	ReadOnly  bool   `json:"read_only,omitempty"`
	SizeBytes *int64 `json:"size_bytes,omitempty"`
	Cow       bool   `json:"cow,omitempty"`
}
