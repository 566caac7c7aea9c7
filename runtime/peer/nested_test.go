package peer

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// below is a standing in which the sandboxes above a caller have so much below them, the
// nearest first.
func below(each ...Usage) (st Standing) {
	for _, u := range each {
		st.Below = append(st.Below, Descendants{Usage: u})
	}
	return st
}

// A child is bounded by every sandbox above it, and not only by its parent.
func TestGrantNestedChain(t *testing.T) {
	p := policy(t, rule(func(r *Rule) { r.Profiles = []string{"build"} }))
	soon, later := time.Minute, time.Hour
	// The parent was made while the sandbox above it had more.
	top := parent(func(p *Parent) {
		p.ID, p.Remaining, p.Depth = "p0", &soon, 2
		p.Limits.MemoryBytes, p.Limits.IOReadBPS = 1<<29, 1<<20
		p.Budget.MemoryBytes, p.Budget.Sandboxes = 1<<28, 2
	})
	near := parent(func(p *Parent) { p.Remaining, p.Depth, p.Limits.IOWriteBPS = &later, 1, 2<<20 })
	inside := User(70000, 70000, nil, 1).In("p1")
	g, err := p.GrantNested(inside, near, top)
	if err != nil {
		t.Fatal(err)
	}
	if got := g.Above(); !slices.Equal(got, []string{"p1", "p0"}) {
		t.Errorf("above are %q", got)
	}
	if !g.Sees(1000, "p1") || g.Sees(1000, "p0") || g.Sees(1000, "") {
		t.Error("it sees other than its own children")
	}
	if ttl := g.TTL(nil); *ttl != soon {
		t.Errorf("it lives for %s", ttl)
	}
	own := Limits{MemoryBytes: 1 << 29, MilliCPU: 1000, PIDs: 100, TmpfsBytes: 1 << 20, OpenFiles: 1024, CPUShares: 1024, IOReadBPS: 1 << 20, IOWriteBPS: 2 << 20}
	if err := g.CheckLimits(own, &soon); err != nil {
		t.Error(err)
	}
	more := own
	more.MemoryBytes++
	refused(t, "more than the top", g.CheckLimits(more, &soon), sbxerr.Peer, "memory")
	more = own
	more.IOReadBPS++
	refused(t, "a rate above that of the top", g.CheckLimits(more, &soon), sbxerr.Peer, "io read bps")
	refused(t, "longer than the top", g.CheckLimits(own, &later), sbxerr.Peer, "ttl")

	half := Usage{Sandboxes: 1, MemoryBytes: 1 << 27}
	if err := g.CheckQuota(below(Usage{}, half), half); err != nil {
		t.Errorf("the whole budget: %v", err)
	}
	err = g.CheckQuota(below(Usage{}, Usage{MemoryBytes: 1<<27 + 1}), half)
	refused(t, "the budget of the top", err, sbxerr.Busy, "the budget of a sandbox above sandbox p1")
	if strings.Contains(err.Error(), "p0") {
		t.Errorf("it is told of a sandbox that it does not see: %v", err)
	}
	refused(t, "more than the top's whole budget", g.CheckQuota(below(Usage{}, Usage{}), Usage{MemoryBytes: 1<<28 + 1}), sbxerr.Peer)
	refused(t, "a standing that is not of this chain", g.CheckQuota(below(Usage{}), half), sbxerr.Internal)

	over := -time.Second
	top.Remaining = &over
	_, err = p.GrantNested(inside, near, top)
	refused(t, "the end of the top", err, sbxerr.Peer, "at its end")
}

// A socket comes with a generation that may follow.
func TestNestedDepth(t *testing.T) {
	p := policy(t, rule(func(*Rule) {}))
	if got := grant(t, p, User(1000, 1, nil, 1)).Depth(3); got != 3 {
		t.Errorf("a sandbox of a user has depth %d", got)
	}
	for _, tt := range []struct{ parent, profile, want int }{{3, 4, 2}, {3, 1, 1}, {2, 4, 1}} {
		g, err := p.GrantNested(User(70000, 70000, nil, 1).In("p1"), parent(func(p *Parent) { p.Depth = tt.parent }))
		if err != nil {
			t.Fatal(err)
		}
		if err := g.CheckNested(); err != nil || g.Depth(tt.profile) != tt.want {
			t.Errorf("%+v: depth %d, %v", tt, g.Depth(tt.profile), err)
		}
	}
	for _, depth := range []int{0, 1} { // 0 is of an older daemon
		g, err := p.GrantNested(User(70000, 70000, nil, 1).In("p1"), parent(func(p *Parent) { p.Depth = depth }))
		if err != nil {
			t.Fatal(err)
		}
		err = g.CheckNested()
		refused(t, "one generation too many", err, sbxerr.Peer, "no socket")
		if !strings.Contains(sbxerr.RemedyOf(err), "nested.depth") {
			t.Errorf("the remedy is %q", sbxerr.RemedyOf(err))
		}
	}
}
