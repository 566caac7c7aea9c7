package runtime

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/cgroups"
	"github.com/caisson-run/caisson/owndir"
	"github.com/caisson-run/caisson/rootfs/imageproc"
	"github.com/caisson-run/caisson/rootfs/mount"
	"github.com/caisson-run/caisson/runtime/clock"
	"github.com/caisson-run/caisson/runtime/events"
	"github.com/caisson-run/caisson/runtime/idblock"
	"github.com/caisson-run/caisson/runtime/images"
	"github.com/caisson-run/caisson/runtime/imageservice"
	"github.com/caisson-run/caisson/runtime/memwatch"
	"github.com/caisson-run/caisson/runtime/output"
	"github.com/caisson-run/caisson/runtime/pid1"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/runtime/pool"
	"github.com/caisson-run/caisson/runtime/queue"
	"github.com/caisson-run/caisson/runtime/snapshots"
	"github.com/caisson-run/caisson/runtime/spend"
	"github.com/caisson-run/caisson/runtime/templates"
	"github.com/caisson-run/caisson/runtime/traffic"
	"github.com/caisson-run/caisson/runtime/usage"
	"github.com/caisson-run/caisson/runtime/volumes"
	"github.com/caisson-run/caisson/runtime/workspaces"
)

// Options is what a Manager is made of.
type Options struct {
	Root         string // on disk
	State        string // on tmpfs
	CgroupParent string // name of the group above the sandboxes', at the hierarchies' root
	InitPath     string // the caisson-init that each sandbox gets a copy of
	GatewayPath  string // the caisson-gateway that fetches what ADD of a Dockerfile names
	ImagesPath   string // the caisson-images that parses images and Dockerfiles
	IDs          idblock.Range
	Settings                   // to begin with
	StopGrace    time.Duration // between TERM and KILL
	Timeouts     Timeouts      // of the steps of a sandbox's life
	AttachGrace  time.Duration // that a command outlives its caller
	OrphanGrace  time.Duration // that a sandbox outlives its daemon
	KeptUsage    int           // sandboxes of which it is kept what they used; 0 is none
	KeptUsageFor time.Duration // that it is kept
	CleanEvery   time.Duration // between looks for what belongs to no sandbox; 0: none but Settle's and Cleanup's
	KeepOnExit   bool          // Close leaves the sandboxes to the next daemon
	MaxSandboxes int           // those that have ended too; 0 is no bound but the blocks of ids
	ForRoot      int           // of them, that only root's own requests make
	MaxCreating  int           // sandboxes that are made at once
	MaxRunning   int           // sandboxes that run at once, without those in pools; 0: no bound but MaxSandboxes
	Queue        int           // requests that wait to make one
	KeptExecs    int           // ended commands of a sandbox whose output is kept
	KeptOutput   int64         // bytes of output of them
	DiskBytes    int64         // of the disk of a sandbox with a writable root that names none
	VolumeBytes  int64         // of a volume for which no size is asked; 0: nothing bounds it
	DiskReserve  int64         // bytes below Root that are left to the host when a disk is made
	PerShim      int           // sandboxes that share a shim
	Pools        []pool.Config
	Warm         int // ready sandboxes for what was lately asked for, beside Pools
	Network      plan.NetworkRules
	Egress       Egress       // nil: no network mode but none
	Bridge       Bridge       // nil: not the network mode bridge
	Traffic      *traffic.Log // of what Egress carries
	Spending     *spend.Book  // of what requests by routes took; nil keeps nothing
	Events       *events.Bus
	Ready        func(context.Context) error // nil where something can be run
	// ServeNested serves the API to the sandbox id on l, until l is closed.
	ServeNested  func(id string, l *net.UnixListener)
	Versions     func(context.Context) (Versions, error)
	Doctor       func(context.Context) ([]Check, error)
	Capabilities func(context.Context) ([]Capability, error)
	Reload       func(context.Context) (Reloaded, error) // reads the configuration again
}

// Timeouts bounds the steps of a sandbox's life.
type Timeouts struct {
	Create time.Duration // until a sandbox is ready
	Start  time.Duration // until PID 1 answers, or has started a command
	Remove time.Duration // until processes that were killed have ended, or a sandbox is removed
}

// maxOwners is how many mappings of workspaces' owners are kept.
const maxOwners = 256

// Manager makes, runs and removes sandboxes: it is the fleet of one host. All of its methods
// may be called at the same time.
type Manager struct {
	host

	stages  []stage      // what each sandbox is made of
	making  *queue.Queue // bounds the sandboxes that are being made
	running *queue.Queue // bounds the sandboxes that run
	shims   *shims
	memory  *memwatch.Watch // of the kernel's memory; nil before StartMemoryWatch
	pools   *pool.Service
	stock   *pool.Stock // of network namespaces

	mu        sync.Mutex
	sandboxes map[string]*sandbox // by ID
	first     chan struct{}       // holds one when there was none, and one came
	expired   expired
	closed    bool
	lastUse   time.Time
	active    int // calls under way
	work      sync.WaitGroup
	keep      atomic.Bool     // Close leaves the sandboxes to the next daemon
	leaving   context.Context // it ends when no call is to wait any more
	handOver  context.CancelFunc

	quotas   sync.Mutex // held while a command is counted and admitted
	cleaning sync.Mutex

	quarantine quarantine
}

