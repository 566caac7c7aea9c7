package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/caisson-run/caisson/api/server"
	"github.com/caisson-run/caisson/config"
	"github.com/caisson-run/caisson/initproto"
	"github.com/caisson-run/caisson/rootfs/image"
	"github.com/caisson-run/caisson/rootfs/mount"
	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/runtime/ctrd"
	"github.com/caisson-run/caisson/runtime/idblock"
)

// The time that stopping may take.
const (
	stopTimeout  = 60 * time.Second
	serverGrace  = 5 * time.Second
	idleInterval = time.Second
)

// daemon holds what has to be closed, in the order in which it was opened.
type daemon struct {
	log   *slog.Logger
	close []func(context.Context) error
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

// serve runs the daemon until ctx ends or it has been idle for long enough.
// Nothing that it started is left when it returns.
func serve(ctx context.Context, c config.Config, logTo io.Writer) (err error) {
	syscall.Umask(0o022) // modes are meant as they are written
	d := &daemon{log: newLogger(c.Log, logTo)}
	defer func() {
		err = errors.Join(err, d.stop(ctx))
		d.log.Info("stopped")
	}()
	if err := preflight(ctx, c); err != nil {
		return err
	}
	unlock, err := lockDirs(c.Root, c.State)
	if err != nil {
		return err
	}
	d.onStop(func(context.Context) error { return unlock() })
	manager, err := d.start(ctx, c)
	if err != nil {
		return err
	}
	l, err := listen(c.Socket)
	if err != nil {
		return err
	}
	d.onStop(func(context.Context) error { return os.Remove(c.Socket) })
	d.log.Info("ready", "socket", c.Socket, "instance", c.Instance(), "version", version)
	return d.serveAPI(ctx, l, manager, time.Duration(c.IdleTimeout))
}

// start brings up the engine and the manager, and removes what an earlier
// daemon left before anything else is served.
func (d *daemon) start(ctx context.Context, c config.Config) (*runtime.Manager, error) {
	ids, err := idblock.Reserve(idblock.RegistryDir, c.IDs.Base, c.IDs.Blocks)
	if err != nil {
		return nil, err
	}
	d.onStop(func(context.Context) error { return ids.Close() })
	engine, err := d.startEngine(ctx, c)
	if err != nil {
		return nil, err
	}
	options, err := managerOptions(c, ids.Range, engine)
	if err != nil {
		return nil, err
	}
	manager, err := runtime.New(engine, engine, d.log, options)
	if err != nil {
		return nil, err
	}
	d.onStop(manager.Close)
	left, err := manager.Cleanup(ctx, false)
	if err != nil {
		return nil, err
	}
	for _, l := range left {
		d.log.Warn("removed what an earlier daemon left", "kind", l.Kind, "id", l.ID)
	}
	return manager, manager.EnsureBase(ctx)
}

func (d *daemon) startEngine(ctx context.Context, c config.Config) (*ctrd.Engine, error) {
	paths := ctrd.Paths{Root: c.Root, State: c.State}
	ec := ctrd.EngineConfig{
		Address: c.Containerd.Address, Namespace: c.Instance(),
		Runc: filepath.Join(c.BinDir, "runc"), RuncRoot: paths.RuncRoot(),
	}
	if ec.Address == "" {
		s, err := ctrd.Supervise(ctx, ctrd.ServerConfig{Paths: paths, BinDir: c.BinDir, Logger: d.log})
		if err != nil {
			return nil, err
		}
		d.onStop(s.Stop)
		ec.Address = s.Address()
		ec.Shim = filepath.Join(c.BinDir, "containerd-shim-runc-v2")
	}
	engine, err := ctrd.Connect(ctx, ec)
	if err != nil {
		return nil, err
	}
	d.onStop(func(context.Context) error { return engine.Close() })
	return engine, nil
}

func managerOptions(c config.Config, ids idblock.Range, engine *ctrd.Engine) (runtime.Options, error) {
	profiles, err := profiles(c.Profiles)
	if err != nil {
		return runtime.Options{}, err
	}
	limits := image.DefaultLimits()
	limits.Bytes, limits.Entries = c.Images.MaxBytes, c.Images.MaxEntries
	host := hostDoctor{config: c, ids: ids, engine: engine}
	return runtime.Options{
		Root: c.Root, State: c.State, CgroupParent: c.Cgroup.Parent,
		InitPath:     filepath.Join(c.BinDir, initproto.BinaryName),
		IDs:          ids,
		Profiles:     profiles,
		Workspaces:   mount.Allowed{Roots: c.Workspaces.AllowedRoots, Private: []string{c.Root, c.State, c.BinDir}},
		ImageLimits:  limits,
		StopGrace:    time.Duration(c.StopGrace),
		Versions:     host.versions,
		Doctor:       host.checks,
		Capabilities: host.capabilities,
	}, nil
}

// serveAPI serves until ctx ends or the daemon is idle.
func (d *daemon) serveAPI(ctx context.Context, l net.Listener, m *runtime.Manager, idle time.Duration) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if idle > 0 {
		go func() {
			waitIdle(ctx, m, idle)
			cancel()
		}()
	}
	handler := server.New(server.Deps{Sandboxes: m, Images: m, System: m, Log: d.log})
	err := server.Serve(ctx, l, handler, serverGrace)
	if err != nil {
		return fmt.Errorf("serve the API: %w", err)
	}
	return nil
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
