package dns

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/caisson-run/caisson/gateway/hall"
	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/sbxerr"
)

// maxLookups is how many lookups a sandbox has at once, for its questions and its
// connections together. What else needs a name waits.
const maxLookups = 32

// Share is the Resolver of one sandbox: what is kept is everybody's, but no sandbox has
// all lookups that there may be. A name that there is no time or place to ask for is
// refused with code sbxerr.EgressBusy.
//
// Callers who want the same name share what is kept and nothing else: a question ends
// with the caller who asked it, as when no rule allows the name any more.
type Share struct {
	upstream *Upstream
	turns    chan struct{} // one for each lookup
	part     *hall.Room    // a place for the sockets of each, of which there are two
}

// Share makes the Resolver of one more sandbox.
func (u *Upstream) Share() *Share {
	return &Share{upstream: u, turns: make(chan struct{}, maxLookups), part: hall.Lookups.Room()}
}

// Resolve returns the addresses of name, those of IPv4 first.
func (s *Share) Resolve(ctx context.Context, name policy.Name) ([]netip.Addr, error) {
	found, ok := s.upstream.cache.get(name)
	if !ok {
		found = s.ask(ctx, name)
	}
	return slices.Clone(found.addresses), found.err
}

// ask asks for name in its turn, unless it is known by then.
func (s *Share) ask(caller context.Context, name policy.Name) found {
	ctx, cancel := context.WithTimeoutCause(caller, resolveTimeout, errors.New("the upstream resolvers took too long"))
	defer cancel()
	if err := s.enter(ctx, name); err != nil {
		return found{err: err}
	}
	var sockets sync.WaitGroup
	defer func() { go s.leave(&sockets) }() // not before who is next finds what is kept
	if found, ok := s.upstream.cache.get(name); ok {
		return found
	}
	found := s.upstream.resolve(ctx, name, &sockets)
	found.err = failure(name, found.err)
	if caller.Err() == nil { // else it may be the half of an answer, and others have the same cache
		s.upstream.cache.put(name, found)
	}
	return found
}

// enter waits for a turn no longer than ctx, and takes a place.
func (s *Share) enter(ctx context.Context, name policy.Name) error {
	select {
	case s.turns <- struct{}{}:
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.Canceled) {
			return failure(name, context.Cause(ctx))
		}
		return busy(name, errNoTurn)
	}
	if err := s.part.Enter(); err != nil {
		<-s.turns
		return busy(name, err)
	}
	return nil
}

// leave gives the turn and the place back when sockets are closed.
func (s *Share) leave(sockets *sync.WaitGroup) {
	sockets.Wait()
	s.part.Leave()
	<-s.turns
}

var errNoTurn = fmt.Errorf("%d other lookups of the sandbox have no answer yet", maxLookups)

func busy(name policy.Name, err error) error {
	return sbxerr.Wrap(sbxerr.EgressBusy, "dns.resolve", fmt.Errorf("resolve %s: %w; ask again later", name, err))
}

func failure(name policy.Name, err error) error {
	if err == nil {
		return nil
	}
	return sbxerr.Wrap(sbxerr.EgressResolve, "dns.resolve", fmt.Errorf("resolve %s: %w", name, err))
}
