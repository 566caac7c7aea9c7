package server

import (
	"context"
	"errors"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/runtime/events"
)

// eventService serves EventService.
type eventService struct{ stream Events }

// Watch implements EventServiceHandler.
func (s eventService) Watch(ctx context.Context, r *connect.Request[caissonv1.WatchRequest], stream *connect.ServerStream[caissonv1.Event]) error {
	since, err := events.ParseSince(r.Msg.Since, time.Now())
	filter, filterErr := events.ParseFilter(r.Msg.Filter)
	if err := errors.Join(err, filterErr); err != nil {
		return fail(err)
	}
	return fail(s.stream.Events(ctx, since, filter, r.Msg.Follow, func(e *events.Event) error {
		return sent(stream.Send(eventPB(e)))
	}))
}

func eventPB(e *events.Event) *caissonv1.Event {
	return &caissonv1.Event{
		Specversion: "1.0", Id: e.ID, Source: e.Source, Type: events.Prefix + string(e.Type), Time: timestamp(e.Time), Subject: text(e.Subject()), Data: eventDataPB(&e.Data),
	}
}

func eventDataPB(d *events.Data) *caissonv1.EventData {
	m := &caissonv1.EventData{
		Caller: d.Caller, RequestId: d.RequestID, SandboxId: d.SandboxID, Name: text(d.Name), ExecId: text(d.ExecID), Session: d.Session, Task: d.Task,
		Profile: d.Profile, Pooled: d.Pooled, Isolation: d.Isolation, Image: d.Image, ImageDigest: d.ImageDigest, ImageVerified: d.Verified, Network: d.Network, PolicyDigest: d.PolicyDigest, FilterDigest: d.FilterDigest, Workspace: text(d.Workspace), Mounts: each(d.Mounts, eventMountPB), Volume: d.Volume, Snapshot: d.Snapshot, Changes: int32(d.Changes),
		MemoryBytes: d.MemoryBytes, MilliCpu: d.MilliCPU, Pids: d.PIDs, Stages: each(d.Stages, eventStagePB),
		Args: each(d.Args, text), ArgsDigest: d.ArgsDigest, ArgsBytes: d.ArgsBytes, Env: each(d.Env, text), Cwd: text(d.Cwd), User: d.User, Inputs: each(d.Inputs, eventInputPB),
		Signal: int32(d.Signal), Reason: text(d.Reason), StdinBytes: d.StdinBytes, StdoutBytes: d.StdoutBytes, StderrBytes: d.StderrBytes, LostBytes: d.LostBytes,
		Cpu: eventDuration(d.CPU), PeakMemoryBytes: d.PeakMemoryBytes, Duration: eventDuration(d.Duration), Limit: d.Limit,
		Kind: d.Kind, Verdict: d.Verdict, Host: text(d.Host), Port: uint32(d.Port), Address: d.Address, Peer: d.Peer, Rule: text(d.Rule), Skipped: d.Skipped, Request: text(d.Request), Status: int32(d.Status), Credential: d.Credential,
		SentBytes: d.SentBytes, ReceivedBytes: d.ReceivedBytes, InputTokens: d.InputTokens, OutputTokens: d.OutputTokens, Cost: d.Cost, Action: d.Action, Path: text(d.Path), To: text(d.To), Bytes: d.Bytes,
		Call: text(d.Call), Code: string(d.Code), Message: d.Message, Version: d.Version, ConfigDigest: d.ConfigDigest, ConfigDigestBefore: d.ConfigDigestBefore, Keys: d.Keys, Lost: d.Lost,
	}
	if d.ExitCode != nil {
		code := int32(*d.ExitCode)
		m.ExitCode = &code
	}
	return m
}

func eventMountPB(m events.Mount) *caissonv1.EventMount {
	return &caissonv1.EventMount{Type: m.Type, Source: text(m.Source), Target: text(m.Target), ReadOnly: m.ReadOnly, SizeBytes: m.SizeBytes, Cow: m.Cow}
}

func eventInputPB(f events.Input) *caissonv1.EventInput {
	return &caissonv1.EventInput{Path: text(f.Path), Bytes: f.Bytes}
}

func eventStagePB(s events.Stage) *caissonv1.Stage {
	return &caissonv1.Stage{Name: s.Name, Duration: durationpb.New(time.Duration(s.Duration))}
}

// eventDuration is absent where it does not apply.
func eventDuration(d events.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(time.Duration(d))
}
