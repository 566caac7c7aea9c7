package runtime

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/caisson-run/caisson/cgroups"
	"github.com/caisson-run/caisson/rootfs/image"
	"github.com/caisson-run/caisson/rootfs/mount"
	"github.com/caisson-run/caisson/runtime/idblock"
	"github.com/caisson-run/caisson/runtime/output"
	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/runtime/pid1"
	"github.com/caisson-run/caisson/runtime/ports"
	"github.com/caisson-run/caisson/runtime/traffic"
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
	AttachGrace  time.Duration // that a command outlives its caller
	OrphanGrace  time.Duration // that a sandbox outlives its daemon
	KeepOnExit   bool          // Close leaves the sandboxes to the next daemon
	MaxSandboxes int           // those that have ended too; 0 is no bound but the blocks of ids
	ForRoot      int           // of them, that only root's own requests make
	MaxCreating  int           // sandboxes that are made at once
	Queue        int           // requests that wait to make one
	KeptExecs    int           // ended commands of a sandbox whose output is kept
	KeptOutput   int64         // bytes of output of them
	PerShim      int           // sandboxes that share a shim
	Pools        []PoolConfig
	Peers        peer.Policy
	Network      NetworkRules
	Egress       Egress       // nil: no network mode but none
	Bridge       Bridge       // nil: not the network mode bridge
	Traffic      *traffic.Log // of what Egress carries
	// ServeNested serves the API to the sandbox id on l, until l is closed.
	ServeNested  func(id string, l *net.UnixListener)
	Versions     func(context.Context) (Versions, error)
	Doctor       func(context.Context) ([]Check, error)
	Capabilities func(context.Context) ([]Capability, error)
}

// maxOwners is how many mappings of workspaces' owners are kept.
const maxOwners = 256

// Manager makes, runs and removes sandboxes. All of its methods may be called
// at the same time.
type Manager struct {
	engine      Engine
	images      ImageStore
	opts        Options
	log         *slog.Logger
	paths       paths
	blocks      *idblock.Allocator
	host        cgroups.Host
	rlimit      []specs.POSIXRlimit // the daemon's own, which bound the sandboxes'
	oomScore    int                 // the daemon's own, below which no sandbox can go
	init        *pid1.Program
	stages      []stage            // what each sandbox is made of
	boot        string             // ID of this boot of the host
	making      *gate              // bounds the sandboxes that are being made
	owners      *mount.UserNSCache // maps owners of workspaces
	shims       *shims
	authors     *authors
	published   ports.Table
	pools       []*pool
	fillers     sync.WaitGroup
	stopFilling context.CancelFunc

	mu        sync.Mutex
	sandboxes map[string]*sandbox // by ID
	expired   expired
	closed    bool
	lastUse   time.Time
	active    int // calls under way
	work      sync.WaitGroup
	keep      atomic.Bool     // Close leaves the sandboxes to the next daemon
	leftSome  atomic.Bool     // it did
	leaving   context.Context // it ends when no call is to wait any more
	handOver  context.CancelFunc

	quotas   sync.Mutex // held while a command is counted and admitted
	cleaning sync.Mutex

	usernsMu sync.Mutex
	userns   map[idblock.Block]*mount.UserNS
}

// New makes a Manager and the directories it works in. It removes nothing:
// Cleanup does.
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
	if err := output.Probe(p.outputs()); err != nil {
		return nil, err
	}
	program, err := pid1.ReadProgram(o.InitPath)
	if err != nil {
		return nil, err
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
	boot, err := bootID()
	if err != nil {
		return nil, err
	}
	if err := mount.AttachStage(p.sandboxes()); err != nil { // last: only Close takes it away
		return nil, err
	}
	m := &Manager{
		engine: engine, images: images, opts: o, log: log, paths: p, blocks: blocks, host: host, rlimit: rlimits, oomScore: oomScore, init: program,
		sandboxes: map[string]*sandbox{}, userns: map[idblock.Block]*mount.UserNS{}, lastUse: time.Now(),
		boot: boot, making: newGate(o.MaxCreating, o.Queue), pools: newPools(o.Pools), owners: mount.NewUserNSCache(maxOwners), shims: newShims(o.PerShim),
		authors: newAuthors(),
	}
	m.leaving, m.handOver = context.WithCancel(context.Background())
	m.keep.Store(o.KeepOnExit)
	m.stages = m.allStages()
	if o.Traffic != nil {
		o.Traffic.Attribute(m.authors.who)
	}
	return m, nil
}

// blockNS returns the user namespace that maps a block, and in which its sandbox
// runs. It belongs to the block's first id, root inside. It is made once for
// each block and kept: blocks are used again and again.
func (m *Manager) blockNS(b idblock.Block) (*mount.UserNS, error) {
	m.usernsMu.Lock()
	defer m.usernsMu.Unlock()
	if ns, ok := m.userns[b]; ok {
		return ns, nil
	}
	ids := []mount.IDMap{{Disk: 0, Host: b.Base, Size: idblock.Size}}
	ns, err := mount.NewOwnedUserNS(b.Base, ids, ids)
	if err != nil {
		return nil, err
	}
	m.userns[b] = ns
	return ns, nil
}

// admit makes s known under its ID and name, or refuses a name that is taken,
// be it as another's name or ID, and one sandbox too many.
func (m *Manager) admit(s *sandbox) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.openLocked(); err != nil {
		return err
	}
	if err := m.checkRoomLocked(s); err != nil {
		return err
	}
	if err := m.claimNameLocked(s.record); err != nil {
		return err
	}
	if s.plan != nil && !s.record.Pooled { // one that is adopted has been granted
		if err := m.admitGrantedLocked(s.plan.grant, s.record); err != nil {
			return err
		}
	}
	m.sandboxes[s.id] = s
	m.work.Add(1) // while open: Close waits for no more than it can see
	return nil
}

