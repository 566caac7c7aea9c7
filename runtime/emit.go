package runtime

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/runtime/events"
	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/runtime/traffic"
)

// This file says what the stream of events tells of a sandbox.

// Events calls yield with each event that the caller of ctx may see and the filter takes,
// from since on, and with follow goes on until ctx ends.
func (m *Manager) Events(ctx context.Context, since events.Since, filter events.Filter, follow bool, yield func(*events.Event) error) error {
	g, err := m.grant(ctx)
	if err != nil {
		return err
	}
	read := m.opts.Events.Read
	if g.CheckAdmin() != nil {
		read = func(s events.Since) (*events.Reader, error) { return m.opts.Events.ReadOf(g.Owner().UID, s) }
	}
	r, err := read(since)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(m.leaving, func() { cancel(m.leaveCause()) })()
	takes := func(e *events.Event) bool { return isShown(e.Scope, g) && filter.Takes(e) }
	return r.Follow(ctx, follow, takes, yield)
}

// isShown reports whether g's caller may know of an event.
func isShown(s events.Scope, g peer.Grant) bool {
	if s.Host {
		return g.CheckAdmin() == nil
	}
	return g.Sees(s.Owner, s.Parent)
}

// emit tells of something that happened to a sandbox with the record r.
func (h *host) emit(ctx context.Context, r record, t events.Type, d events.Data) {
	h.opts.Events.Emit(ctx, r.event(t, d))
}

// event is one about the sandbox of r.
func (r record) event(t events.Type, d events.Data) events.Event {
	d.SandboxID, d.Name, d.Session, d.Task, d.Pooled = r.ID, r.Name, r.Session, r.Task, r.Pooled
	if r.unisolated() {
		d.Isolation = plan.IsolationNone
	}
	return events.Event{Type: t, Scope: events.Scope{Host: r.Pooled || r.OwnerSystem, Owner: r.OwnerUID, Parent: r.Parent}, Data: d}
}

// described is what a sandbox is made of, and what it may do.
func (r record) described() events.Data {
	d := events.Data{
		Profile: r.Profile, Image: r.Image, ImageDigest: r.ImageDigest, Verified: r.Verified, Network: string(r.Network), PolicyDigest: policyDigest(r.Policy), FilterDigest: r.FilterDigest, User: ids(r.User),
		MemoryBytes: r.Limits.MemoryBytes, MilliCPU: r.Limits.MilliCPU, PIDs: r.Limits.PIDs,
	}
	if r.Workspace != nil {
		d.Workspace = r.Workspace.Dir
	}
	for _, m := range r.Mounts {
		d.Mounts = append(d.Mounts, events.Mount{Type: m.Type, Source: m.Source, Target: m.Target, ReadOnly: m.ReadOnly, SizeBytes: m.SizeBytes, Cow: m.Cow})
	}
	var took time.Duration
	for _, s := range r.Stages {
		d.Stages = append(d.Stages, events.Stage{Name: s.Name, Duration: rounded(s.Duration)})
		took += s.Duration
	}
	d.Duration = rounded(took)
	return d
}

func ids(u plan.User) string { return fmt.Sprintf("%d:%d", u.UID, u.GID) }

