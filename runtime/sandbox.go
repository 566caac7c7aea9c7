package runtime

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/mount"
	"github.com/caisson-run/caisson/runtime/files"
	"github.com/caisson-run/caisson/runtime/idblock"
	"github.com/caisson-run/caisson/runtime/idle"
	"github.com/caisson-run/caisson/runtime/journal"
	"github.com/caisson-run/caisson/runtime/learn"
	"github.com/caisson-run/caisson/runtime/observe"
	"github.com/caisson-run/caisson/runtime/output"
	"github.com/caisson-run/caisson/runtime/pid1"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/runtime/queue"
)

// sandbox is one sandbox as this process holds it: its record, which outlives
// the process, what was declared for it, and the handles that only this process
// has. What lies outside the process is made and removed by the stages.
type sandbox struct {
	id   string
	plan *plan.Sandbox // of its making; nil for one that was adopted

	// Filled in by the stages, and of use only to whoever runs them.
	ids      *mount.UserNS // maps the block; owned by the manager's cache
	listener *pid1.Listener
	init     *pid1.Client
	network  errgroup.Group // what is done for its network beside the making of the container
	nested   net.Listener   // of its own API socket; nil where it has none

	log     *journal.Journal[execRecord] // of its commands, by number
	room    *output.Room                 // of what they write
	discard *rate.Limiter                // of what they write that nobody reads or keeps

	meter observe.Meter // of what it uses
	tally tally         // of the limits that it hit

	turn atomic.Pointer[queue.Place] // among the sandboxes that run; nil where those have no bound

	keeper *idle.Keeper // pauses it when it is idle, and wakes it

	changing  sync.Mutex // held while limits, the policy or the freezer change
	following bool       // its policy follows its parent's; guarded by changing

	// mu guards what follows. Up to removal, what the stages fill in is only
	// changed by whoever runs them, and can be read there without mu.
	mu       sync.Mutex
	record   record
	block    idblock.Block
	spec     *specs.Spec
	process  *process // PID 1
	state    State
	stages   []Stage
	warnings []string
	posture  []PostureCheck
	ports    []Port // of the host, that are open
	stale    bool   // it was declared anew since posture was compared
	rewinds  bool   // it takes no commands: its files are replaced
	execs    map[uint32]*execution
	unbegun  error          // why the command that the sandbox is for could not be started
	running  int            // of these
	filework int            // requests about files, but those that only watch
	past     []*execution   // of these: all but the main one that are over, oldest first
	unheard  bool           // its PID 1 has not told an earlier daemon's commands to this one
	lastExec uint32         // the newest number of a command
	lastOwn  uint32         // that of the daemon's own, without firstOwn
	newest   uint32         // the newest of execs there were; what works on files is none
	tags     tags           // of commands
	files    *files.Session // nil before the first request
	digest   string         // of its policy; empty until somebody asks
	told     bool           // an event told of it
	freeing  time.Duration  // that the removal of a part took
	learner  *learn.Learner // of what its command reaches; nil where nobody wants to know
	filed    bool           // somebody worked on files since the last look at tally
	refused  int64          // attempts to reach something, when last looked at
	cancel   func(error)    // ends the creation
	ending   error          // why the sandbox is to end, once it is
	alarm    *time.Timer    // fires when its time may be over

	yieldStop func() // has the stop that is under way give way to another; nil before the first

	made  chan struct{} // closed when it is live, or never will be
	asked chan struct{} // closed when ending is set
	ended chan struct{} // closed when all its processes ended and all results are known
	gone  chan struct{} // closed when nothing is left of the sandbox

	dead      sync.Once  // over the end of all processes
	stripping sync.Mutex // held while what an ended sandbox does not keep goes, by itself or with the rest
	removal   sync.Once
	removeErr error // of the removal
}

// newSandbox is one that is to be made by p, or where that is nil one of an earlier daemon.
func (h *host) newSandbox(p *plan.Sandbox, r record) *sandbox {
	state := StateCreating
	if p == nil {
		state = StateAdopting
	}
	s := &sandbox{
		id: r.ID, plan: p, record: r, state: state, execs: map[uint32]*execution{}, log: journal.New[execRecord](h.paths.execs(r.ID)), room: h.opts.outputRoom(), discard: rate.NewLimiter(discardRate(r.Limits.MilliCPU), output.MaxChunk),
		made: make(chan struct{}), asked: make(chan struct{}), ended: make(chan struct{}), gone: make(chan struct{}),
	}
	s.keeper = idle.NewKeeper(sleeper{h, s}, h.log.With("sandbox", s.id))
	return s
}

