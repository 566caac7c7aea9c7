package runtime

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"time"

	"github.com/caisson-run/caisson/cgroups"
	"github.com/caisson-run/caisson/runtime/events"
	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/runtime/usage"
)

// StateRemoved is the state of a sandbox that is gone, in History and Past.
const StateRemoved State = "removed"

// keptUsage is what [usage.Store] keeps of a sandbox beside its series.
type keptUsage struct {
	Name        string        `json:"name"`
	Image       string        `json:"image,omitempty"`
	Session     string        `json:"session,omitempty"`
	Task        string        `json:"task,omitempty"`
	Owner       uint32        `json:"owner"`
	Parent      string        `json:"parent"`
	CreatedAt   time.Time     `json:"created_at"`
	MemoryBytes int64         `json:"memory_bytes"`
	MilliCPU    int64         `json:"milli_cpu"`
	PIDs        int64         `json:"pids"`
	Last        cgroups.Usage `json:"last"`
	Point       usage.Point   `json:"point"` // of Last
	EndedAt     time.Time     `json:"ended_at"`
	Commands    []pastCommand `json:"commands,omitempty"` // the last ones, the oldest first
}

// pastCommand is what is kept of a command of a sandbox that is gone.
type pastCommand struct {
	ID          string        `json:"id"`
	Args        []string      `json:"args"`
	StartedAt   time.Time     `json:"started_at"`
	EndedAt     time.Time     `json:"ended_at"`
	StdoutBytes int64         `json:"stdout_bytes"`
	StderrBytes int64         `json:"stderr_bytes"`
	ExitCode    int           `json:"exit_code"`
	Signal      int           `json:"signal,omitempty"`
	Reason      Reason        `json:"reason"`
	Source      string        `json:"source"`
	Duration    time.Duration `json:"duration"`
}

const (
	maxPastCommands = 20  // that are kept of a sandbox that is gone
	maxPastArgs     = 512 // bytes of the arguments of each, with a zero byte at the end of each
)

// pastCommands are the last commands of s that have ended.
func (s *sandbox) pastCommands() (list []pastCommand) {
	for _, e := range s.executions() {
		i := e.info()
		if i.Result == nil {
			continue
		}
		list = append(list, pastCommand{
			ID: i.ID, Args: beginning(i.Args, maxPastArgs), StartedAt: i.StartedAt, EndedAt: i.EndedAt, StdoutBytes: i.StdoutBytes, StderrBytes: i.StderrBytes,
			ExitCode: i.Result.ExitCode, Signal: i.Result.Signal, Reason: i.Result.Reason, Source: i.Result.Source, Duration: i.Result.Duration,
		})
	}
	return list[max(0, len(list)-maxPastCommands):]
}

// beginning returns the first of args that have at most so many bytes, the last one cut.
func beginning(args []string, most int) []string {
	var list []string
	for _, arg := range args {
		if len(arg) >= most {
			return append(list, strings.ToValidUTF8(arg[:most], ""))
		}
		list, most = append(list, arg), most-len(arg)-1
	}
	return list
}

// execOf is a command of the sandbox id, which is gone.
func (c pastCommand) execOf(id string) ExecInfo {
	return ExecInfo{
		ID: c.ID, SandboxID: id, Args: c.Args, State: ExecExited, StartedAt: c.StartedAt, EndedAt: c.EndedAt, StdoutBytes: c.StdoutBytes, StderrBytes: c.StderrBytes,
		Result: &Result{
			SandboxID: id, ExecID: c.ID, ExitCode: c.ExitCode, Signal: c.Signal, Reason: c.Reason, Source: c.Source, Duration: c.Duration,
			StdoutBytes: c.StdoutBytes, StderrBytes: c.StderrBytes,
		},
	}
}

// keepUsage keeps what s used, for later daemons and when s is gone. One that lived for less
// than a sample leaves nothing but its last event.
func (h *host) keepUsage(s *sandbox) {
	r, t, commands := s.kept(), &s.meter, s.pastCommands()
	t.mu.Lock()
	defer t.mu.Unlock()
	if r.Pooled || t.series.Len() == 0 {
		return
	}
	about := keptUsage{
		Name: r.Name, Owner: r.OwnerUID, Parent: r.Parent, CreatedAt: r.CreatedAt,
		Image: r.Image, Session: r.Session, Task: r.Task, EndedAt: time.Now().Round(0), Commands: commands,
		MemoryBytes: r.Limits.MemoryBytes, MilliCPU: r.Limits.MilliCPU, PIDs: r.Limits.PIDs, Last: t.last, Point: t.point,
	}
	if err := h.usages.Put(s.id, about, &t.series); err != nil {
		h.log.Warn("keep what a sandbox used", "sandbox", s.id, "err", err)
	}
}

