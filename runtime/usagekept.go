package runtime

import (
	"context"
	"time"

	"github.com/caisson-run/caisson/runtime/events"
	"github.com/caisson-run/caisson/runtime/observe"
	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/runtime/usage"
)

// StateRemoved is the state of a sandbox that is gone, in History and Past.
const StateRemoved State = "removed"

// pastCommands are the last commands of s that have ended.
func (s *sandbox) pastCommands() (list []observe.PastCommand) {
	for _, e := range s.executions() {
		i := e.info()
		if i.Result == nil {
			continue
		}
		list = append(list, observe.PastCommand{
			ID: i.ID, Args: observe.Beginning(i.Args), StartedAt: i.StartedAt, EndedAt: i.EndedAt, StdoutBytes: i.StdoutBytes, StderrBytes: i.StderrBytes,
			ExitCode: i.Result.ExitCode, Signal: i.Result.Signal, Reason: string(i.Result.Reason), Source: i.Result.Source, Duration: i.Result.Duration,
		})
	}
	return list[max(0, len(list)-observe.MaxCommands):]
}

// pastExec is a command of the sandbox id, which is gone.
func pastExec(id string, c observe.PastCommand) ExecInfo {
	return ExecInfo{
		ID: c.ID, SandboxID: id, Args: c.Args, State: ExecExited, StartedAt: c.StartedAt, EndedAt: c.EndedAt, StdoutBytes: c.StdoutBytes, StderrBytes: c.StderrBytes,
		Result: &Result{
			SandboxID: id, ExecID: c.ID, ExitCode: c.ExitCode, Signal: c.Signal, Reason: Reason(c.Reason), Source: c.Source, Duration: c.Duration,
			StdoutBytes: c.StdoutBytes, StderrBytes: c.StderrBytes,
		},
	}
}

// keepUsage keeps what s used, for later daemons and when s is gone. One that lived for less
// than a sample leaves nothing but its last event.
func (h *host) keepUsage(s *sandbox) {
	r, commands := s.kept(), s.pastCommands()
	if r.Pooled {
		return
	}
	s.meter.Keep(func(total observe.Total, series *usage.Series) {
		about := observe.Past{
			Name: r.Name, Owner: r.OwnerUID, Parent: r.Parent, CreatedAt: r.CreatedAt,
			Image: r.Image, Session: r.Session, Task: r.Task, EndedAt: time.Now().Round(0), Commands: commands,
			MemoryBytes: r.Limits.MemoryBytes, MilliCPU: r.Limits.MilliCPU, PIDs: r.Limits.PIDs, Last: total.Last, Point: total.Point,
		}
		if err := h.usages.Put(s.id, about, series); err != nil {
			h.log.Warn("keep what a sandbox used", "sandbox", s.id, "err", err)
		}
	})
}

// pastHistory returns the history of a sandbox that is gone, and missing where none is kept
// that g may see.
func (h *host) pastHistory(g peer.Grant, ref string, missing error) (*History, error) {
	id, p, series, err := observe.Find(&h.usages, ref, minPrefix, func(p observe.Past) bool { return g.Sees(p.Owner, p.Parent) })
	if err != nil {
		h.log.Warn("look for what a sandbox used", "err", err)
	}
	if p == nil {
		return nil, missing
	}
	found := &History{
		SandboxID: id, Name: p.Name, State: StateRemoved, MemoryLimitBytes: p.MemoryBytes, MilliCPU: p.MilliCPU, PIDsLimit: p.PIDs,
		Samples: observe.Samples(series, p.CreatedAt), Image: p.Image, CreatedAt: p.CreatedAt, EndedAt: p.EndedAt,
	}
	for _, c := range p.Commands {
		found.Execs = append(found.Execs, pastExec(id, c))
	}
	return found, nil
}

// Past returns the sandboxes that are gone and of which the use is kept.
func (m *Manager) Past(ctx context.Context) ([]Info, error) {
	g, err := m.grant(ctx)
	if err != nil {
		return nil, err
	}
	list := []Info{}
	err = m.usages.Each(func(id string, about func(any) error) bool {
		var p observe.Past
		if about(&p) != nil || !g.Sees(p.Owner, p.Parent) || m.byID(id) != nil {
			return true
		}
		list = append(list, Info{
			ID: id, Name: p.Name, State: StateRemoved, Image: p.Image, Session: p.Session, Task: p.Task, OwnerUID: p.Owner, Parent: p.Parent,
			CreatedAt: p.CreatedAt, ExitedAt: p.EndedAt,
		})
		return true
	})
	return list, err
}

// addTotals adds to d what s used in all. A sandbox for one command that was never measured
// has what its result says.
func (s *sandbox) addTotals(d *events.Data, main *Result) {
	t := s.meter.Total()
	d.CPU, d.PeakMemoryBytes = rounded(t.Last.CPU), t.Last.MemoryPeakBytes.N
	d.SentBytes, d.ReceivedBytes = t.Point.SentBytes, t.Point.ReceivedBytes
	if main == nil {
		return
	}
	d.PeakMemoryBytes = max(d.PeakMemoryBytes, main.PeakMemoryBytes)
	if e := main.Egress; e != nil {
		d.SentBytes, d.ReceivedBytes = max(d.SentBytes, e.SentBytes), max(d.ReceivedBytes, e.ReceivedBytes)
	}
}
