package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/audit/export"
	"github.com/caisson-run/caisson/config"
	"github.com/caisson-run/caisson/gateway/ratelog"
	"github.com/caisson-run/caisson/initproto"
	"github.com/caisson-run/caisson/metrics"
	"github.com/caisson-run/caisson/rootfs/imageproc"
	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/runtime/ctrd"
	"github.com/caisson-run/caisson/runtime/egress"
	"github.com/caisson-run/caisson/runtime/events"
	"github.com/caisson-run/caisson/runtime/forward"
	"github.com/caisson-run/caisson/runtime/idblock"
	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/runtime/pool"
	"github.com/caisson-run/caisson/server"
	"github.com/caisson-run/caisson/server/remote"
	"github.com/caisson-run/caisson/tracing"
)

// The time that stopping may take.
const (
	stopTimeout  = 60 * time.Second
	callerGrace  = 5 * time.Second        // of commands that have a caller
	lastAnswers  = 500 * time.Millisecond // of what is known by then
	idleInterval = time.Second
	// writeTimeout is long: a person may leave a pager open, and what a caller that
	// does not read keeps is no more than the command's output on the disk.
	writeTimeout = 10 * time.Minute
)

// daemon holds what has to be closed, in the order in which it was opened.
type daemon struct {
	log     *slog.Logger
	events  *events.Bus
	refused *ratelog.Log[peer.Caller] // connections of those who are no peers
	audit   *audit.Log                // nil where none is kept
	exports []*export.Exporter        // of the audit log
	metrics *metrics.Metrics
	tracer  *tracing.Tracer // nil where nothing is traced
	engine  *engine
	manager atomic.Pointer[runtime.Manager] // nil until it is made
	gateway *egress.Gateway
	close   []func(context.Context) error
	handler chan http.Handler             // the API, once it is there
	policy  atomic.Pointer[peer.Policy]   // of the peers, once the socket is made
	remote  atomic.Pointer[remote.Server] // of the network; nil without
	ready   bool                          // clients find the socket, or there are to be none

	file      string                        // of the configuration
	load      func() (config.Config, error) // reads the configuration
	config    atomic.Pointer[config.Config] // in force
	reloading sync.Mutex
	kept      atomic.Pointer[map[string]keptSecret] // by name: secrets that calls set; changed under reloading
}

func (d *daemon) onStop(f func(context.Context) error) { d.close = append(d.close, f) }

// stop closes everything, newest first, and goes on past failures.
func (d *daemon) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	var errs []error
	for i := len(d.close) - 1; i >= 0; i-- {
		errs = append(errs, d.close[i](ctx))
	}
	return errors.Join(errs...)
}