// New makes a Manager and the directories it works in. It removes nothing:
// Cleanup does.
func New(engine Engine, store images.Store, log *slog.Logger, o Options) (*Manager, error) {
	const op = "runtime.new"
	p := paths{root: o.Root, state: o.State}
	for dir, mode := range map[string]os.FileMode{p.state: 0o711, p.root: 0o711, p.outputs(): 0o700, p.spool(): 0o700, p.uses(): 0o700, p.usages(): 0o700, p.volumes(): 0o700, p.disks(): 0o700, p.snapshots(): 0o700, p.templates(): 0o700, p.applies(): 0o700, p.changesets(): 0o700} {
		if err := os.MkdirAll(dir, mode); err != nil {
			return nil, sbxerr.Wrap(sbxerr.StateDir, op, err)
		}
		if err := owndir.GiveDir(dir, mode); err != nil {
			return nil, sbxerr.Wrap(sbxerr.StateDir, op, err)
		}
	}
	switch err := output.Probe(p.outputs()); {
	case output.Full(err): // what runs can still be read, ended and removed
		log.Warn("serve with a full disk", "dir", p.outputs(), "err", err)
	case err != nil:
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
	groups, err := cgroups.Detect()
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
	boot, err := clock.BootID()
	if err != nil {
		return nil, err
	}
	if err := mount.AttachStage(p.sandboxes()); err != nil { // last: only Close takes it away
		return nil, err
	}
	m := assemble(engine, store, log, o)
	m.blocks, m.groups, m.rlimit, m.oomScore, m.init, m.boot = blocks, groups, rlimits, oomScore, program, boot
	return m, m.volumes.Load()
}

// assemble makes a Manager of what it is given. What the host says is not there yet: see New.
func assemble(engine Engine, store images.Store, log *slog.Logger, o Options) *Manager {
	p := paths{root: o.Root, state: o.State}
	m := &Manager{
		host: host{
			engine: engine,
			store:  store,
			opts:   o,
			log:    log,
			paths:  p,
			userns: map[idblock.Block]*mount.UserNS{},
			owners: mount.NewUserNSCache(maxOwners),
			usages: usage.Store{Dir: p.usages(), Max: o.KeptUsage, Age: o.KeptUsageFor},
			spare:  output.NewRoom(spareRoom),
		},
		sandboxes: map[string]*sandbox{},
		first:     make(chan struct{}, 1),
		lastUse:   time.Now(),
		making:    queue.New(o.MaxCreating, o.Queue),
		running:   queue.New(o.MaxRunning, o.Queue),
		shims:     newShims(o.PerShim),
	}
	program := imageproc.Program{Path: o.ImagesPath}
	m.images = imageservice.NewService(store, imageFleet{m}, imageservice.Options{
		Root: p.root, Spool: p.spool(), Uses: p.uses(), View: p.view(), Gateway: o.GatewayPath, Program: program, AirGapped: o.Network.AirGapped, Events: o.Events, Log: log,
	})
	m.templates = templates.NewService(templateFleet{imageFleet{m}}, m.images, p.templates(), o.Events, log)
	m.workspaces = workspaces.NewService(workspaceFleet{snapshotFleet{m}}, workspaces.Options{Journals: p.applies(), Changesets: p.changesets(), Program: program, Events: o.Events, Log: log, Rules: func() workspaces.Rules {
		return workspaces.Rules{Allowed: m.settings().Workspaces, Control: m.settings().Control, Retention: m.settings().Changesets}
	}})
	m.snapshots = snapshots.NewService(snapshots.NewStore(p.snapshots()), snapshotFleet{m}, m.images, &m.disks, o.Events, func() snapshots.Retention { return m.settings().Snapshots }, log)
	m.volumes = volumes.NewService(volumes.New(p.volumes()), volumeFleet{m}, o.Events, o.VolumeBytes)
	m.leaving, m.handOver = context.WithCancel(context.Background())
	m.keep.Store(o.KeepOnExit)
	m.stages = m.allStages()
	m.pools = pool.New(o.Pools, o.Warm, poolFleet{m}, o.Events, log)
	m.stock = pool.NewStock(o.Pools, m.needsRules, m.making.Busy, log)
	o.Traffic.Observe(m.tried)
	return m
}

// blockNS returns the user namespace that maps a block, and in which its sandbox
// runs. It belongs to the block's first id, root inside. It is made once for
// each block and kept: blocks are used again and again.
func (h *host) blockNS(b idblock.Block) (*mount.UserNS, error) {
	h.usernsMu.Lock()
	defer h.usernsMu.Unlock()
	if ns, ok := h.userns[b]; ok {
		return ns, nil
	}
	ids := []mount.IDMap{{Disk: 0, Host: b.Base, Size: idblock.Size}}
	ns, err := mount.NewOwnedUserNS(b.Base, ids, ids)
	if err != nil {
		return nil, err
	}
	h.userns[b] = ns
	return ns, nil
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
