// Package views has the JSON that the CLI prints, made from the messages of the API.
package views

import (
	"encoding/json"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

// The views are the JSON that the CLI prints: stable names, RFC 3339 times in
// UTC, [] and {} for what is empty, null for what is not there.

type SandboxView struct {
	ID        string            `json:"id"`
	Name      string            `json:"name"`
	State     string            `json:"state"`
	Image     string            `json:"image"`
	Profile   string            `json:"profile"`
	Isolation string            `json:"isolation"`
	Args      []string          `json:"args"`
	CreatedAt *time.Time        `json:"created_at"`
	ExitedAt  *time.Time        `json:"exited_at"`
	PID       int64             `json:"pid"`
	Workspace *workspaceView    `json:"workspace"`
	Mounts    []mountView       `json:"mounts,omitempty"`
	Labels    map[string]string `json:"labels"`
	Session   string            `json:"session"`
	Task      string            `json:"task"`
	Result    *ResultView       `json:"result"`

	ExpiresAt     *time.Time `json:"expires_at"`
	IdleTimeoutMS *float64   `json:"idle_timeout_ms"`
	IdleSince     *time.Time `json:"idle_since"`
	OwnerUID      uint32     `json:"owner_uid"`
	Parent        string     `json:"parent"`
	Execs         int32      `json:"execs"`
	Network       string     `json:"network"`
	Ports         []portView `json:"ports"`
	Exposed       []uint32   `json:"exposed"`
	Warnings      []string   `json:"warnings,omitempty"`
	Replaced      string     `json:"replaced,omitempty"` // of create alone
}

type portView struct {
	Address  string `json:"address"`
	HostPort uint32 `json:"host_port"`
	Port     uint32 `json:"port"` // inside
}

func PortViewOf(p *caissonv1.Port) portView {
	return portView{p.GetAddress(), p.GetHostPort(), p.GetPort()}
}

type workspaceView struct {
	Dir  string `json:"dir"`
	Mode string `json:"mode"`
	Path string `json:"path,omitempty"` // inside; empty: /workspace
}

type mountView struct {
	Type      string `json:"type"`
	Source    string `json:"source,omitempty"`
	Target    string `json:"target"`
	ReadOnly  bool   `json:"read_only"`
	SizeBytes *int64 `json:"size_bytes,omitempty"`
}

func mountViewOf(m *caissonv1.Mount) mountView {
	return mountView{m.GetType(), m.GetSource(), m.GetTarget(), m.GetReadOnly(), m.SizeBytes}
}

func SandboxViewOf(s *caissonv1.Sandbox) SandboxView {
	v := SandboxView{
		ID: s.GetId(), Name: s.GetName(), State: s.GetState(), Image: s.GetImage(), Profile: s.GetProfile(), Isolation: s.GetIsolation(),
		Args: OrEmpty(s.GetArgs()), CreatedAt: TimeOf(s.GetCreatedAt()), ExitedAt: TimeOf(s.GetExitedAt()),
		PID: s.GetPid(), Labels: OrEmptyMap(s.GetLabels()), Session: s.GetSession(), Task: s.GetTask(),
		Result: ResultViewOf(s.GetResult()), ExpiresAt: TimeOf(s.GetExpiresAt()), IdleSince: TimeOf(s.GetIdleSince()),
		OwnerUID: s.GetOwnerUid(), Parent: s.GetParent(), Execs: s.GetExecs(), Network: s.GetNetwork(), Ports: Each(s.GetPorts(), PortViewOf), Exposed: OrEmpty(s.GetExposed()), Warnings: s.GetWarnings(), Replaced: s.GetReplaced(),
	}
	if d := s.GetIdleTimeout(); d != nil {
		ms := Milliseconds(d)
		v.IdleTimeoutMS = &ms
	}
	if w := s.GetWorkspace(); w != nil {
		v.Workspace = &workspaceView{w.Dir, w.Mode, w.Path}
	}
	if list := s.GetMounts(); len(list) > 0 {
		v.Mounts = Each(list, mountViewOf)
	}
	return v
}

type postureView struct {
	Name     string `json:"name"`
	Declared string `json:"declared"`
	Live     string `json:"live"`
}

type inspectView struct {
	SandboxView
	Limits      *caissonv1.Limits `json:"limits"`
	Cgroup      string            `json:"cgroup"`
	ImageDigest string            `json:"image_digest"`
	HostIDBase  uint32            `json:"host_id_base"`
	HostIDSize  uint32            `json:"host_id_size"`
	Posture     []postureView     `json:"posture,omitempty"`
	Egress      *egressView       `json:"egress"` // null in the mode none when nothing was tried
	// NetworkFailure is why the gateway serves the sandbox not, or in the mode bridge
	// records nothing of it; empty while it does.
	NetworkFailure string          `json:"network_failure"`
	AllowECH       bool            `json:"allow_ech"`
	OCISpec        json.RawMessage `json:"oci_spec,omitempty"`
}

func InspectViewOf(r *caissonv1.InspectResponse) inspectView {
	return inspectView{
		SandboxView: SandboxViewOf(r.GetSandbox()),
		Limits:      r.GetLimits(),
		Cgroup:      r.GetCgroup(), ImageDigest: r.GetImageDigest(),
		HostIDBase: r.GetHostIdBase(), HostIDSize: r.GetHostIdSize(),
		Posture: Each(r.GetPosture(), func(p *caissonv1.PostureCheck) postureView {
			return postureView{p.Name, p.Declared, p.Live}
		}),
		Egress: egressViewOf(r.GetEgress()), NetworkFailure: r.GetNetworkFailure(), AllowECH: r.GetAllowEch(),
		OCISpec: RawJSON(r.GetOciSpecJson()),
	}
}

type leftoverView struct {
	Kind    string `json:"kind"`
	ID      string `json:"id"`
	Reason  string `json:"reason"`
	Removed bool   `json:"removed"`
}

func LeftoverViewOf(l *caissonv1.Leftover) leftoverView {
	return leftoverView{l.Kind, l.Id, l.Reason, l.Removed}
}

type ImageView struct {
	Name      string     `json:"name"`
	Digest    string     `json:"digest"`
	SizeBytes int64      `json:"size_bytes"`
	CreatedAt *time.Time `json:"created_at"`
	Source    string     `json:"source"`
	Owner     uint32     `json:"owner"`
	Damaged   string     `json:"damaged,omitempty"`
	Verified  string     `json:"verified,omitempty"`
	Target    string     `json:"target_digest,omitempty"`
	Original  string     `json:"source_digest,omitempty"`
}

func ImageViewOf(i *caissonv1.Image) ImageView {
	return ImageView{i.GetName(), i.GetDigest(), i.GetSizeBytes(), TimeOf(i.GetCreatedAt()), i.GetSource(), i.GetOwner(), i.GetDamaged(), i.GetVerified(), i.GetTargetDigest(), i.GetSourceDigest()}
}

type reportView struct {
	Entries  int64            `json:"entries"`
	Bytes    int64            `json:"bytes"`
	Stripped map[string]int64 `json:"stripped"`
}

func reportViewOf(r *caissonv1.ImportReport) reportView {
	return reportView{r.GetEntries(), r.GetBytes(), OrEmptyMap(r.GetStripped())}
}

type imageDetailView struct {
	ImageView
	Layers []string        `json:"layers"`
	Report reportView      `json:"report"`
	Config json.RawMessage `json:"config"`
}

type ImportedView struct {
	Image    ImageView  `json:"image"`
	Report   reportView `json:"report"`
	Replaced string     `json:"replaced,omitempty"` // a digest
}

func ImportedViewOf(r Imported) ImportedView {
	return ImportedView{ImageViewOf(r.GetImage()), reportViewOf(r.GetReport()), r.GetReplaced()}
}

type specView struct {
	OCISpec      json.RawMessage   `json:"oci_spec,omitempty"`
	CgroupValues map[string]string `json:"cgroup_values"`
	Mounts       []string          `json:"mounts"`
	seccompView
	NetworkRules []string `json:"network_rules"`
}

type seccompView struct {
	SeccompProfile string     `json:"seccomp_profile"`
	SeccompRules   []ruleView `json:"seccomp_rules"`
}

type PfcView struct {
	SeccompProfile string `json:"seccomp_profile"`
	SeccompPFC     string `json:"seccomp_pfc"`
}

func SeccompViewOf(r *caissonv1.SpecResponse) seccompView {
	return seccompView{r.SeccompProfile, Each(r.SeccompRules, func(s *caissonv1.SeccompRule) ruleView {
		return ruleView{OrEmpty(s.Syscalls), s.Action, s.Condition, s.Why}
	})}
}

type ruleView struct {
	Syscalls  []string `json:"syscalls"`
	Action    string   `json:"action"`
	Condition string   `json:"condition"`
	Why       string   `json:"why"`
}

func SpecViewOf(r *caissonv1.SpecResponse) specView {
	return specView{
		OCISpec: RawJSON(r.OciSpecJson), CgroupValues: OrEmptyMap(r.CgroupValues), Mounts: OrEmpty(r.Mounts),
		seccompView: SeccompViewOf(r), NetworkRules: OrEmpty(r.NetworkRules),
	}
}

type doctorView struct {
	OK     bool        `json:"ok"`
	Checks []checkView `json:"checks"`
}

type checkView struct {
	Name   string `json:"name"`
	Status string `json:"status"`
	Detail string `json:"detail"`
	Code   string `json:"code,omitempty"`
	Remedy string `json:"remedy,omitempty"`
}

func checkViewOf(c *caissonv1.DoctorCheck) checkView {
	return checkView{c.Name, c.Status, c.Detail, c.Code, c.Remedy}
}

type capabilityView struct {
	Field   string `json:"field"`
	Support string `json:"support"`
	Detail  string `json:"detail"`
}

func CapabilityViewOf(c *caissonv1.Capability) capabilityView {
	return capabilityView{c.Field, c.Support, c.Detail}
}

// Each translates a list; the result is never null.
func Each[A, B any](list []A, one func(A) B) []B {
	out := make([]B, 0, len(list))
	for _, a := range list {
		out = append(out, one(a))
	}
	return out
}

func OrEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

func OrEmptyMap[V any](m map[string]V) map[string]V {
	if m == nil {
		return map[string]V{}
	}
	return m
}

// RawJSON passes the daemon's JSON on; what is not JSON becomes null, so that
// the object around it stays readable.
func RawJSON(p []byte) json.RawMessage {
	if !json.Valid(p) {
		return json.RawMessage("null")
	}
	return p
}

func TimeOf(t *timestamppb.Timestamp) *time.Time {
	if t == nil {
		return nil
	}
	u := t.AsTime()
	return &u
}

// Milliseconds keeps microseconds: some commands take no whole millisecond.
func Milliseconds(d *durationpb.Duration) float64 {
	return float64(d.AsDuration().Round(time.Microsecond)) / float64(time.Millisecond)
}

// ExecView is one command of a sandbox.
type ExecView struct {
	ID          string      `json:"id"`
	SandboxID   string      `json:"sandbox_id"`
	Args        []string    `json:"args"`
	State       string      `json:"state"`
	PID         int64       `json:"pid"`
	TTY         bool        `json:"tty"`
	Stdin       bool        `json:"stdin"`
	StartedAt   *time.Time  `json:"started_at"`
	EndedAt     *time.Time  `json:"ended_at"`
	StdoutBytes int64       `json:"stdout_bytes"`
	StderrBytes int64       `json:"stderr_bytes"`
	Result      *ResultView `json:"result"`
}

func ExecViewOf(e *caissonv1.Exec) ExecView {
	return ExecView{
		ID: e.GetId(), SandboxID: e.GetSandboxId(), Args: OrEmpty(e.GetArgs()), State: e.GetState(), PID: e.GetPid(),
		TTY: e.GetTty(), Stdin: e.GetStdin(), StartedAt: TimeOf(e.GetStartedAt()), EndedAt: TimeOf(e.GetEndedAt()),
		StdoutBytes: e.GetStdoutBytes(), StderrBytes: e.GetStderrBytes(), Result: ResultViewOf(e.GetResult()),
	}
}

// PartView is what a call did that failed for others of what it was for.
type PartView struct {
	Changed []SandboxView `json:"changed,omitempty"`
	Removed []string      `json:"removed,omitempty"`
}

// Imported is the answer to an import, and the last line of progress of FromHost.
type Imported interface {
	GetImage() *caissonv1.Image
	GetReport() *caissonv1.ImportReport
	GetReplaced() string
}

func ImageDetailViewOf(r *caissonv1.InspectImageResponse) imageDetailView {
	return imageDetailView{ImageViewOf(r.Image), OrEmpty(r.Layers), reportViewOf(r.Report), RawJSON(r.ConfigJson)}
}

func DoctorViewOf(r *caissonv1.DoctorResponse) doctorView {
	return doctorView{r.Ok, Each(r.Checks, checkViewOf)}
}