// serve runs the daemon until ctx ends or it has been idle for long enough. With stopAll it
// ends the sandboxes of an earlier daemon and serves nobody.
// Nothing that it started is left when it returns.
func (f *flags) serve(ctx context.Context, load func() (config.Config, error), logTo io.Writer) (err error) {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP) // before it could end a daemon that starts
	defer signal.Stop(hangups)
	c, err := load()
	if err != nil {
		return err
	}
	syscall.Umask(0o022) // modes are meant as they are written
	d := &daemon{log: newLogger(c.Log, logTo), handler: make(chan http.Handler, 1), file: f.file, load: load}
	d.config.Store(&c)
	defer func() {
		err = errors.Join(err, d.stop(ctx))
		d.log.Info("stopped")
	}()
	if err := preflight(ctx, c); err != nil {
		return err
	}
	unlock, err := lockDirs(c.Root, c.State)
	if f.stopAll && sbxerr.Of(err) == sbxerr.Locked {
		return sbxerr.WithRemedy(sbxerr.Locked, "caissond.stop_all", err, "have that daemon end its sandboxes: caisson rm --all --force")
	}
	if err != nil {
		return err
	}
	d.onStop(func(context.Context) error { return unlock() })
	ctx = peer.NewContext(ctx, peer.System) // until it is a caller's
	if err := d.openEvents(ctx, c); err != nil {
		return err
	}
	if err := d.startWebhooks(ctx, c); err != nil {
		return err
	}
	if err := d.serveMetrics(c); err != nil {
		return err
	}
	socket, l, err := d.listen(c)
	if err != nil {
		return err
	}
	site, err := d.listenPage(c)
	if err != nil {
		return errors.Join(err, socket.abandon())
	}
	network, err := d.listenRemote(c)
	if err != nil {
		return errors.Join(err, socket.abandon())
	}
	manager, settle, err := d.start(ctx, c)
	if err == nil && f.stopAll {
		err = settle(ctx)
		d.ready = err == nil // a failure leaves the sandboxes to the next daemon
		return errors.Join(err, socket.abandon())
	}
	if err == nil {
		err = socket.publish()
	}
	if err != nil {
		return errors.Join(err, socket.abandon())
	}
	d.ready = true
	d.onStop(func(context.Context) error { return os.Remove(c.Socket) })
	d.log.Info("ready", "socket", c.Socket, "instance", c.Instance(), "version", version)
	defer f.serveUnit(ctx, d.log, manager)()
	go d.reloadOn(ctx, hangups)
	go d.refreshSecrets(ctx, time.Duration(c.SecretsAge))
	go d.refreshKept(ctx)
	return d.serveAPI(d.beside(ctx, settle), l, site, network, manager, time.Duration(c.IdleTimeout))
}

// serveUnit tells systemd that the daemon is ready, then that it lives: the fleet's lock and
// that of each sandbox can be had. The returned function ends that.
func (f *flags) serveUnit(ctx context.Context, log *slog.Logger, m *runtime.Manager) (stop func() bool) {
	tell := func(state string) {
		if err := f.systemd.tell(state); err != nil {
			log.Warn("tell systemd", "state", state, "err", err)
		}
	}
	tell(stateReady)
	go func() {
		if err := f.systemd.watch(ctx, func() { m.IdleSince() }); err != nil {
			log.Warn("give systemd a sign of life", "err", err)
		}
	}()
	return context.AfterFunc(ctx, func() { tell(stateStopping) })
}

// start goes on with the sandboxes of an earlier daemon, and returns what is
// still to be done: the engine takes longer to start than they to be served, the
// longer the more of them there are. Without any it is done already. Should the
// daemon fail before it is ready, its sandboxes live on for the next one.
func (d *daemon) start(ctx context.Context, c config.Config) (*runtime.Manager, func(context.Context) error, error) {
	ids, err := idblock.Reserve(idblock.RegistryDir, runtime.ClaimsDir(c.State), c.IDs.Base, c.IDs.Blocks)
	if err != nil {
		return nil, nil, err
	}
	d.onStop(func(context.Context) error { return ids.Close() })
	engine, err := newEngine(c, d.log, d.engineChanged(ctx))
	if err != nil {
		return nil, nil, err
	}
	d.onStop(engine.stop)
	d.engine = engine
	options, err := d.managerOptions(ctx, c, ids.Range, engine.Engine)
	if err != nil {
		return nil, nil, err
	}
	d.warnUnisolated(options.Profiles)
	if err := d.openNetwork(c, &options); err != nil {
		return nil, nil, err
	}
	manager, err := runtime.New(engine, engine, d.log, options)
	if err != nil {
		return nil, nil, err
	}
	d.manager.Store(manager)
	d.onStop(manager.Close)
	d.onStop(func(context.Context) error { // runs before Close
		if !d.ready && ctx.Err() == nil { // the start failed, and nobody asked the daemon to end
			manager.KeepOnExit()
		}
		return nil
	})
	known, err := manager.Recover(ctx)
	if err != nil {
		return nil, nil, err
	}
	manager.StartMemoryWatch(ctx)
	manager.StartSampling(ctx)
	manager.StartGuardingDisks(ctx)
	if known == 0 {
		return manager, func(context.Context) error { return nil }, d.settle(ctx, engine, manager, 1)
	}
	d.log.Info("went on with sandboxes of an earlier daemon", "sandboxes", known)
	return manager, func(ctx context.Context) error { return d.settle(ctx, engine, manager, startTries) }, nil
}

