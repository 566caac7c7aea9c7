package views

import (
	"encoding/base64"
	"time"
	"unicode/utf8"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

// RunView is what run --json and exec --json print.
type RunView struct {
	ResultView
	OutputView
	Exec string `json:"exec_id"` // ID of the command in the sandbox
}

// OutputView is what a command wrote, as far as it was kept.
type OutputView struct {
	Stdout         string `json:"stdout"`
	StdoutEncoding string `json:"stdout_encoding"`
	StdoutSkipped  int64  `json:"stdout_skipped"` // left out between its first and its last half
	Stderr         string `json:"stderr"`
	StderrEncoding string `json:"stderr_encoding"`
	StderrSkipped  int64  `json:"stderr_skipped"`
}

// CutView is what they print beside the error of a call that ended before its
// command: what was known by then.
type CutView struct {
	SandboxID   string `json:"sandbox_id"`
	Exec        string `json:"exec_id"`
	StdoutBytes int64  `json:"stdout_bytes"` // offset up to which the stream came
	StderrBytes int64  `json:"stderr_bytes"`
	OutputView
}

// ResultView is how a command ended.
type ResultView struct {
	Source              string        `json:"source"`
	ExitCode            int32         `json:"exit_code"`
	Signal              int32         `json:"signal"`
	TimedOut            bool          `json:"timed_out"`
	OOMKilled           bool          `json:"oom_killed"`
	PIDsLimitHit        bool          `json:"pids_limit_hit"`
	Reason              string        `json:"reason"`
	EndedProcesses      int64         `json:"ended_processes,omitempty"` // with the command
	Remaining           int64         `json:"remaining,omitempty"`       // processes that went on in the sandbox
	StdoutBytes         int64         `json:"stdout_bytes"`
	StderrBytes         int64         `json:"stderr_bytes"`
	Truncated           bool          `json:"truncated"`
	LostBytes           int64         `json:"lost_bytes,omitempty"`
	DurationMS          float64       `json:"duration_ms"`
	CPUMS               float64       `json:"cpu_ms"`
	MaxRSSBytes         int64         `json:"max_rss_bytes"`
	PeakMemoryBytes     *int64        `json:"peak_memory_bytes"`
	CPUThrottledPeriods int64         `json:"cpu_throttled_periods"`
	CPUThrottledMS      float64       `json:"cpu_throttled_ms"`
	IOReadBytes         *int64        `json:"io_read_bytes"`  // null where they are not counted
	IOWriteBytes        *int64        `json:"io_write_bytes"` // likewise
	LimitsHit           []string      `json:"limits_hit"`
	Cause               string        `json:"cause,omitempty"`              // of the reason canceled
	SandboxLimitsHit    []string      `json:"sandbox_limits_hit,omitempty"` // by the command or something else that ran
	FullTmpfs           []string      `json:"full_tmpfs,omitempty"`
	ReadOnlyHint        bool          `json:"read_only_hint,omitempty"`
	Network             string        `json:"network"`
	Egress              *egressView   `json:"egress"`   // null in the mode none when nothing was tried
	Refusals            []refusalView `json:"refusals"` // while the command ran
	SandboxID           string        `json:"sandbox_id"`
	ExecID              string        `json:"exec_id,omitempty"`
	RequestID           string        `json:"request_id"`       // empty where another call brought the result
	Stages              []StageView   `json:"stages,omitempty"` // of run --trace alone
	Warnings            []string      `json:"warnings"`
	ImageVerified       string        `json:"image_verified,omitempty"` // the rule that it was pulled by

	Learned *learnedView `json:"learned,omitempty"` // of policy learn alone
}

type StageView struct {
	Name       string  `json:"name"`
	DurationMS float64 `json:"duration_ms"`
}

// ResultViewOf is nil for a command that has not ended.
func ResultViewOf(r *caissonv1.Result) *ResultView {
	if r == nil {
		return nil
	}
	return &ResultView{
		Source: r.Source, ExitCode: r.ExitCode, Signal: r.Signal,
		TimedOut: r.TimedOut, OOMKilled: r.OomKilled, PIDsLimitHit: r.PidsLimitHit, Reason: r.Reason, EndedProcesses: r.EndedProcesses, Remaining: r.Remaining,
		StdoutBytes: r.StdoutBytes, StderrBytes: r.StderrBytes, Truncated: r.Truncated, LostBytes: r.LostBytes,
		DurationMS: Milliseconds(r.Duration), CPUMS: Milliseconds(r.Cpu),
		MaxRSSBytes: r.MaxRssBytes, PeakMemoryBytes: r.PeakMemoryBytes, CPUThrottledPeriods: r.CpuThrottledPeriods,
		CPUThrottledMS: Milliseconds(r.CpuThrottled), IOReadBytes: r.IoReadBytes, IOWriteBytes: r.IoWriteBytes,
		LimitsHit: OrEmpty(r.LimitsHit), SandboxLimitsHit: r.SandboxLimitsHit, Cause: r.Cause, FullTmpfs: r.FullTmpfs, ReadOnlyHint: r.ReadOnlyHint,
		Network: r.Network, Egress: egressViewOf(r.Egress), Refusals: Each(r.Refusals, refusalViewOf), SandboxID: r.SandboxId, ExecID: r.ExecId, RequestID: r.RequestId,
		Warnings: OrEmpty(r.Warnings), Learned: learnedViewOf(r.Learned), ImageVerified: r.ImageVerified,
	}
}

// Encode makes a JSON string of any bytes: as they are where they are text,
// else as base64.
func Encode(p []byte) (text, encoding string) {
	if utf8.Valid(p) {
		return string(p), "utf-8"
	}
	return base64.StdEncoding.EncodeToString(p), "base64"
}

// refusalView is one destination that was refused.
type refusalView struct {
	Name  string `json:"name"`
	Port  uint32 `json:"port"`
	Code  string `json:"code"`
	Needs string `json:"needs"`
}

func refusalViewOf(r *caissonv1.Refusal) refusalView {
	return refusalView{r.Name, r.Port, r.Code, r.Needs}
}

// LogsView is the output of a command with its times.
type LogsView struct {
	OutputView
	StdoutTimes []LogTime `json:"stdout_times"`
	StderrTimes []LogTime `json:"stderr_times"`
}

// LogTime is when the bytes of a stream from an offset on came, up to the next time; null
// is that nobody knows.
type LogTime struct {
	Offset int64      `json:"offset"`
	Time   *time.Time `json:"time"`
}
