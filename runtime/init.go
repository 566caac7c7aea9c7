package runtime

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/initproto"
	"github.com/caisson-run/caisson/runtime/pid1"
)

// createInit gives the sandbox a copy of PID 1's program of its own, and the socket
// on which it is awaited.
func (h *host) createInit(_ context.Context, s *sandbox) error {
	dir := h.paths.init(s.id)
	if err := makeDir(dir, 0o711); err != nil {
		return err
	}
	if err := h.init.CopyTo(filepath.Join(dir, initproto.BinaryName)); err != nil {
		return err
	}
	u := s.plan.User
	var err error
	s.listener, err = pid1.Listen(dir, int(s.block.Base+u.UID), int(s.block.Base+u.GID))
	return err
}

func (h *host) removeInit(_ context.Context, id string) error {
	dir := h.paths.init(id)
	return removeFiles(filepath.Join(dir, initproto.SocketName), filepath.Join(dir, initproto.WakeName), filepath.Join(dir, initproto.BinaryName), dir)
}

// adoptInit listens for PID 1.
func (h *host) adoptInit(_ context.Context, s *sandbox) (err error) {
	r := s.kept()
	s.listener, err = pid1.Listen(h.paths.init(s.id), int(r.HostIDBase+r.User.UID), int(r.HostIDBase+r.User.GID))
	return err
}

// startInit starts PID 1. Nothing of the caller's runs before the last stage
// is done.
func (h *host) startInit(ctx context.Context, s *sandbox) error {
	return h.engine.Start(ctx, s.id)
}

// awaitInit waits for PID 1's word, no longer than PID 1 lives.
func (h *host) awaitInit(ctx context.Context, s *sandbox) error {
	held, err := h.connect(ctx, s, h.opts.Timeouts.Start)
	if err == nil && len(held) > 0 {
		return errors.Join(sbxerr.New(sbxerr.Init, "runtime.boot", "a fresh caisson-init holds %d commands", len(held)), closeHeld(held))
	}
	return err
}

// connect accepts the connection of PID 1 and the commands that it holds since
// before.
func (h *host) connect(ctx context.Context, s *sandbox, atMost time.Duration) ([]pid1.Held, error) {
	const op = "runtime.boot"
	ctx, stop := context.WithTimeoutCause(ctx, atMost, sbxerr.New(sbxerr.Init, op, "caisson-init did not connect within %s", atMost))
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	ended := sbxerr.New(sbxerr.Init, op, "caisson-init ended before it connected")
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		if s.process.wait(ctx) == nil {
			cancel(ended)
		}
	}()
	client, held, err := h.accept(ctx, s)
	cancel(nil)
	<-watched
	s.init = client
	if err != nil && errors.Is(context.Cause(ctx), ended) {
		return nil, ended // not that the caller cancelled
	}
	return held, err
}

func (h *host) accept(ctx context.Context, s *sandbox) (*pid1.Client, []pid1.Held, error) {
	ends, err := h.openEnds(s.id)
	if err != nil {
		return nil, nil, err
	}
	client, held, err := s.listener.Accept(ctx, s.process.pid, pid1.Options{OrphanGrace: h.opts.OrphanGrace, Ends: ends})
	return client, held, errors.Join(err, ends.Close())
}
