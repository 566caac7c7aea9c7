package proxy

import (
	"net/url"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/caisson-run/caisson/gateway/ratelog"
	"github.com/caisson-run/caisson/gateway/usage"
)

// Of the requests by plain HTTP past these, one record counts the others.
const (
	recordsPerSecond = 100
	recordBurst      = 1000
)

// seen tells of requests by plain HTTP. Nobody reads their answers.
type seen struct {
	sandbox string
	rate    *rate.Limiter
	spare   ratelog.Log[usage.Use]
}

func newSeen(c Config) *seen {
	if c.Requests == nil {
		return nil
	}
	s := &seen{sandbox: c.Sandbox, rate: rate.NewLimiter(recordsPerSecond, recordBurst)}
	s.spare.Record = func(u usage.Use, skipped uint64) {
		u.Skipped = skipped
		c.Requests(u)
	}
	return s
}

// note tells of a request of f that its server gets.
func (s *seen) note(f *flow, h head) {
	if s == nil || f.name == "" {
		return
	}
	u := usage.Use{Sandbox: s.sandbox, Name: f.name, Rule: f.attempt.Rule, Method: h.method, Path: h.path(), Begun: time.Now()}
	if s.rate.Allow() {
		s.spare.Add(u)
	} else {
		s.spare.Suppress(u)
	}
}

func (s *seen) flush() {
	if s != nil {
		s.spare.Flush()
	}
}

// path is that of the target, decoded and without the query.
func (h head) path() string {
	path, _, _ := strings.Cut(h.target, "?")
	if !strings.HasPrefix(path, "/") { // the absolute form
		_, rest, _ := strings.Cut(path, "://")
		_, below, _ := strings.Cut(rest, "/")
		path = "/" + below
	}
	if plain, err := url.PathUnescape(path); err == nil {
		return plain
	}
	return path
}
