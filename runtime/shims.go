package runtime

import (
	"strconv"
	"sync"
)

// shims spreads sandboxes over groups that share a process of the engine each:
// a shim costs as much memory as several sandboxes, and its end is theirs.
type shims struct {
	size int // sandboxes of a group; up to 1 is no sharing

	mu     sync.Mutex
	next   int
	open   string         // the group that still has room
	room   int            // in it
	groups map[string]int // members of each group that stay
	of     map[string]string
	prefix string
}

func newShims(size int) *shims {
	return &shims{size: size, groups: map[string]int{}, of: map[string]string{}, prefix: newID()}
}

// take returns the group that the sandbox id joins; empty is one of its own. A
// group is used up as it is filled: its members end at about the same time, and
// then its process does.
func (g *shims) take(id string) string {
	if g.size <= 1 {
		return ""
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.room == 0 || g.groups[g.open] == 0 {
		g.next++
		g.open, g.room = g.prefix+"-"+strconv.Itoa(g.next), g.size
	}
	g.room--
	g.groups[g.open]++
	g.of[id] = g.open
	return g.open
}

// drop notes that the sandbox id is about to go. Who came into a group that only
// such are in would wait until they are gone, and for a new process as well.
func (g *shims) drop(id string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	group, ok := g.of[id]
	if !ok {
		return
	}
	delete(g.of, id)
	if g.groups[group]--; g.groups[group] == 0 {
		delete(g.groups, group)
	}
}
