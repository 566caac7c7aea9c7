package peer

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
)

func TestCheckLimits(t *testing.T) {
	p := policy(t, rule(func(*Rule) {}))
	g, ok := grant(t, p, User(1000, 1, nil, 1)), time.Hour
	if err := g.CheckLimits(DefaultLimits(), &ok); err != nil {
		t.Errorf("the ceilings themselves: %v", err)
	}
	long := DefaultTTL + 1
	above := Limits{MemoryBytes: 3 << 30, MilliCPU: 2500, PIDs: 1025, TmpfsBytes: 2<<30 + 1, OpenFiles: 4097}
	refused(t, "above", g.CheckLimits(above, &long), sbxerr.Peer, "memory 3072M is above the ceiling 2048M", "cpus 2.500 is above the ceiling 2.000",
		"pids 1025", "tmpfs 2147483649", "ttl 24h0m0.000000001s")
	never := time.Duration(0)
	for _, ttl := range []*time.Duration{nil, &never} {
		refused(t, "without end", g.CheckLimits(DefaultLimits(), ttl), sbxerr.Peer, "without end")
	}
	if ttl := g.TTL(&never); ttl != &never { // or nobody would hear that it cannot be
		t.Errorf("the time to live where never is asked: %v", ttl)
	}
	if ttl := g.TTL(nil); ttl == nil || *ttl != DefaultTTL {
		t.Errorf("the time to live where none is asked: %v", ttl)
	}
	if ttl := g.TTL(&ok); ttl != &ok {
		t.Errorf("the time to live that is asked: %v", ttl)
	}
	free := grant(t, p, User(0, 0, nil, 1))
	if err := free.CheckLimits(Limits{MemoryBytes: math.MaxInt64, MilliCPU: math.MaxInt64, PIDs: math.MaxInt64, TmpfsBytes: math.MaxInt64, OpenFiles: math.MaxInt64, CPUShares: math.MaxInt64}, nil); err != nil || free.TTL(nil) != nil {
		t.Errorf("root: %v, %v", err, free.TTL(nil))
	}
}

func TestCheckQuota(t *testing.T) {
	p := policy(t, rule(func(r *Rule) {
		r.Quota = Usage{Sandboxes: 2, MemoryBytes: 4 << 20, MilliCPU: 2000, Execs: 3, ImageBytes: 1, PIDs: 300, DiskBytes: 4 << 30}
	}))
	g := grant(t, p, User(1000, 1, nil, 1))
	one := Usage{Sandboxes: 1, MemoryBytes: 2 << 20, MilliCPU: 1000}
	for name, tt := range map[string]struct {
		now, asked Usage
		code       sbxerr.Code // empty: granted
		words      []string
	}{
		"the last":         {one, one, "", nil},
		"one too many":     {Usage{Sandboxes: 2}, Usage{Sandboxes: 1}, sbxerr.Busy, []string{"sandboxes 1", "the 0 left of the quota of uid 1000: 2 of 2"}},
		"memory":           {Usage{MemoryBytes: 3 << 20}, one, sbxerr.Busy, []string{"memory 2M", "3M of 4M"}},
		"cpus":             {Usage{MilliCPU: 1500}, one, sbxerr.Busy, []string{"cpus 1.000"}},
		"execs":            {Usage{Execs: 3}, Usage{Execs: 1}, sbxerr.Busy, []string{"execs 1"}},
		"processes":        {Usage{PIDs: 200}, Usage{PIDs: 101}, sbxerr.Busy, []string{"pids 101", "200 of 300"}},
		"disks":            {Usage{DiskBytes: 3 << 30}, Usage{DiskBytes: 2 << 30}, sbxerr.Busy, []string{"disk 2048M is above the 1024M left of the quota of uid 1000: 3072M of 4096M are in use, with the volumes"}},
		"never":            {Usage{}, Usage{MemoryBytes: 5 << 20}, sbxerr.Peer, []string{"memory 5M alone is above the quota of uid 1000, 4M"}},
		"not asked for":    {Usage{Sandboxes: 9, MemoryBytes: 9 << 30}, Usage{Execs: 1}, "", nil},
		"overflow":         {Usage{MemoryBytes: math.MaxInt64}, Usage{MemoryBytes: 1}, sbxerr.Busy, nil},
		"overflow of both": {Usage{MemoryBytes: math.MaxInt64}, Usage{MemoryBytes: math.MaxInt64}, sbxerr.Peer, nil},
		"negative":         {Usage{}, Usage{MemoryBytes: -1}, sbxerr.Peer, []string{"is no usage"}},
		"negative now":     {Usage{MemoryBytes: -1 << 40}, one, sbxerr.Peer, []string{"is no usage"}},
	} {
		err := g.CheckQuota(Standing{Owner: tt.now}, tt.asked)
		if tt.code == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		refused(t, name, err, tt.code, tt.words...)
	}
	ended := Standing{Owner: Usage{Sandboxes: 1, MemoryBytes: 3 << 20}, OwnerEnded: 7}
	if err := g.CheckQuota(ended, Usage{Sandboxes: 1}); err != nil {
		t.Errorf("beside those that have ended: %v", err)
	}
	ended.OwnerEnded++
	err := g.CheckQuota(ended, Usage{Sandboxes: 1})
	refused(t, "too many that have ended", err, sbxerr.Busy, "8 sandboxes have ended and were not removed, the most of the quota of uid 1000: 4 for each of 2")
	if remedy := sbxerr.RemedyOf(err); !strings.Contains(remedy, "caisson rm") {
		t.Errorf("the remedy is %q", remedy)
	}
	err = g.CheckQuota(ended, Usage{MemoryBytes: 2 << 20})
	refused(t, "what it is not in the way of", err, sbxerr.Busy, "memory 2M")
	if remedy := sbxerr.RemedyOf(err); strings.Contains(remedy, "caisson rm") {
		t.Errorf("the remedy is %q", remedy)
	}
	big := Usage{math.MaxInt64, math.MaxInt64, math.MaxInt64, math.MaxInt64, math.MaxInt64, math.MaxInt64, math.MaxInt64}
	if err := grant(t, p, User(0, 0, nil, 1)).CheckQuota(Standing{}, big); err != nil {
		t.Errorf("root: %v", err)
	}
}

