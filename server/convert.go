package server

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/settings"
	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/runtime/images"
	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/runtime/pool"
)

// This file translates the runtime's types into messages. All of it is plain
// copying; request.go goes the other way.

func workspacePB(w *plan.WorkspaceRequest) *caissonv1.Workspace {
	if w == nil {
		return nil
	}
	return &caissonv1.Workspace{Dir: w.Dir, Mode: w.Mode, Path: w.Path}
}

func mountPB(m plan.MountRequest) *caissonv1.Mount {
	return &caissonv1.Mount{Type: m.Type, Source: m.Source, Target: m.Target, ReadOnly: m.ReadOnly, SizeBytes: m.SizeBytes, Cow: m.Cow}
}

func resultOf(r *runtime.Result) *caissonv1.Result {
	if r == nil {
		return nil
	}
	return &caissonv1.Result{
		ExitCode: int32(r.ExitCode), Signal: int32(r.Signal), Reason: string(r.Reason), Cause: string(r.Cause), Source: r.Source,
		TimedOut: r.TimedOut, OomKilled: r.OOMKilled, PidsLimitHit: r.PIDsLimitHit,
		LimitsHit: r.LimitsHit, FullTmpfs: r.FullTmpfs, FullVolumes: r.FullVolumes, ReadOnlyHint: r.ReadOnlyHint,
		StdoutBytes: r.StdoutBytes, StderrBytes: r.StderrBytes, Truncated: r.Truncated, LostBytes: r.LostBytes,
		Duration: durationpb.New(r.Duration), Stages: each(r.Stages, stagePB), Warnings: r.Warnings,
		Remaining: int64(r.Remaining), EndedProcesses: int64(r.EndedProcesses), ExecId: r.ExecID,
		Refusals: each(r.Refusals, refusalPB), Learned: learnedPB(r.Learned),
		Usage: &caissonv1.ResultUsage{
			Cpu: durationpb.New(r.CPU), PeakMemoryBytes: counted(r.PeakMemoryBytes), MaxRssBytes: r.MaxRSSBytes,
			CpuThrottled: duration(r.Throttled), CpuThrottledPeriods: r.ThrottledPeriods,
			IoReadBytes: r.IOReadBytes, IoWriteBytes: r.IOWriteBytes,
		},
		Sandbox: &caissonv1.ResultSandbox{
			Id: r.SandboxID, Network: r.Network, ImageVerified: r.ImageVerified,
			LimitsHit: r.SandboxLimitsHit, Egress: egressPB(r.Egress),
		},
	}
}

func refusalPB(r runtime.Refusal) *caissonv1.Refusal {
	return &caissonv1.Refusal{Name: r.Name, Port: uint32(r.Port), Code: string(r.Code), Needs: r.Needs}
}

// counted is n where it was counted: what runs has used some.
func counted(n int64) *int64 {
	if n == 0 {
		return nil
	}
	return &n
}

func learnedPB(l *runtime.Learned) *caissonv1.Learned {
	if l == nil {
		return nil
	}
	return &caissonv1.Learned{Rules: l.Rules, Warnings: l.Warnings}
}

func stagePB(s runtime.Stage) *caissonv1.Stage {
	return &caissonv1.Stage{Name: s.Name, Duration: durationpb.New(s.Duration)}
}

func sandboxPB(i runtime.Info) *caissonv1.Sandbox {
	return &caissonv1.Sandbox{
		Id: i.ID, Name: i.Name, State: string(i.State), Image: i.Image, Profile: i.Profile, Args: i.Args,
		CreatedAt: timestamp(i.CreatedAt), ExitedAt: timestamp(i.ExitedAt), Result: resultOf(i.Result),
		Labels: i.Labels, Session: i.Session, Task: i.Task, Pid: int64(i.PID), Workspace: workspacePB(i.Workspace), Mounts: each(i.Mounts, mountPB),
		ExpiresAt: timestamp(i.ExpiresAt), IdleTimeout: duration(i.IdleTimeout), IdleSince: timestamp(i.IdleSince),
		IdleAt: timestamp(i.IdleAt), OnIdle: i.OnIdle, PausedBy: i.PausedBy,
		OwnerUid: i.OwnerUID, Parent: i.Parent, Execs: int32(i.Execs), Network: i.Network, Ports: each(i.Ports, portPB), Exposed: i.Exposed, Warnings: i.Warnings,
		Replaced: i.Replaced, Isolation: i.Isolation,
	}
}

func portPB(p runtime.PortInfo) *caissonv1.Port {
	return &caissonv1.Port{Address: p.Address, HostPort: uint32(p.HostPort), Port: uint32(p.Port), Clients: p.Clients}
}

func execPB(e runtime.ExecInfo) *caissonv1.Exec {
	return &caissonv1.Exec{
		Id: e.ID, SandboxId: e.SandboxID, Args: e.Args, State: string(e.State), Pid: int64(e.PID), Tty: e.TTY, Stdin: e.Stdin,
		StartedAt: timestamp(e.StartedAt), EndedAt: timestamp(e.EndedAt),
		StdoutBytes: e.StdoutBytes, StderrBytes: e.StderrBytes, Result: resultOf(e.Result),
	}
}

func infoPB(s runtime.HostInfo) *caissonv1.InfoResponse {
	states := make(map[string]int32, len(s.Sandboxes))
	for state, n := range s.Sandboxes {
		states[string(state)] = int32(n)
	}
	return &caissonv1.InfoResponse{
		Capacity: resourcesPB(s.Capacity), Available: resourcesPB(s.Available),
		Sandboxes: states, Execs: int32(s.Execs), Queued: int32(s.Queued), Pools: each(s.Pools, poolPB),
		Networks: each(s.Networks, networkStatsPB),
	}
}

