package server

import (
	"context"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/runtime/observe"
)

// Stats implements SandboxServiceHandler.
func (s sandboxes) Stats(ctx context.Context, r *connect.Request[caissonv1.StatsRequest], stream *connect.ServerStream[caissonv1.StatsResponse]) error {
	sel, err := statsSelection(r.Msg, time.Now())
	if err != nil {
		return fail(err)
	}
	return fail(s.runtime.Stats(ctx, sel, !r.Msg.NoStream, func(at time.Time, list []runtime.SandboxStats) error {
		return sent(stream.Send(&caissonv1.StatsResponse{Time: timestamp(at), Sandboxes: each(list, sandboxStatsPB)}))
	}))
}

func statsSelection(r *caissonv1.StatsRequest, now time.Time) (sel runtime.StatsSelection, err error) {
	for _, ref := range r.Refs {
		if err := checkRef("refs", ref); err != nil {
			return sel, err
		}
	}
	list := &caissonv1.ListRequest{Labels: r.Labels, Session: r.Session, Task: r.Task, Name: r.Name, States: r.States, OlderThan: r.OlderThan}
	f, err := filterOf(list, now)
	if err != nil {
		return sel, err
	}
	filtered := len(r.Labels)+len(r.States) > 0 || r.Session != "" || r.Task != "" || r.Name != "" || r.OlderThan != nil
	if filtered && len(r.Refs) > 0 {
		return sel, sbxerr.New(sbxerr.APIUsage, "server.stats", "refs and filters exclude each other")
	}
	return runtime.StatsSelection{Refs: r.Refs, Takes: f.selects}, nil
}

func sandboxStatsPB(s runtime.SandboxStats) *caissonv1.SandboxStats {
	return &caissonv1.SandboxStats{
		SandboxId: s.SandboxID, Name: text(s.Name), State: string(s.State), CpuPercent: s.CPUPercent, Cpu: durationpb.New(s.CPU), MilliCpu: s.MilliCPU,
		MemoryBytes: s.MemoryBytes, PeakMemoryBytes: s.PeakMemoryBytes, MemoryLimitBytes: s.MemoryLimitBytes, Pids: s.PIDs, PidsLimit: s.PIDsLimit,
		IoReadBytes: s.IOReadBytes, IoWriteBytes: s.IOWriteBytes, SentBytes: s.SentBytes, ReceivedBytes: s.ReceivedBytes,
		Processes: s.Processes, CpuPressure: s.CPUPressure, MemoryPressure: s.MemoryPressure, IoPressure: s.IOPressure,
	}
}

// History implements SandboxServiceHandler.
func (s sandboxes) History(ctx context.Context, r *connect.Request[caissonv1.HistoryRequest]) (*connect.Response[caissonv1.HistoryResponse], error) {
	if err := checkRef("ref", r.Msg.Ref); err != nil {
		return nil, fail(err)
	}
	h, err := s.runtime.History(ctx, r.Msg.Ref)
	if err != nil {
		return nil, fail(err)
	}
	return reply(historyPB(h), nil)
}

func historyPB(h *runtime.History) *caissonv1.HistoryResponse {
	return &caissonv1.HistoryResponse{
		SandboxId: h.SandboxID, Name: text(h.Name), State: string(h.State),
		CreatedAt: timestamp(h.CreatedAt), Image: h.Image, EndedAt: timestamp(h.EndedAt), Execs: each(h.Execs, execPB),
		MemoryLimitBytes: h.MemoryLimitBytes, MilliCpu: h.MilliCPU, PidsLimit: h.PIDsLimit, Samples: each(h.Samples, samplePB),
	}
}

func samplePB(s observe.Sample) *caissonv1.UsageSample {
	return &caissonv1.UsageSample{
		Time: timestamp(s.Time), CpuPercent: s.CPUPercent, MemoryBytes: s.MemoryBytes, Pids: s.PIDs,
		IoReadBytes: s.IOReadBytes, IoWriteBytes: s.IOWriteBytes, SentBytes: s.SentBytes, ReceivedBytes: s.ReceivedBytes,
	}
}
