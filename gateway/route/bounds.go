package route

import (
	"net/http"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/route/tokens"
)

// enter takes what r needs of the bounds of the sandbox, until leave. A connection of HTTP/2 has
// many requests, so that a bound of connections is none of what they hold.
func (s *Server) enter(l *lane, r *http.Request) (leave func(), err error) {
	const op = "route.enter"
	if !s.places.TryAcquire(1) {
		return nil, sbxerr.New(sbxerr.EgressBusy, op, "more than %d requests are under way; try again later", s.config.Limits.AtOnce)
	}
	held := l.holds(r)
	if !s.held.TryAcquire(held) {
		s.places.Release(1)
		return nil, sbxerr.New(sbxerr.EgressBusy, op, "the bodies of requests that are under way are too long together; try again later")
	}
	return func() {
		s.held.Release(held)
		s.places.Release(1)
	}, nil
}

// holds is how much of the body of r may be read before it is sent on. One whose length is not
// told may be as long as any.
func (l *lane) holds(r *http.Request) int64 {
	if !l.route.Ask && l.route.Git == nil && len(l.route.Models) == 0 && l.route.Turns() == 1 {
		return 0
	}
	if r.ContentLength < 0 || r.ContentLength > tokens.MaxAsked {
		return tokens.MaxAsked
	}
	return r.ContentLength
}
