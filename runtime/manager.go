package runtime

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/caisson-run/caisson/cgroups"
	"github.com/caisson-run/caisson/rootfs/image"
	"github.com/caisson-run/caisson/rootfs/mount"
	"github.com/caisson-run/caisson/runtime/idblock"
	"github.com/caisson-run/caisson/sbxerr"
)

// past is a deadline that has been passed: it wakes whoever waits.
var past = time.Unix(1, 0)

// Options is what a Manager is made of.
type Options struct {
	Root         string // on disk
	State        string // on tmpfs
	CgroupParent string // name of the group above the sandboxes', at the hierarchies' root
	InitPath     string // the caisson-init that each sandbox gets a copy of
	IDs          idblock.Range
	Profiles     map[string]Profile
	Workspaces   mount.Allowed
	ImageLimits  image.Limits
	StopGrace    time.Duration // between TERM and KILL
	Versions     func(context.Context) (Versions, error)
	Doctor       func(context.Context) ([]Check, error)
	Capabilities func(context.Context) ([]Capability, error)
}

// Manager makes, runs and removes sandboxes. All of its methods may be called
// at the same time.
type Manager struct {
	engine   Engine
	images   ImageStore
	opts     Options
	log      *slog.Logger
	paths    paths
	blocks   *idblock.Allocator
	host     cgroups.Host
	rlimit   []specs.POSIXRlimit // the daemon's own, which bound the sandboxes'
	oomScore int                 // the daemon's own, below which no sandbox can go
	init     []byte              // the program of PID 1
	stages   []stage             // what each sandbox is made of

	mu        sync.Mutex
	sandboxes map[string]*sandbox // by ID
	closed    bool
	lastUse   time.Time
	active    int // calls under way
	work      sync.WaitGroup

	cleaning sync.Mutex

	usernsMu sync.Mutex
	userns   map[idblock.Block]*mount.UserNS
}

// New makes a Manager and the directories it works in. It removes nothing:
// Reconcile does.
func New(engine Engine, images ImageStore, log *slog.Logger, o Options) (*Manager, error) {
	const op = "runtime.new"
	p := paths{root: o.Root, state: o.State}
	for dir, mode := range map[string]os.FileMode{p.state: 0o711, p.root: 0o711, p.outputs(): 0o700, p.spool(): 0o700} {
		if err := os.MkdirAll(dir, mode); err != nil {
			return nil, sbxerr.Wrap(sbxerr.StateDir, op, err)
		}
		if err := os.Chmod(dir, mode); err != nil {
			return nil, sbxerr.Wrap(sbxerr.StateDir, op, err)
		}
	}
	program, err := os.ReadFile(o.InitPath)
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.Binary, op, err)
	}
	blocks, err := idblock.NewAllocator(p.ids(), o.IDs)
	if err != nil {
		return nil, err
	}
	host, err := cgroups.Detect()
	if err != nil {
		return nil, err
	}
	rlimits, err := ownRlimits()
	if err != nil {
		return nil, err
	}
	oomScore, err := ownOOMScoreAdj()
	if err != nil {
		return nil, err
	}
	if err := mount.AttachStage(p.sandboxes()); err != nil { // last: only Close takes it away
		return nil, err
	}
	m := &Manager{
		engine: engine, images: images, opts: o, log: log, paths: p, blocks: blocks, host: host, rlimit: rlimits, oomScore: oomScore, init: program,
		sandboxes: map[string]*sandbox{}, userns: map[idblock.Block]*mount.UserNS{}, lastUse: time.Now(),
	}
	m.stages = m.allStages()
	return m, nil
}

// blockNS returns the user namespace that maps a block. It is made once for
// each block and kept: blocks are used again and again.
func (m *Manager) blockNS(b idblock.Block) (*mount.UserNS, error) {
	m.usernsMu.Lock()
	defer m.usernsMu.Unlock()
	if ns, ok := m.userns[b]; ok {
		return ns, nil
	}
	ids := []mount.IDMap{{Disk: 0, Host: b.Base, Size: idblock.Size}}
	ns, err := mount.NewUserNS(ids, ids)
	if err != nil {
		return nil, err
	}
	m.userns[b] = ns
	return ns, nil
}