// checkRoomLocked refuses one sandbox too many. The last few are for root's own
// requests: whatever peers, sandboxes and pools have made, root can make one.
func (m *Manager) checkRoomLocked(s *sandbox) error {
	const op = "runtime.create"
	most, there := m.opts.MaxSandboxes, len(m.sandboxes)
	if most <= 0 || s.plan == nil { // one that is adopted was not too many when it was made
		return nil
	}
	if there >= most {
		return sbxerr.New(sbxerr.Busy, op, "there are %d sandboxes, which is the most (sandboxes.max)", there)
	}
	if last := m.opts.ForRoot; !s.plan.grant.IsRoot() && there >= most-last {
		return sbxerr.New(sbxerr.Busy, op, "there are %d sandboxes, and the last %d of %d (sandboxes.max) are for root", there, last, most)
	}
	return nil
}

// openLocked refuses a sandbox for anybody once none are to come.
func (m *Manager) openLocked() error {
	if m.closed {
		return sbxerr.New(sbxerr.State, "runtime.create", "the daemon is stopping")
	}
	return nil
}

// admitGrantedLocked refuses a sandbox that g does not allow beside those that
// there are.
func (m *Manager) admitGrantedLocked(g peer.Grant, r record) error {
	if err := m.checkParentLocked(r); err != nil {
		return err
	}
	return g.CheckQuota(m.standingLocked(g), r.usage())
}

// forget drops what admit took in.
func (m *Manager) forget(s *sandbox) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lastUse = time.Now()
	delete(m.sandboxes, s.id)
	m.expired.note(s)
	close(s.gone)
	m.work.Done()
}

// all lists every sandbox, oldest first.
func (m *Manager) all() []*sandbox {
	m.mu.Lock()
	list := slices.Collect(maps.Values(m.sandboxes))
	m.mu.Unlock()
	slices.SortFunc(list, func(a, b *sandbox) int {
		return cmp.Or(a.createdAt().Compare(b.createdAt()), strings.Compare(a.id, b.id))
	})
	return list
}

// List returns the sandboxes there are, oldest first. A run that has returned
// is over for its caller, even while its traces on the host still go.
func (m *Manager) List(ctx context.Context) ([]Info, error) {
	visible, err := m.visible(ctx)
	if err != nil {
		return nil, err
	}
	list := []Info{}
	for _, s := range visible {
		r, info := s.kept(), s.info()
		if over := info.State == StateRemoving || info.State == StateStopping; !over || r.Detached || r.Main == 0 {
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
	return m.lastUse, m.active == 0 && !slices.ContainsFunc(slices.Collect(maps.Values(m.sandboxes)), func(s *sandbox) bool { return !s.kept().Pooled })
}

// Close refuses new sandboxes, and ends and removes those there are, unless they
// are to be left to the next daemon. Then it takes away what New made for all of
// them.
func (m *Manager) Close(ctx context.Context) error {
	errs := []error{m.drain(ctx)}
	m.usernsMu.Lock()
	defer m.usernsMu.Unlock()
	for _, ns := range m.userns {
		errs = append(errs, ns.Close())
	}
	clear(m.userns)
	if m.owners != nil {
		errs = append(errs, m.owners.Close())
	}
	if m.init != nil {
		errs = append(errs, m.init.Close())
	}
	if m.keep.Load() && m.leftSome.Load() {
		return errors.Join(errs...)
	}
	errs = append(errs, cgroups.RemoveParent(ctx, m.host, m.opts.CgroupParent), mount.DetachStage(m.paths.sandboxes()))
	return errors.Join(errs...)
}

// KeepOnExit makes Close leave the sandboxes to the next daemon, whatever the
// options say.
func (m *Manager) KeepOnExit() { m.keep.Store(true) }

// refuse lets no more sandboxes come.
func (m *Manager) refuse() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
}

// drain ends or leaves every sandbox and lets none come.
func (m *Manager) drain(ctx context.Context) error {
	m.refuse()
	m.stopPools()
	for _, s := range m.all() {
		m.dismiss(ctx, s)
	}
	done := make(chan struct{})
	go func() { m.work.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for %d sandboxes to end: %w", len(m.all()), context.Cause(ctx))
	}
}

// dismiss ends s, or leaves it where it is to survive this daemon.
func (m *Manager) dismiss(ctx context.Context, s *sandbox) {
	r, state := s.kept(), s.info().State
	stays := m.keep.Load() && r.outlives() && state != StateCreating && state != StateRemoving
	switch {
	case stays && state == StateExited:
		m.leftSome.Store(true)
		m.leave(s)
	case stays:
		m.leftSome.Store(true)
		s.endLeft()
		go m.dismissEnded(ctx, s)
	case state == StateExited:
		go m.destroy(ctx, s) // logs what fails
	default:
		s.end(ErrStopping)
		go m.dismissEnded(ctx, s)
	}
}

// dismissEnded dismisses s once more if it was ending already, for a reason for
// which it stays.
func (m *Manager) dismissEnded(ctx context.Context, s *sandbox) {
	select {
	case <-s.ended:
	case <-ctx.Done():
		return
	}
	if s.retired() {
		m.dismiss(ctx, s)
	}
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