// closeHandles releases what only this process holds. The output stores stay
// open: they serve Logs until the sandbox is removed.
func (s *sandbox) closeHandles() error {
	s.mu.Lock()
	if s.alarm != nil {
		s.alarm.Stop()
	}
	session := s.files
	s.mu.Unlock()
	if session != nil {
		session.Close()
	}
	_ = s.network.Wait() // the stage egress has its error
	s.closeTags()
	errs := []error{s.log.Close()}
	if s.init != nil {
		errs = append(errs, s.init.Close())
	}
	if s.listener != nil {
		errs = append(errs, s.listener.Close())
	}
	if s.nested != nil {
		if err := s.nested.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	if s.process != nil {
		errs = append(errs, ignoreClosed(s.process.close()))
	}
	return errors.Join(errs...)
}

func ignoreClosed(err error) error {
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}

// update changes what others may be looking at.
func (s *sandbox) update(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// openedPorts are those of the host that lead into s.
func (s *sandbox) openedPorts() []Port {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ports
}

// kept returns the record as it is now.
func (s *sandbox) kept() record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.record
}

func (s *sandbox) createdAt() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.record.CreatedAt
}

// timed runs one step of the making and keeps what it took.
func (s *sandbox) timed(name string, step func() error) error {
	start := time.Now()
	err := step()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stages = append(s.stages, Stage{Name: name, Duration: time.Since(start)})
	return err
}

func (s *sandbox) warn(warnings ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.warnings = append(s.warnings, warnings...)
}

// end asks the sandbox to end for the given reason, of which the first counts.
// It is safe at any time: a creation that is under way ends now.
func (s *sandbox) end(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endLocked(cause)
}

func (s *sandbox) endLocked(cause error) {
	if s.ending != nil {
		return
	}
	s.ending = cause
	close(s.asked)
	if s.cancel != nil {
		s.cancel(cause)
	}
}

// endBy says how to end the creation from now on.
func (s *sandbox) endBy(cancel func(error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cancel = cancel
	if s.ending != nil && cancel != nil {
		cancel(s.ending)
	}
}

// endCause returns why the sandbox is to end, nil while it is not.
func (s *sandbox) endCause() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ending
}

// acceptsLocked refuses a command where the sandbox cannot run one.
func (s *sandbox) acceptsLocked() error {
	switch {
	case s.state == StatePaused:
		return s.pausedLocked()
	case s.rewinds:
		return sbxerr.New(sbxerr.Busy, "runtime.exec", "sandbox %s is being put back to a snapshot", s.record.Name)
	case s.state != StateRunning || s.ending != nil:
		return s.endedLocked()
	}
	return nil
}

// accepting is what s is, where it can run a command: one that is being claimed is not
// yet what was asked for.
func (s *sandbox) accepting() (record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.record, s.acceptsLocked()
}

func (s *sandbox) pausedLocked() error {
	return sbxerr.WithRemedy(sbxerr.Paused, "runtime.exec", errors.New("sandbox "+s.record.Name+" is paused"), "caisson resume "+s.record.Name)
}

// checkThawed refuses what a frozen PID 1 would have to do.
func (s *sandbox) checkThawed() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state == StatePaused {
		return s.pausedLocked()
	}
	return nil
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// notBegun is why the command that s is for could not be started; nil where it was, or
// may be.
func (s *sandbox) notBegun() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unbegun
}

// retired reports whether s has ended and holds nothing but its claim and its
// output.
func (s *sandbox) retired() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state == StateExited
}

func (s *sandbox) info() Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.record
	info := Info{
		ID: r.ID, Name: r.Name, State: s.state, Image: r.Image, Profile: r.Profile, Isolation: r.isolation(), Args: r.MainArgs, CreatedAt: r.CreatedAt,
		ExitedAt: r.ExitedAt, Labels: r.Labels, Session: r.Session, Task: r.Task, Workspace: r.Workspace, Mounts: r.Mounts,
		ExpiresAt: r.Expires.Wall(), IdleTimeout: r.IdleTimeout, IdleSince: r.IdleSince.Wall(), IdleAt: r.At(s.state != StateRunning).Wall(), OnIdle: r.Action(), PausedBy: r.PausedBy(s.state == StatePaused),
		Network: string(r.Network), OwnerUID: r.OwnerUID, Parent: r.Parent, Execs: s.running, Warnings: r.Warnings,
	}
	if main := s.execs[r.Main]; main != nil && s.state != StateAdopting && s.state != StateRunning && s.state != StatePaused {
		info.Result = main.result()
	}
	if s.process != nil && s.state != StateExited {
		info.PID = s.process.pid
	}
	if s.state != StateExited {
		for _, n := range r.Exposed {
			info.Exposed = append(info.Exposed, uint32(n))
		}
		for _, p := range s.ports {
			info.Ports = append(info.Ports, PortInfo{Address: p.Address.String(), HostPort: p.Host, Port: p.Inside, Clients: p.ClientList()})
		}
	}
	return info
}

// detail fills in what was declared for the sandbox and what was found.
func (s *sandbox) detail(d *Detail) error {
	s.mu.Lock()
	spec := s.spec
	if s.block.Base == 0 {
		d.HostIDSize = 0
	}
	d.HostIDBase, d.Posture = s.block.Base, slices.Clone(s.posture)
	s.mu.Unlock()
	var err error
	d.SpecJSON, err = json.MarshalIndent(spec, "", "  ")
	return sbxerr.Wrap(sbxerr.Internal, "runtime.inspect", err)
}