// startTries is how often an engine is started that ends at once, while sandboxes
// are served.
const startTries = 5

// settle starts the engine, and what needs one. Sandboxes that are there outlive
// a daemon that fails at it.
func (d *daemon) settle(ctx context.Context, engine *engine, manager *runtime.Manager, tries int) (err error) {
	defer func() {
		if err != nil && ctx.Err() == nil { // else the daemon ends in order
			manager.KeepOnExit()
		}
	}()
	if err := engine.start(ctx, tries); err != nil {
		manager.KeepOnExit()
		return err
	}
	left, err := manager.Settle(ctx)
	if err != nil {
		return err
	}
	for _, l := range left {
		if !l.Removed { // it is logged why not
			continue
		}
		level := slog.LevelWarn
		if l.Kind == "sandbox" { // a warning has said why it could not stay, or it waited in a pool
			level = slog.LevelInfo
		}
		d.log.Log(ctx, level, "removed what an earlier daemon left", "kind", l.Kind, "id", l.ID)
	}
	if err := manager.Images().EnsureBase(ctx); err != nil {
		return err
	}
	manager.StartCleaning(ctx)
	manager.StartPools(ctx)
	manager.Images().StartPruning(ctx)
	if d.config.Load().Registries.PullAtStart {
		manager.Images().StartPull(ctx)
	}
	return nil
}

// beside does work at the same time as whatever the returned context is for,
// which ends with a failure of work.
func (d *daemon) beside(ctx context.Context, work func(context.Context) error) context.Context {
	ctx, fail := context.WithCancelCause(ctx)
	done := make(chan error, 1)
	go func() {
		err := work(ctx)
		if err != nil {
			fail(err)
		}
		done <- err
	}()
	d.onStop(func(context.Context) error {
		fail(nil)
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) { // by the daemon's own end
			return err
		}
		return nil
	})
	return ctx
}

func (d *daemon) managerOptions(ctx context.Context, c config.Config, ids idblock.Range, engine *ctrd.Engine) (runtime.Options, error) {
	settings, err := settingsOf(c)
	if err != nil {
		return runtime.Options{}, err
	}
	host := hostDoctor{config: d.config.Load, ids: ids, engine: engine, exports: d.exports}
	return runtime.Options{
		Root: c.Root, State: c.State, CgroupParent: c.Cgroup.Parent,
		InitPath:   filepath.Join(c.BinDir, initproto.BinaryName),
		ImagesPath: filepath.Join(c.BinDir, imageproc.Name),
		IDs:        ids,
		Settings:   settings,
		StopGrace:  time.Duration(c.StopGrace),
		Timeouts: runtime.Timeouts{
			Create: time.Duration(c.Timeouts.Create), Start: time.Duration(c.Timeouts.Start), Remove: time.Duration(c.Timeouts.Remove),
		},
		AttachGrace:  time.Duration(c.Sandboxes.AttachGrace),
		OrphanGrace:  time.Duration(c.Sandboxes.OrphanGrace),
		CleanEvery:   time.Duration(c.Sandboxes.CleanEvery),
		KeepOnExit:   c.Sandboxes.KeepOnExit,
		MaxSandboxes: int(c.Sandboxes.Max),
		ForRoot:      int(c.Sandboxes.ForRoot()),
		MaxCreating:  int(c.Sandboxes.MaxCreating),
		MaxRunning:   int(c.Sandboxes.MaxRunning),
		Queue:        int(c.Sandboxes.Queue),
		KeptExecs:    int(c.Sandboxes.KeptExecs),
		KeptUsage:    int(c.Sandboxes.KeptUsage),
		KeptUsageFor: time.Duration(c.Sandboxes.KeptUsageFor),
		KeptOutput:   int64(c.Sandboxes.KeptOutput),
		DiskBytes:    int64(c.Sandboxes.Disk),
		VolumeBytes:  int64(c.Sandboxes.VolumeSize),
		DiskReserve:  int64(c.Sandboxes.DiskReserve),
		PerShim:      int(c.Sandboxes.PerShim),
		Pools:        pools(c.Pools),
		Warm:         int(c.Warm),
		Events:       d.events,
		Ready:        d.isReady,
		ServeNested:  func(id string, l *net.UnixListener) { go d.serveNested(ctx, id, l) },
		Versions:     host.versions,
		Doctor:       host.checks,
		Capabilities: host.capabilities,
		Reload:       d.reload,
	}, nil
}

