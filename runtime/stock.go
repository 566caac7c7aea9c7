package runtime

import (
	"context"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/netns"
	"github.com/caisson-run/caisson/runtime/failpoint"
	"github.com/caisson-run/caisson/runtime/plan"
)

// stock keeps network namespaces ready whose rules are programmed, so that a sandbox with a
// network is made as soon as one without.
type stock struct {
	netns.Stock
	size int           // how many to keep ready
	wake chan struct{} // asks the filler to look
}

const (
	stockSize = 4
	stockMost = 64 // 300 KiB of the kernel's memory each
	// stockRest is how long the filler leaves the processors to creates: to make one takes
	// 20 ms of them, which a create at the same time would lose half of.
	stockRest = 120 * time.Millisecond
	stockLook = 20 * time.Millisecond
)

// initStock sizes the stock for single creates and for the pools that use it.
func (m *Manager) initStock() {
	m.stock.size, m.stock.wake = stockSize, make(chan struct{}, 1)
	m.stock.Discarded = func(err error) {
		m.log.Warn("throw away a network namespace that waited for a sandbox", "code", sbxerr.Of(err), "err", err)
	}
	for _, p := range m.opts.Pools {
		profile := m.settings().Profiles[p.Profile].Network
		if mode, _, err := m.opts.Network.NetworkOf(profile, plan.NetworkRequest{}); err == nil && hasRedirect(mode) {
			m.stock.size += max(p.Size, p.Max)
		}
	}
	m.stock.size = min(m.stock.size, stockMost)
}

func hasRedirect(mode netns.Mode) bool { return mode == netns.ModeAllow || mode == netns.ModeOpen }

// take binds a namespace to path if one is ready, and has the stock filled again: it is
// filled from the first use on.
func (s *stock) take(path string) (bool, error) {
	taken, err := s.Take(path)
	select {
	case s.wake <- struct{}{}:
	default:
	}
	return taken, err
}

// fillStock keeps the stock full until ctx ends.
func (m *Manager) fillStock(ctx context.Context) {
	trouble := sbxerr.Code("")
	for {
		select {
		case <-m.stock.wake:
		case <-ctx.Done():
			return
		}
		for m.stock.Len() < m.stock.size && m.awaitRest(ctx) {
			err := m.stock.Add()
			if err == nil {
				err = failpoint.At("stock/filled")
			}
			if err == nil {
				trouble = ""
				continue
			}
			if code := sbxerr.Of(err); code != trouble {
				trouble = code
				m.log.Warn("keep network namespaces ready", "code", code, "err", err)
			}
			pauseFor(ctx, fillRetry)
		}
	}
}

// awaitRest returns when nothing was made for stockRest, or at once when nothing is in stock;
// false when ctx ends.
func (m *Manager) awaitRest(ctx context.Context) bool {
	for rested := time.Duration(0); rested < stockRest && m.stock.Len() > 0; rested += stockLook {
		if !pauseFor(ctx, stockLook) {
			return false
		}
		if m.making.busy() {
			rested = 0
		}
	}
	return ctx.Err() == nil
}
