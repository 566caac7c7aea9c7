package main

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/caisson-run/caisson/config"
	"github.com/caisson-run/caisson/runtime/ctrd"
)

// engine is a containerd: a private one that is started, or the host's own.
type engine struct {
	*ctrd.Engine
	private *ctrd.ServerConfig // nil: the host's own
	server  *ctrd.Supervisor   // of the private one, once it is started
}

// enginePaths are the directories of a private containerd.
func enginePaths(c config.Config) ctrd.Paths { return ctrd.Paths{Root: c.Root, State: c.State} }

// checkEngine refuses directories with which the engine could not start.
func checkEngine(c config.Config) error {
	if c.Containerd.Address != "" {
		return nil
	}
	return enginePaths(c).Check()
}

// newEngine returns an engine that is still to be started.
// changed is called when the private server is up or down.
func newEngine(c config.Config, log *slog.Logger, changed func(up bool, cause error)) (*engine, error) {
	paths := enginePaths(c)
	ec := ctrd.EngineConfig{
		Address: c.Containerd.Address, Namespace: c.Instance(),
		Runc: filepath.Join(c.BinDir, "runc"), RuncRoot: paths.RuncRoot(),
		CallTimeout: time.Duration(c.Containerd.CallTimeout), Attempts: int(c.Containerd.Attempts), Backoff: time.Duration(c.Containerd.Backoff),
	}
	var private *ctrd.ServerConfig
	if ec.Address == "" {
		private = &ctrd.ServerConfig{Paths: paths, BinDir: c.BinDir, Logger: log, Changed: changed}
		ec.Address, ec.Shim = paths.Socket(), filepath.Join(c.BinDir, ctrd.ShimProgram)
		ec.Sockets, ec.Bundles = paths.ShimSockets(), paths.Bundles()
	}
	e, err := ctrd.New(ec)
	if err != nil {
		return nil, err
	}
	return &engine{Engine: e, private: private}, nil
}

// start starts the private server, so many times if it ends before it serves, and
// opens the engine.
func (e *engine) start(ctx context.Context, tries int) (err error) {
	if e.private == nil {
		return e.Open(ctx)
	}
	begin := ctx
	if tries > 1 { // a daemon that is to end needs the engine: it removes the sandboxes that are there
		begin = context.WithoutCancel(ctx)
	}
	for try := 1; ; try++ {
		if e.server, err = ctrd.Supervise(begin, *e.private); err == nil {
			return e.Open(begin)
		}
		if try >= tries {
			return err
		}
		e.private.Logger.Warn("start the engine again", "err", err)
		select {
		case <-time.After(time.Duration(try) * startPause):
		case <-ctx.Done():
			return errors.Join(err, context.Cause(ctx))
		}
	}
}

// startPause is between the first two starts; it grows.
const startPause = 100 * time.Millisecond

// stop ends what start started, all of it or a part.
func (e *engine) stop(context.Context) error {
	err := e.Close()
	if e.server != nil {
		e.server.Stop()
	}
	return err
}