// beginMeterLocked makes the meter of s ready. That of a sandbox of an earlier daemon goes
// on with what that one kept.
func (h *host) beginMeterLocked(s *sandbox) {
	r, t := s.kept(), &s.meter
	if !t.began.IsZero() {
		return
	}
	t.began = time.Now().Add(-time.Since(r.CreatedAt)) // of a clock that never jumps
	if s.plan != nil {
		return
	}
	var about keptUsage
	series, err := h.usages.Get(s.id, &about)
	switch {
	case err == nil && about.CreatedAt.Equal(r.CreatedAt):
		t.series, t.last, t.point = *series, about.Last, about.Point
		return
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		h.log.Warn("go on with what a sandbox used", "sandbox", s.id, "err", err)
	}
	t.unknown = true
}

// pastHistory returns the history of a sandbox that is gone, and missing where none is kept
// that g may see. Of one name the last counts.
func (h *host) pastHistory(g peer.Grant, ref string, missing error) (*History, error) {
	var found *History
	err := h.usages.Each(func(id string, about func(any) error) bool {
		var k keptUsage
		if about(&k) != nil { // it was dropped meanwhile
			return true
		}
		named := k.Name == ref || len(ref) >= minPrefix && strings.HasPrefix(id, ref)
		if !named || !g.Sees(k.Owner, k.Parent) {
			return true
		}
		series, err := h.usages.Get(id, &k)
		if err != nil {
			return true
		}
		found = &History{
			SandboxID: id, Name: k.Name, State: StateRemoved, MemoryLimitBytes: k.MemoryBytes, MilliCPU: k.MilliCPU, PIDsLimit: k.PIDs,
			Samples: samplesOf(series, k.CreatedAt), Image: k.Image, CreatedAt: k.CreatedAt, EndedAt: k.EndedAt,
		}
		for _, c := range k.Commands {
			found.Execs = append(found.Execs, c.execOf(id))
		}
		return false
	})
	if err != nil {
		h.log.Warn("look for what a sandbox used", "err", err)
	}
	if found == nil {
		return nil, missing
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
		var k keptUsage
		if about(&k) != nil || !g.Sees(k.Owner, k.Parent) || m.byID(id) != nil {
			return true
		}
		list = append(list, Info{
			ID: id, Name: k.Name, State: StateRemoved, Image: k.Image, Session: k.Session, Task: k.Task, OwnerUID: k.Owner, Parent: k.Parent,
			CreatedAt: k.CreatedAt, ExitedAt: k.EndedAt,
		})
		return true
	})
	return list, err
}

func samplesOf(s *usage.Series, began time.Time) []UsageSample {
	list := []UsageSample{}
	for _, x := range s.Samples() {
		list = append(list, UsageSample{
			Time: began.Add(x.At), CPUPercent: x.CPUPercent, MemoryBytes: x.MemoryBytes, PIDs: x.PIDs,
			IOReadBytes: x.IORead, IOWriteBytes: x.IOWrite, SentBytes: x.SentBytes, ReceivedBytes: x.ReceivedBytes,
		})
	}
	return list
}

// addTotals adds to d what s used in all. A sandbox for one command that was never measured
// has what its result says.
func (s *sandbox) addTotals(d *events.Data, main *Result) {
	t := &s.meter
	t.mu.Lock()
	d.CPU, d.PeakMemoryBytes = rounded(t.last.CPU), t.last.MemoryPeakBytes.N
	d.SentBytes, d.ReceivedBytes = t.point.SentBytes, t.point.ReceivedBytes
	t.mu.Unlock()
	if main == nil {
		return
	}
	d.PeakMemoryBytes = max(d.PeakMemoryBytes, main.PeakMemoryBytes)
	if e := main.Egress; e != nil {
		d.SentBytes, d.ReceivedBytes = max(d.SentBytes, e.SentBytes), max(d.ReceivedBytes, e.ReceivedBytes)
	}
}