func resourcesPB(r peer.Resources) *caissonv1.Resources {
	return &caissonv1.Resources{MilliCpu: r.MilliCPU, MemoryBytes: r.MemoryBytes, Sandboxes: r.Sandboxes, DiskBytes: r.DiskBytes}
}

func cleanedPB(c runtime.Cleaned) *caissonv1.CleanResponse {
	return &caissonv1.CleanResponse{Processes: int32(c.Processes), Files: int32(c.Files)}
}

func reloadedPB(r runtime.Reloaded) *caissonv1.ReloadConfigResponse {
	return &caissonv1.ReloadConfigResponse{Changed: r.Changed, NeedsRestart: r.NeedsRestart, Digest: r.Digest}
}

func networkStatsPB(n runtime.NetworkStats) *caissonv1.NetworkStats {
	return &caissonv1.NetworkStats{SandboxId: n.SandboxID, Name: n.Name, Network: n.Network, Egress: egressPB(&n.Egress)}
}

func poolPB(p pool.Stats) *caissonv1.PoolStats {
	return &caissonv1.PoolStats{
		Profile: p.Profile, Image: p.Image, Ready: int32(p.Ready), Filling: int32(p.Filling), Size: int32(p.Size),
		Hits: p.Hits, Misses: p.Misses, Failures: p.Failures, Refill: durationpb.New(p.Refill),
		Target: int32(p.Target), Max: int32(p.Max),
	}
}

func detailPB(d *runtime.Detail) *caissonv1.InspectResponse {
	return &caissonv1.InspectResponse{
		Sandbox: sandboxPB(d.Info), Limits: settings.Limits(d.Limits).Message(), Cgroup: d.Cgroup, ImageDigest: d.ImageDigest,
		HostIdBase: d.HostIDBase, HostIdSize: d.HostIDSize, OciSpecJson: d.SpecJSON, Posture: each(d.Posture, posturePB),
		Egress: egressPB(d.Egress), NetworkFailure: d.NetworkFailure, AllowEch: d.AllowECH, Routes: d.Routes,
	}
}

func posturePB(p runtime.PostureCheck) *caissonv1.PostureCheck {
	return &caissonv1.PostureCheck{Name: p.Name, Declared: p.Declared, Live: p.Live}
}

func leftoverPB(l runtime.Leftover) *caissonv1.Leftover {
	return &caissonv1.Leftover{Kind: l.Kind, Id: l.ID, Reason: l.Reason, Removed: l.Removed}
}

func specPB(v *runtime.SpecView) *caissonv1.SpecResponse {
	return &caissonv1.SpecResponse{
		OciSpecJson: v.SpecJSON, CgroupValues: v.CgroupValues, Mounts: v.Mounts,
		SeccompRules: each(v.SeccompRules, rulePB), SeccompProfile: v.SeccompProfile, NetworkRules: v.NetworkRules,
	}
}

func rulePB(r runtime.SeccompRule) *caissonv1.SeccompRule {
	return &caissonv1.SeccompRule{Syscalls: r.Syscalls, Action: r.Action, Condition: r.Condition, Why: r.Why}
}

func imagePB(i images.Image) *caissonv1.Image {
	return &caissonv1.Image{Name: i.Name, Digest: i.Digest, SizeBytes: i.SizeBytes, CreatedAt: timestamp(i.CreatedAt), Source: i.Source, Owner: i.Owner, Damaged: text(i.Damaged), Verified: i.Verified, TargetDigest: i.TargetDigest, SourceDigest: i.SourceDigest}
}

func importedPB(i images.Imported) *caissonv1.ImageProgress {
	return &caissonv1.ImageProgress{Image: imagePB(i.Image), Report: reportPB(i.Report), Replaced: i.Replaced, Present: i.Present}
}

func diskUsagePB(u images.DiskUsage) *caissonv1.DiskUsage {
	return &caissonv1.DiskUsage{Image: imagePB(u.Image), SharedBytes: u.SharedBytes, UnpackedBytes: u.UnpackedBytes}
}

func layerPB(l images.LayerProgress) *caissonv1.LayerProgress {
	return &caissonv1.LayerProgress{Digest: l.Digest, SizeBytes: l.Size, ReceivedBytes: l.Received, State: l.State}
}

func imageDetailPB(d *images.Detail) *caissonv1.InspectImageResponse {
	return &caissonv1.InspectImageResponse{Image: imagePB(d.Image), ConfigJson: d.ConfigJSON, Layers: d.Layers, Report: reportPB(d.Report)}
}

func reportPB(r images.Report) *caissonv1.ImportReport {
	return &caissonv1.ImportReport{Entries: r.Entries, Bytes: r.Bytes, Stripped: r.Stripped}
}

func versionsPB(v runtime.Versions) *caissonv1.VersionResponse {
	return &caissonv1.VersionResponse{
		Version: v.Version, Commit: v.Commit, GoVersion: v.GoVersion, Containerd: v.Containerd,
		ContainerdAddress: v.ContainerdAddress, Runc: v.Runc, Root: v.Root, Instance: v.Instance,
	}
}

func checkPB(c runtime.Check) *caissonv1.DoctorCheck {
	return &caissonv1.DoctorCheck{Name: c.Name, Status: c.Status, Detail: c.Detail, Code: c.Code, Remedy: c.Remedy}
}

func capabilityPB(c runtime.Capability) *caissonv1.Capability {
	return &caissonv1.Capability{Field: c.Field, Support: c.Support, Detail: c.Detail}
}

// timestamp leaves the zero time out.
func timestamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// duration leaves zero out.
func duration(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}

// each translates a list.
func each[A, B any](list []A, one func(A) B) []B {
	out := make([]B, 0, len(list))
	for _, a := range list {
		out = append(out, one(a))
	}
	return out
}