func policyDigest(p policy.Spec) string {
	text, err := json.Marshal(p)
	if err != nil { // strings and numbers
		return ""
	}
	sum := sha256.Sum256(text)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func rounded(d time.Duration) events.Duration { return events.Duration(d.Truncate(time.Microsecond)) }

// announceExec tells of a command before it can do anything. An error means that it
// must not run.
func (h *host) announceExec(ctx context.Context, s *sandbox, e *execution, p *plan.Command) error {
	r := s.kept()
	d := events.Data{ExecID: number(e.number()), Image: r.Image, ImageDigest: r.ImageDigest, Network: string(r.Network), PolicyDigest: s.policyDigest(), Cwd: p.Cwd, User: ids(p.User)}
	d.SetArgs(p.Args, p.Env)
	for _, f := range p.Inputs {
		d.Inputs = append(d.Inputs, events.Input{Path: f.Path, Bytes: int64(len(f.Data))})
	}
	return h.opts.Events.Announce(ctx, r.event(events.ExecStarted, d))
}

// announceSandbox tells of a sandbox before anybody is told that it is there.
func (h *host) announceSandbox(ctx context.Context, s *sandbox) error {
	s.update(func() { s.told = true })
	r := s.kept()
	return h.opts.Events.Announce(ctx, r.event(events.SandboxCreated, r.described()))
}

// emitAdopted tells that this daemon goes on with s.
func (h *host) emitAdopted(ctx context.Context, s *sandbox) {
	s.update(func() { s.told = true })
	r := s.kept()
	h.emit(ctx, r, events.SandboxAdopted, r.described())
}

// confirmUpdate tells what s is now.
func (h *host) confirmUpdate(ctx context.Context, s *sandbox) error {
	r := s.kept()
	d := r.described()
	d.Stages, d.Duration = nil, 0
	return h.opts.Events.Confirm(ctx, r.event(events.SandboxUpdated, d))
}

// emitOver tells why s ended. What waited in a pool is told of, too.
func (h *host) emitOver(ctx context.Context, s *sandbox, cause error) {
	r := s.kept()
	var result *Result
	if main, err := s.execution(""); err == nil {
		result = main.result()
	}
	if result != nil && errors.Is(cause, errInitLost) && result.Reason != ReasonLost { // PID 1 ended with it
		cause = errMainEnded
	}
	d := events.Data{Reason: cause.Error(), Duration: rounded(time.Since(r.CreatedAt))}
	s.addTotals(&d, result)
	if len(r.Policy.Routes) > 0 {
		h.addSpent(ctx, r.ID, &d)
	}
	h.emit(ctx, r, events.SandboxEnded, d)
}

// emitRemoved tells that nothing is left of s, or why something is.
func (h *host) emitRemoved(ctx context.Context, s *sandbox, took time.Duration) {
	s.mu.Lock()
	told, took := s.told, took+s.freeing
	s.mu.Unlock()
	d := events.Data{Duration: rounded(took)}
	if s.removeErr != nil {
		d.Tell(s.removeErr)
	}
	if told { // not one that could not be made
		h.emit(ctx, s.kept(), events.SandboxRemoved, d)
	}
}

// policyDigest is that of the policy in force. Each command tells it, so it is kept.
func (s *sandbox) policyDigest() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.digest == "" {
		s.digest = policyDigest(s.record.Policy)
	}
	return s.digest
}

// emitEnd tells how a command ended, and which limits it hit.
func (h *host) emitEnd(ctx context.Context, e *execution, result *Result) {
	r := e.s.kept()
	d := events.Data{
		Caller: e.record.Caller, RequestID: e.record.RequestID,
		ExecID: result.ExecID, ExitCode: &result.ExitCode, Signal: result.Signal, Reason: string(result.Reason),
		StdoutBytes: result.StdoutBytes, StderrBytes: result.StderrBytes, LostBytes: result.LostBytes,
		StdinBytes: h.inputOf(e), CPU: rounded(result.CPU), PeakMemoryBytes: cmp.Or(result.PeakMemoryBytes, result.MaxRSSBytes), Duration: rounded(result.Duration),
	}
	if g := result.Egress; g != nil {
		d.SentBytes, d.ReceivedBytes = g.SentBytes, g.ReceivedBytes
	}
	for _, l := range []struct {
		name string
		hit  bool
	}{
		{"memory", result.OOMKilled && !e.wasTold(limitMemory)}, {"pids", result.PIDsLimitHit && !e.wasTold(limitPIDs)}, {"time", result.TimedOut},
		{"kernel_memory", result.Reason == ReasonKernelMemory}, {"output", result.Truncated}, {"tmpfs", len(result.FullTmpfs) > 0}, {"disk", slices.Contains(result.LimitsHit, "disk")},
		{"cpu", e.tellsThrottled()},
	} {
		if l.hit {
			h.emit(ctx, r, events.LimitHit, events.Data{Caller: d.Caller, RequestID: d.RequestID, ExecID: result.ExecID, Limit: l.name})
		}
	}
	for _, name := range result.FullVolumes {
		h.emit(ctx, r, events.LimitHit, events.Data{Caller: d.Caller, RequestID: d.RequestID, ExecID: result.ExecID, Limit: "volume", Volume: name})
	}
	h.emit(ctx, r, events.ExecEnded, d)
}

// emitLeftover tells that what an earlier daemon left of a sandbox is gone.
func (h *host) emitLeftover(ctx context.Context, l Leftover) {
	h.opts.Events.Emit(ctx, events.Event{Type: events.SandboxRemoved, Scope: events.Scope{Host: true}, Data: events.Data{SandboxID: l.ID, Kind: l.Kind, Reason: l.Reason}})
}

// tried tells of an attempt of a sandbox to connect, or to reach it. It is for
// [traffic.Log].
func (m *Manager) tried(e traffic.Entry) {
	m.mu.Lock()
	s := m.sandboxes[e.Sandbox]
	m.mu.Unlock()
	if s == nil {
		return
	}
	m.emit(context.Background(), s.kept(), events.NetworkTried, events.Data{
		Kind: string(e.Kind), Verdict: e.Verdict, Host: e.Name, Port: e.Port, Address: e.Address, Peer: e.Peer, Rule: e.Rule, Code: e.Code, Reason: e.Reason,
		SentBytes: e.Sent, ReceivedBytes: e.Received, Duration: rounded(e.Duration), Skipped: e.Skipped, Request: e.Request(), Status: e.Status, Credential: e.Secret,
	})
}
