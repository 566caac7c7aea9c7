package dns

import (
	"errors"
	"sync"
	"time"

	"github.com/caisson-run/caisson/gateway/policy"
)

// The bounds of what is kept.
const (
	maxCached   = 4096
	leastTTL    = time.Second
	mostTTL     = 5 * time.Minute
	negativeTTL = 5 * time.Second
)

// cache keeps answers. What nobody could answer is not kept.
type cache struct {
	now func() time.Time

	mu      sync.Mutex
	entries map[policy.Name]entry
}

type entry struct {
	found
	expires time.Time
}

func newCache(now func() time.Time) *cache {
	return &cache{now: now, entries: map[policy.Name]entry{}}
}

func (c *cache) get(name policy.Name) (found, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.entries[name]
	return e.found, ok && c.now().Before(e.expires)
}

func (c *cache) put(name policy.Name, f found) {
	ttl := min(max(f.ttl, leastTTL), mostTTL)
	switch {
	case errors.Is(f.err, ErrNoName), errors.Is(f.err, ErrNoAddress):
		ttl = negativeTTL
	case f.err != nil:
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.entries[name]; !known && len(c.entries) >= maxCached {
		c.makeRoom()
	}
	c.entries[name] = entry{f, c.now().Add(ttl)}
}

// makeRoom drops what has expired, and if nothing has, any entry.
func (c *cache) makeRoom() {
	now := c.now()
	for name, e := range c.entries {
		if !now.Before(e.expires) {
			delete(c.entries, name)
		}
	}
	for name := range c.entries {
		if len(c.entries) < maxCached {
			return
		}
		delete(c.entries, name)
	}
}
