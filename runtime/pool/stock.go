package pool

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/netns"
	"github.com/caisson-run/caisson/runtime/failpoint"
)

// Stock keeps network namespaces ready whose rules are programmed, so that a sandbox with a
// network is made as soon as one without.
type Stock struct {
	stock  netns.Stock
	size   int           // how many to keep ready
	wake   chan struct{} // asks the filler to look
	busy   func() bool   // a sandbox is being made
	log    *slog.Logger
	filler sync.WaitGroup
	cancel context.CancelFunc
}

const (
	stockSize = 4
	stockMost = 64 // 300 KiB of the kernel's memory each
	// stockRest is how long the filler leaves the processors to creates: to make one takes
	// 20 ms of them, which a create at the same time would lose half of.
	stockRest = 120 * time.Millisecond
	stockLook = 20 * time.Millisecond
)

// NewStock makes a stock that is large enough for single creates and for the pools of configs
// whose profile needs rules. It is filled while busy reports that nobody makes a sandbox.
func NewStock(configs []Config, needsRules func(profile string) bool, busy func() bool, log *slog.Logger) *Stock {
	s := &Stock{size: stockSize, wake: make(chan struct{}, 1), busy: busy, log: log, cancel: func() {}}
	s.stock.Discarded = func(err error) {
		log.Warn("throw away a network namespace that waited for a sandbox", "code", sbxerr.Of(err), "err", err)
	}
	for _, c := range configs {
		if needsRules(c.Profile) {
			s.size += max(c.Size, c.Max)
		}
	}
	s.size = min(s.size, stockMost)
	return s
}

// Start fills the stock from the first Take on, until Close.
func (s *Stock) Start(ctx context.Context) {
	ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	s.filler.Go(func() { s.fill(ctx) })
}

// Close ends the filling and removes what is ready.
func (s *Stock) Close() error {
	s.cancel()
	s.filler.Wait()
	return s.stock.Close()
}

// Add makes one namespace more.
func (s *Stock) Add() error { return s.stock.Add() }

// Take binds a namespace to path if one is ready, and has the stock filled again.
func (s *Stock) Take(path string) (bool, error) {
	taken, err := s.stock.Take(path)
	select {
	case s.wake <- struct{}{}:
	default:
	}
	return taken, err
}

// fill keeps the stock full until ctx ends.
func (s *Stock) fill(ctx context.Context) {
	trouble := sbxerr.Code("")
	for {
		select {
		case <-s.wake:
		case <-ctx.Done():
			return
		}
		for s.stock.Len() < s.size && s.awaitRest(ctx) {
			err := s.stock.Add()
			if err == nil {
				err = failpoint.At("stock/filled")
			}
			if err == nil {
				trouble = ""
				continue
			}
			if code := sbxerr.Of(err); code != trouble {
				trouble = code
				s.log.Warn("keep network namespaces ready", "code", code, "err", err)
			}
			pauseFor(ctx, fillRetry)
		}
	}
}

// awaitRest returns when nothing was made for stockRest, or at once when nothing is in stock;
// false when ctx ends.
func (s *Stock) awaitRest(ctx context.Context) bool {
	for rested := time.Duration(0); rested < stockRest && s.stock.Len() > 0; rested += stockLook {
		if !pauseFor(ctx, stockLook) {
			return false
		}
		if s.busy() {
			rested = 0
		}
	}
	return ctx.Err() == nil
}