// admit makes s known under its ID and name, or refuses a name that is taken,
// be it as another's name or ID.
func (m *Manager) admit(s *sandbox) error {
	const op = "runtime.create"
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return sbxerr.New(sbxerr.State, op, "the daemon is stopping")
	}
	for _, other := range m.sandboxes {
		if name := s.record.Name; name == other.record.Name || name == other.record.ID {
			return sbxerr.New(sbxerr.Exists, op, "the name %q is taken by sandbox %s", s.record.Name, other.record.ID)
		}
	}
	m.sandboxes[s.record.ID] = s
	m.work.Add(1) // while open: Close waits for no more than it can see
	return nil
}

// forget drops what admit took in.
func (m *Manager) forget(s *sandbox) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lastUse = time.Now()
	delete(m.sandboxes, s.record.ID)
	close(s.gone)
	m.work.Done()
}

// find resolves a name, an ID, or the unique beginning of an ID.
func (m *Manager) find(ref string) (*sandbox, error) {
	const op = "runtime.find"
	m.mu.Lock()
	defer m.mu.Unlock()
	var found []*sandbox
	for id, s := range m.sandboxes {
		if id == ref || s.record.Name == ref {
			return s, nil
		}
		if len(ref) >= 4 && strings.HasPrefix(id, ref) {
			found = append(found, s)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return nil, sbxerr.New(sbxerr.NotFound, op, "no sandbox %q", ref)
	}
	return nil, sbxerr.New(sbxerr.NotFound, op, "%q is the beginning of %d IDs", ref, len(found))
}

func (m *Manager) all() []*sandbox {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := make([]*sandbox, 0, len(m.sandboxes))
	for _, s := range m.sandboxes {
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b *sandbox) int {
		return cmp.Or(a.created.Compare(b.created), strings.Compare(a.record.ID, b.record.ID))
	})
	return list
}

// List returns the sandboxes there are, oldest first. A run that has returned
// is over for its caller, even while its traces on the host still go.
func (m *Manager) List(context.Context) ([]Info, error) {
	list := []Info{}
	for _, s := range m.all() {
		info := s.info()
		if info.State != StateRemoving || s.record.Detached {
			list = append(list, info)
		}
	}
	return list, nil
}

// Busy counts a call until the returned function is called, so that a daemon
// that leaves when idle does not leave in the middle of one.
func (m *Manager) Busy() (done func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.active++
	return sync.OnceFunc(func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.active--
		m.lastUse = time.Now()
	})
}

// IdleSince returns since when nothing has been asked of m and no sandbox is
// there, and false while something is.
func (m *Manager) IdleSince() (time.Time, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lastUse, m.active == 0 && len(m.sandboxes) == 0
}

// ErrStopping is the cause with which Close ends what still runs.
var ErrStopping = errors.New("the daemon is stopping")

// Close ends every sandbox, removes all of them, and refuses new ones. Then it
// takes away what New made for all of them.
func (m *Manager) Close(ctx context.Context) error {
	errs := []error{m.drain(ctx)}
	m.usernsMu.Lock()
	defer m.usernsMu.Unlock()
	for _, ns := range m.userns {
		errs = append(errs, ns.Close())
	}
	clear(m.userns)
	errs = append(errs, cgroups.RemoveParent(ctx, m.host, m.opts.CgroupParent), mount.DetachStage(m.paths.sandboxes()))
	return errors.Join(errs...)
}

// drain leaves no sandbox and lets none come.
func (m *Manager) drain(ctx context.Context) error {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	for _, s := range m.all() {
		s.end(ErrStopping)
	}
	var errs []error
	for _, s := range m.all() {
		if s.record.Detached {
			_, err := m.Remove(ctx, s.record.ID, true)
			if !errors.Is(err, sbxerr.NotFound) { // somebody else was faster
				errs = append(errs, err)
			}
		}
	}
	done := make(chan struct{})
	go func() { m.work.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
		errs = append(errs, fmt.Errorf("wait for %d sandboxes to end: %w", len(m.all()), context.Cause(ctx)))
	}
	return errors.Join(errs...)
}

// sandboxDirs lists the sandboxes that have a directory.
func (m *Manager) sandboxDirs() ([]string, error) {
	return dirNames(m.paths.sandboxes())
}

func dirNames(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.StateDir, "runtime.list", err)
	}
	names := []string{}
	for _, e := range entries {
		names = append(names, filepath.Base(e.Name()))
	}
	return names, nil
}
