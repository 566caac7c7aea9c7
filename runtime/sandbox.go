package runtime

import (
	"encoding/json"
	"errors"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/caisson-run/caisson/rootfs/mount"
	"github.com/caisson-run/caisson/runtime/idblock"
	"github.com/caisson-run/caisson/runtime/output"
	"github.com/caisson-run/caisson/runtime/pid1"
	"github.com/caisson-run/caisson/sbxerr"
)

// sandbox is one sandbox as this process holds it: its plan, what was declared
// for it, and the handles that only this process has. What lies outside the
// process is made and removed by the stages.
type sandbox struct {
	plan    *plan
	record  record
	created time.Time

	// Filled in by the stages, and of use only to whoever runs them.
	ids      *mount.UserNS // maps the block; owned by the manager's cache
	listener *pid1.Listener
	init     *pid1.Client

	// mu guards what follows. Up to removal, each is only changed by whoever
	// runs the stages and the command, and can be read there without mu.
	mu       sync.Mutex
	block    idblock.Block
	spec     *specs.Spec
	process  *process // PID 1
	stdout   *output.Store
	stderr   *output.Store
	state    State
	stages   []Stage
	warnings []string
	posture  []PostureCheck
	result   *Result
	exited   time.Time
	cancel   func(error) // ends what is under way: the creation or the command
	ending   error       // why the sandbox is to end, once it is

	gone      chan struct{} // closed when nothing is left of the sandbox
	over      chan struct{} // closed when nobody works with the sandbox any more, so that it can be removed
	release   func()        // closes over
	removal   sync.Once
	removeErr error // of the removal
}

func newSandbox(p *plan, r record) *sandbox {
	over := make(chan struct{})
	return &sandbox{
		plan: p, record: r, created: r.CreatedAt, state: StateCreating,
		gone: make(chan struct{}), over: over, release: sync.OnceFunc(func() { close(over) }),
	}
}

// closeHandles releases what only this process holds. The output stores stay
// open: they serve Logs until the sandbox is removed.
func (s *sandbox) closeHandles() error {
	var errs []error
	if s.init != nil {
		errs = append(errs, s.init.Close())
	}
	if s.listener != nil {
		errs = append(errs, s.listener.Close())
	}
	if s.process != nil {
		errs = append(errs, ignoreClosed(s.process.close()))
	}
	return errors.Join(errs...)
}

func (s *sandbox) closeOutput() error {
	var errs []error
	for _, store := range []*output.Store{s.stdout, s.stderr} {
		if store != nil {
			errs = append(errs, store.Close())
		}
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

func (s *sandbox) setState(to State) { s.update(func() { s.state = to }) }

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

// finish makes the result known.
func (s *sandbox) finish(r *Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state, s.result, s.exited = StateExited, r, time.Now()
}

// retired reports whether s has ended and holds nothing but its claim and its
// output.
func (s *sandbox) retired() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.record.Detached && s.state == StateExited
}

// end asks the sandbox to end for the given reason. It is safe at any time: what
// is under way ends now, and what is begun later ends at once.
func (s *sandbox) end(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending == nil {
		s.ending = cause
	}
	if s.cancel != nil {
		s.cancel(s.ending)
	}
}

// endBy says how to end what is under way from now on.
func (s *sandbox) endBy(cancel func(error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cancel = cancel
	if s.ending != nil {
		cancel(s.ending)
	}
}

func (s *sandbox) info() Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.record
	info := Info{
		ID: r.ID, Name: r.Name, State: s.state, Image: r.Image, Profile: r.Profile, Args: r.Args, CreatedAt: r.CreatedAt,
		ExitedAt: s.exited, Result: s.result, Labels: r.Labels, Session: r.Session, Task: r.Task, Workspace: r.Workspace,
	}
	if s.process != nil && s.state != StateExited {
		info.PID = s.process.pid
	}
	return info
}

// detail fills in what was declared for the sandbox and what was found.
func (s *sandbox) detail(d *Detail) error {
	s.mu.Lock()
	spec := s.spec
	d.HostIDBase, d.Posture = s.block.Base, slices.Clone(s.posture)
	s.mu.Unlock()
	var err error
	d.SpecJSON, err = json.MarshalIndent(spec, "", "  ")
	return sbxerr.Wrap(sbxerr.Internal, "runtime.inspect", err)
}

// outputs returns the stores of the command's streams, nil before it began.
func (s *sandbox) outputs() (stdout, stderr *output.Store) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stdout, s.stderr
}
