package runtime

import (
	"context"
	"errors"
	"fmt"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/netns"
	"github.com/caisson-run/caisson/runtime/idblock"
)

// Bridge gives sandboxes of the mode bridge their links. netns.Bridge implements
// it. A sandbox's number is that of its block of host ids: nobody else has it, also
// after a crash.
type Bridge interface {
	// Attach and Adopt mend what somebody changed on the host, and return the differences.
	Attach(path string, number uint32) (mended []netns.Difference, err error)
	Adopt(number uint32) (mended []netns.Difference, err error)
	Detach(number uint32) error // absent is success
	Check(path string, number uint32) ([]netns.Difference, error)
	// Bytes are those that crossed the link since Attach, with all headers.
	Bytes(number uint32) (sent, received uint64, err error)
	// InUse reports whether anything of it may be on the host.
	InUse() bool
	// Settle removes the links that nobody adopted.
	Settle() error
}

// errNoPolicy is for questions about the policy of the mode bridge.
func errNoPolicy() error {
	return sbxerr.WithRemedy(sbxerr.NetworkMode, "runtime.policy",
		fmt.Errorf("the network mode %q has no policy: every public address is reached, and no other", netns.ModeBridge), "caisson spec --network bridge shows its rules")
}

func (h *host) createBridge(_ context.Context, s *sandbox) error {
	if s.kept().Network != netns.ModeBridge {
		return nil
	}
	if h.opts.Bridge == nil {
		return sbxerr.New(sbxerr.NetworkMode, "runtime.bridge", "this daemon has no bridge")
	}
	path, number := h.paths.netns(s.id), h.blocks.Number(s.block)
	s.network.Go(func() error { return h.noteMended(h.opts.Bridge.Attach(path, number)) })
	return nil
}

func (h *host) removeBridge(_ context.Context, id string) error {
	if h.opts.Bridge == nil || !h.opts.Bridge.InUse() {
		return nil
	}
	blocks, err := h.blocks.Held(id)
	errs := []error{err}
	for _, b := range blocks {
		errs = append(errs, h.opts.Bridge.Detach(h.blocks.Number(b)))
	}
	return errors.Join(errs...)
}

// relink goes on with the link of a sandbox of an earlier daemon.
func (h *host) relink(s *sandbox) error {
	if h.opts.Bridge == nil {
		return sbxerr.New(sbxerr.NetworkMode, "runtime.bridge", "this daemon has no bridge")
	}
	return h.noteMended(h.opts.Bridge.Adopt(h.blocks.Number(s.block)))
}

// noteMended logs that somebody changed the host. It returns err.
func (h *host) noteMended(mended []netns.Difference, err error) error {
	if err == nil && len(mended) > 0 {
		h.log.Warn("somebody changed what the network mode bridge needs on the host; it is as it was", "code", sbxerr.Posture, "found", mended)
	}
	return err
}

// watchLink has the refused packets of a sandbox of the mode bridge recorded from here on.
func (h *host) watchLink(ctx context.Context, s *sandbox) error {
	if s.kept().Network != netns.ModeBridge {
		return nil
	}
	if h.opts.Egress == nil {
		return sbxerr.New(sbxerr.Gateway, "runtime.bridge", "this daemon has no gateway")
	}
	before, err := h.opts.Traffic.Counts(s.id)
	if err != nil {
		return err
	}
	log, err := netns.DropLog(h.paths.netns(s.id))
	if err != nil {
		return err
	}
	return h.opts.Egress.Watch(ctx, s.id, before, log)
}

// numberOf is the number of the link of a sandbox.
func (h *host) numberOf(r record) uint32 {
	return h.blocks.Number(idblock.Block{Base: r.HostIDBase})
}

// settleBridge removes what sandboxes of an earlier daemon left on the host.
func (h *host) settleBridge() error {
	if h.opts.Bridge == nil {
		return nil
	}
	return h.opts.Bridge.Settle()
}
