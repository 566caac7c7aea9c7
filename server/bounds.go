package server

import (
	"fmt"
	"net/http"
	"sync"

	"connectrpc.com/connect"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime/peer"
)

// bound is an amount that some callers share.
type bound struct {
	name  string
	most  int
	spare int // of most, for callers that hold little
}

// amounts counts what callers have, by the names of their bounds.
type amounts struct {
	little int // a caller that holds no more has the spare part of a bound too

	mu   sync.Mutex
	held map[string]int
}

func newAmounts(little int) *amounts { return &amounts{little: little, held: map[string]int{}} }

// take adds n to all of bounds, if it is within each. The first bound is the caller's own.
func (a *amounts) take(bounds []bound, n int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, b := range bounds {
		most := b.most
		if a.held[bounds[0].name]+n > a.little {
			most -= b.spare
		}
		if a.held[b.name]+n > most {
			return false
		}
	}
	for _, b := range bounds {
		a.held[b.name] += n
	}
	return true
}

// give takes n off again.
func (a *amounts) give(bounds []bound, n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, b := range bounds {
		if a.held[b.name] -= n; a.held[b.name] == 0 {
			delete(a.held, b.name)
		}
	}
}

// boundCalls refuses calls for h of callers that have too many under way: by HTTP/2 no more
// than by HTTP/1.1, where each call has a connection. One that follows something takes some
// 60 KiB. Root may have any number.
func boundCalls(h http.Handler) http.Handler {
	held, writer := newAmounts(fewConnections), connect.NewErrorWriter()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, known := peer.FromContext(r.Context())
		if !known || c.IsHostRoot() {
			h.ServeHTTP(w, r)
			return
		}
		bounds := callsOf(c)
		if !held.take(bounds, 1) {
			_ = writer.Write(w, r, fail(errTooManyCalls())) // who does not read it knows no better
			return
		}
		defer held.give(bounds, 1)
		h.ServeHTTP(w, r)
	})
}

func callsOf(c peer.Caller) []bound {
	own := bound{c.String(), maxPerUser, 0}
	if c.Sandbox != "" {
		own.most = maxNested
	}
	return []bound{own, {"not root", maxNotRoot, spareNotRoot}}
}

func errTooManyCalls() error {
	return sbxerr.WithRemedy(sbxerr.Busy, "server.calls",
		fmt.Errorf("too many calls are under way: a user may have %d, a sandbox %d, and all but root %d", maxPerUser, maxNested, maxNotRoot),
		"end calls that follow something, or retry later")
}