func pools(list []config.Pool) []pool.Config {
	var out []pool.Config
	for _, p := range list {
		out = append(out, pool.Config{Profile: p.Profile, Image: p.Image, Size: int(p.Size), Max: int(p.Max)})
	}
	return out
}

// serveAPI serves until ctx ends or the daemon is idle.
func (d *daemon) serveAPI(ctx context.Context, l net.Listener, site *site, network *remoteSite, m *runtime.Manager, idle time.Duration) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if idle > 0 {
		go func() {
			waitIdle(ctx, m, idle)
			cancel()
		}()
	}
	handler := server.New(server.Deps{
		Sandboxes: m, Execs: m, Files: fileSessions{m}, Images: m.Images(), Volumes: m.Volumes(), Snapshots: m.Snapshots(), Templates: runtime.Templates(m), Workspaces: runtime.Workspaces(m), System: m, Network: m, Spending: runtime.Spending{Fleet: m}, Forwards: forward.New(runtime.Forwards{Manager: m}), Secrets: secretService{d, m}, Events: m, Stream: d.events, Called: d.called, Traced: d.tracer != nil, Log: d.log, WriteTimeout: writeTimeout,
	})
	d.handler <- handler
	if err := d.servePage(site, handler); err != nil {
		return err
	}
	last, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	defer context.AfterFunc(ctx, func() {
		leave(last, m)
		cut()
	})()
	d.serveRemote(ctx, last, network, handler)
	if err := server.ServeUntil(ctx, last, l, handler); err != nil {
		return fmt.Errorf("serve the API: %w", err)
	}
	return nil
}

// leave returns when callers have had the time to hear how their calls end.
func leave(ctx context.Context, m *runtime.Manager) {
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	m.Leave(ctx, callerGrace)
	select {
	case <-time.After(lastAnswers):
	case <-ctx.Done():
	}
}

// fileSessions opens the files of sandboxes.
type fileSessions struct{ *runtime.Manager }

// Files implements server.Files.
func (m fileSessions) Files(ctx context.Context, ref string) (server.FileSession, error) {
	return m.Manager.Files(ctx, ref)
}

// serveNested serves the API to what runs inside of a sandbox, until the sandbox
// or the daemon ends.
func (d *daemon) serveNested(ctx context.Context, id string, l *net.UnixListener) {
	var handler http.Handler
	select {
	case handler = <-d.handler:
		d.handler <- handler // for the next
	case <-ctx.Done():
		return
	}
	if err := server.Serve(ctx, server.IdentifyNested(l, id, d.admit), handler, 0); err != nil && !errors.Is(err, net.ErrClosed) {
		d.log.Warn("serve the sandbox's own socket", "sandbox", id, "err", err)
	}
}

// waitIdle returns when nothing has been going on for the given time.
func waitIdle(ctx context.Context, m interface{ IdleSince() (time.Time, bool) }, idle time.Duration) {
	tick := time.NewTicker(min(idleInterval, idle))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if since, ok := m.IdleSince(); ok && time.Since(since) >= idle {
				return
			}
		}
	}
}

func newLogger(c config.Log, w io.Writer) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(c.Level)) // checked with the configuration
	o := &slog.HandlerOptions{Level: level}
	if c.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}
