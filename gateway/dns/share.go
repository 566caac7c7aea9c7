package dns

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/limits"
	"github.com/caisson-run/caisson/gateway/policy"
)

// maxLookups is how many lookups a sandbox has at once, for its questions and its
// connections together. What else needs a name waits.
const maxLookups = 32

// Share is the Resolver of one sandbox: what is kept is everybody's, but no sandbox has
// all lookups that there may be. A name that there is no time or place to ask for is
// refused with code sbxerr.EgressBusy.
//
// Callers of one Share who want the same name have one lookup, and so one turn: others
// have theirs, however many ask for a name that nobody answers for. It ends with the
// caller who asked, as when no rule allows the name any more; then the next one asks.
type Share struct {
	upstream *Upstream
	turns    chan struct{} // one for each lookup
	part     *limits.Share // a place for the sockets of each, of which there are two

	mu      sync.Mutex
	flights map[policy.Name]*flight
}

// flight is a lookup under way, or one that waits for its turn.
type flight struct {
	done  chan struct{} // closed when the rest is known
	found found
	left  bool // its caller did not wait for it: it may be the half of an answer
}

// Share makes the Resolver of one more sandbox.
func (u *Upstream) Share() *Share {
	return &Share{upstream: u, turns: make(chan struct{}, maxLookups), part: limits.Lookups.Share(), flights: map[policy.Name]*flight{}}
}

// Resolve returns what name leads to, addresses of IPv4 first.
func (s *Share) Resolve(ctx context.Context, name policy.Name) (policy.Resolution, error) {
	found, ok := s.upstream.cache.get(name)
	if !ok {
		found = s.find(ctx, name)
	}
	return policy.Resolution{Addresses: slices.Clone(found.addresses), Aliases: slices.Clone(found.aliases)}, found.err
}

// find asks for name, or waits for who does.
func (s *Share) find(caller context.Context, name policy.Name) found {
	ctx, cancel := context.WithTimeoutCause(caller, resolveTimeout, errors.New("the upstream resolvers took too long"))
	defer cancel()
	for {
		f, mine := s.join(name)
		if mine {
			f.found = s.ask(ctx, caller, name)
			f.left = caller.Err() != nil
			s.land(name, f)
			return f.found
		}
		select {
		case <-f.done:
			if !f.left {
				return f.found
			}
		case <-ctx.Done():
			return found{err: failure(name, context.Cause(ctx))}
		}
	}
}

// join returns the lookup of name, and whether it is the caller's to do.
func (s *Share) join(name policy.Name) (f *flight, mine bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.flights[name]; f != nil {
		return f, false
	}
	f = &flight{done: make(chan struct{})}
	s.flights[name] = f
	return f, true
}

// land makes f known to all who wait for it.
func (s *Share) land(name policy.Name, f *flight) {
	s.mu.Lock()
	delete(s.flights, name)
	s.mu.Unlock()
	close(f.done)
}

// ask asks for name in its turn, unless it is known by then.
func (s *Share) ask(ctx, caller context.Context, name policy.Name) found {
	if err := s.enter(ctx, name); err != nil {
		return found{err: err}
	}
	var sockets sync.WaitGroup
	defer func() { go s.leave(&sockets) }() // who asked does not wait for that
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

// enter waits for a turn, and takes a place.
func (s *Share) enter(ctx context.Context, name policy.Name) error {
	if err := s.turn(ctx, name); err != nil {
		return err
	}
	if err := s.part.Acquire(); err != nil {
		<-s.turns
		return busy(name, err)
	}
	return nil
}

// turn waits for a turn for as long as there is time left then to ask a resolver.
func (s *Share) turn(ctx context.Context, name policy.Name) error {
	select {
	case s.turns <- struct{}{}:
		return nil
	default:
	}
	deadline, _ := ctx.Deadline()
	soon, cancel := context.WithDeadline(ctx, deadline.Add(-tryTimeout))
	defer cancel()
	select {
	case s.turns <- struct{}{}:
		return nil
	case <-soon.Done():
		if errors.Is(ctx.Err(), context.Canceled) {
			return failure(name, context.Cause(ctx))
		}
		return busy(name, errNoTurn)
	}
}

// leave gives the turn and the place back when sockets are closed.
func (s *Share) leave(sockets *sync.WaitGroup) {
	sockets.Wait()
	s.part.Release()
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
