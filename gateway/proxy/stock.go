package proxy

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"

	"github.com/caisson-run/caisson/gateway/attempt"
)

// Stock holds TCP sockets that were opened in a sandbox's namespace and are not
// connected: each can become one connection inside. This process cannot make them.
type Stock struct {
	need    func()
	sockets chan *os.File
	asked   atomic.Bool
	end     sync.Once
	ended   chan struct{} // closed by Close
}

// NewStock is empty. It calls need, which must not block, when sockets are to be put
// in, and then not again before some were, or somebody waited for one in vain.
func NewStock(need func()) *Stock {
	return &Stock{need: need, sockets: make(chan *os.File, 2*attempt.Batch), ended: make(chan struct{})}
}

// Put takes sockets over. What there is no room for is closed.
func (s *Stock) Put(sockets []*os.File) error {
	var errs []error
	for _, f := range sockets {
		select {
		case s.sockets <- f:
		default:
			errs = append(errs, f.Close())
		}
	}
	s.asked.Store(false)
	if s.over() {
		errs = append(errs, s.Close())
	}
	s.refill()
	return errors.Join(errs...)
}

// take returns a socket, and waits for one no longer than ctx.
func (s *Stock) take(ctx context.Context) (*os.File, error) {
	s.refill()
	select {
	case f := <-s.sockets:
		s.refill()
		return f, nil
	case <-s.ended:
		return nil, errors.New("the sandbox ended")
	case <-ctx.Done():
		s.asked.Store(false) // whoever was asked did not do it: ask again next time
		return nil, errors.New("there is no socket in the sandbox's namespace")
	}
}

func (s *Stock) refill() {
	if len(s.sockets) <= attempt.Batch/2 && !s.over() && s.asked.CompareAndSwap(false, true) {
		s.need()
	}
}

func (s *Stock) over() bool {
	select {
	case <-s.ended:
		return true
	default:
		return false
	}
}

// Close closes all sockets, and those that still come.
func (s *Stock) Close() error {
	s.end.Do(func() { close(s.ended) })
	var errs []error
	for {
		select {
		case f := <-s.sockets:
			errs = append(errs, f.Close())
		default:
			return errors.Join(errs...)
		}
	}
}