// parent is a sandbox of uid 1000.
func parent(change func(*Parent)) Parent {
	p := Parent{ID: "p1", Owner: User(1000, 1, nil, 1), Profile: "build", Limits: Limits{MemoryBytes: 1 << 30, MilliCPU: 1000, PIDs: 100, TmpfsBytes: 1 << 20, OpenFiles: 1024, CPUShares: 1024}}
	p.Budget = DefaultBudget(p.Limits)
	if change != nil {
		change(&p)
	}
	return p
}

func TestGrantNested(t *testing.T) {
	p := policy(t, rule(func(r *Rule) { r.Profiles = []string{"build", "debug"}; r.Images = true }))
	inside := User(70000, 70000, nil, 1).In("p1")
	left := time.Minute
	g, err := p.GrantNested(inside, parent(func(p *Parent) { p.Remaining = &left }))
	if err != nil {
		t.Fatal(err)
	}
	if g.Parent() != "p1" || g.Owner().UID != 1000 || g.Caller().Sandbox != "p1" {
		t.Errorf("grant %+v", g)
	}
	own := Limits{MemoryBytes: 1 << 30, MilliCPU: 1000, PIDs: 100, TmpfsBytes: 1 << 20, OpenFiles: 1024, CPUShares: 1024}
	if err := g.CheckLimits(own, g.TTL(nil)); err != nil {
		t.Error(err)
	}
	refused(t, "more than its own", g.CheckLimits(Limits{MemoryBytes: 1<<30 + 1, MilliCPU: 1000, PIDs: 100, TmpfsBytes: 1 << 20, OpenFiles: 1024, CPUShares: 1024}, &left), sbxerr.Peer, "sandbox p1: memory")
	if read, write := g.IORates(); read != 0 || write != 0 {
		t.Errorf("ceilings of I/O where the parent has no rate: %d, %d", read, write)
	}
	slow, err := p.GrantNested(inside, parent(func(p *Parent) { p.Limits.IOReadBPS, p.Limits.IOWriteBPS = 2<<20, 1<<20 }))
	if err != nil {
		t.Fatal(err)
	}
	rated := own
	rated.IOReadBPS, rated.IOWriteBPS = 2<<20, 1<<20
	if err := slow.CheckLimits(rated, &left); err != nil {
		t.Errorf("the parent's own rates: %v", err)
	}
	rated.IOWriteBPS++
	refused(t, "faster than itself", slow.CheckLimits(rated, &left), sbxerr.Peer, "io write bps 1048577 is above the ceiling 1M")
	refused(t, "unbounded I/O", slow.CheckLimits(own, &left), sbxerr.Peer, "no io read bps is above the ceiling 2M")
	long := left + 1
	refused(t, "longer than itself", g.CheckLimits(own, &long), sbxerr.Peer, "ttl")
	for name, want := range map[string]bool{"strict": true, "build": true, "debug": false} {
		if err := g.CheckProfile(name); (err == nil) != want {
			t.Errorf("profile %s: %v", name, err)
		}
	}
	_, err = g.CheckWorkspace(t.Context(), "/tmp/x", false)
	refused(t, "workspace", err, sbxerr.Peer, "no workspace of which a child could get")
	for name, err := range map[string]error{"images": g.CheckImages(), "admin": g.CheckAdmin(), "host": g.CheckHost(), "nested": g.CheckNested()} {
		refused(t, name, err, sbxerr.Peer)
	}

	half := Usage{Sandboxes: 1, MemoryBytes: 1 << 29}
	if err := g.CheckQuota(below(half), half); err != nil {
		t.Errorf("the whole budget: %v", err)
	}
	refused(t, "the budget", g.CheckQuota(below(Usage{MemoryBytes: 1<<29 + 1}), half), sbxerr.Busy, "the budget of sandbox p1")
	refused(t, "the owner's quota", g.CheckQuota(Standing{Owner: Usage{Sandboxes: 16}, Below: below(Usage{}).Below}, half), sbxerr.Busy, "the quota of uid 1000")
}

// What a child is refused for is told without what nobody asked for.
func TestNestedRefusalTexts(t *testing.T) {
	left := 5*time.Hour - 5338*time.Nanosecond
	g, err := policy(t, rule(func(*Rule) {})).GrantNested(User(70000, 70000, nil, 1).In("p1"), parent(func(p *Parent) {
		p.Profile, p.Remaining, p.Owner = strict, &left, User(0, 0, nil, 1)
	}))
	if err != nil {
		t.Fatal(err)
	}
	asked := 6 * time.Hour
	for says, err := range map[string]error{
		`profile "debug" is none of strict`:                                            g.CheckProfile("debug"),
		"ttl 6h0m0s is above the ceiling 4h59m59.999s":                                 g.CheckLimits(Limits{}, &asked),
		"a sandbox without end is above the ceiling of its time to live, 4h59m59.999s": g.CheckLimits(Limits{}, nil),
	} {
		if err == nil || !strings.HasSuffix(err.Error(), says) {
			t.Errorf("%v does not end with %q", err, says)
		}
	}
}

func TestGrantNestedRefuses(t *testing.T) {
	p := policy(t, rule(func(*Rule) {}))
	inside, over := User(70000, 70000, nil, 1).In("p1"), -time.Second
	for name, tt := range map[string]struct {
		c      Caller
		change func(*Parent)
	}{
		"another sandbox":     {User(1000, 1, nil, 1).In("p2"), nil},
		"no sandbox":          {User(1000, 1, nil, 1), nil},
		"the daemon":          {System, nil},
		"made up":             {Caller{Sandbox: "p1"}, nil},
		"no owner":            {inside, func(p *Parent) { p.Owner = Caller{} }},
		"not listed any more": {inside, func(p *Parent) { p.Owner = User(1001, 1, nil, 1) }},
		"a child itself":      {inside, func(p *Parent) { p.Owner = User(1000, 1, nil, 1).In("p0") }},
		"at its end":          {inside, func(p *Parent) { p.Remaining = &over }},
	} {
		g, err := p.GrantNested(tt.c, parent(tt.change))
		refused(t, name, err, sbxerr.Peer)
		if g.Sees(1000, "p1") {
			t.Errorf("%s: the refused grant sees", name)
		}
	}
	g, err := p.GrantNested(inside, parent(func(p *Parent) { p.Budget = Usage{}; p.Owner = User(0, 0, nil, 1) }))
	if err != nil {
		t.Fatal(err)
	}
	refused(t, "no budget", g.CheckQuota(below(Usage{}), Usage{Sandboxes: 1}), sbxerr.Peer, "budget")
	if err := g.CheckProfile("build"); err != nil {
		t.Errorf("the profile of root's sandbox: %v", err)
	}
	refused(t, "any other profile", g.CheckProfile("debug"), sbxerr.Peer)
}

// TestRoom: the least of the host, the quota and the budgets above, in all and of what is left.
func TestRoom(t *testing.T) {
	host := Resources{MilliCPU: 8000, MemoryBytes: 16 << 30, Sandboxes: 100, DiskBytes: 50}
	now := Standing{All: Usage{Sandboxes: 99, MemoryBytes: 20 << 30, MilliCPU: 1000}, Owner: Usage{Sandboxes: 1, MemoryBytes: 1 << 30, DiskBytes: 10}}
	p := policy(t, rule(func(r *Rule) {
		r.Quota = Usage{Sandboxes: 4, MemoryBytes: 4 << 30, MilliCPU: 9000, Execs: 3, ImageBytes: 1, PIDs: 300, DiskBytes: 40}
	}))
	all, left := grant(t, p, User(1000, 1, nil, 1)).Room(now, host)
	if want := (Resources{8000, 4 << 30, 4, 40}); all != want {
		t.Errorf("in all %+v, want %+v", all, want)
	}
	if want := (Resources{7000, 0, 1, 30}); left != want { // the memory of the host is promised
		t.Errorf("left %+v, want %+v", left, want)
	}
	if all, left := grant(t, p, User(0, 0, nil, 1)).Room(now, host); all != host || left.Sandboxes != 1 {
		t.Errorf("root: %+v, %+v left", all, left)
	}
}
