package peer

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
)

func rule(change func(*Rule)) Rule {
	r := Rule{UIDs: []uint32{1000}, Limits: DefaultLimits(), TTL: DefaultTTL, Quota: DefaultQuota()}
	change(&r)
	return r
}

func policy(t *testing.T, rules ...Rule) Policy {
	t.Helper()
	p, err := NewPolicy(rules)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func grant(t *testing.T, p Policy, c Caller) Grant {
	t.Helper()
	g, err := p.Grant(c)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// refused fails t unless err has the code and the words.
func refused(t *testing.T, what string, err error, code sbxerr.Code, words ...string) {
	t.Helper()
	if sbxerr.Of(err) != code {
		t.Errorf("%s: %v, want %s", what, err, code)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%s: %v lacks %q", what, err, w)
		}
	}
}

func TestGrant(t *testing.T) {
	p := policy(t,
		rule(func(r *Rule) { r.Profiles = []string{"first"} }),
		rule(func(r *Rule) { r.UIDs, r.GIDs = []uint32{1000, 1001}, []uint32{50, 0}; r.Profiles = []string{"second"} }))
	for name, tt := range map[string]struct {
		c       Caller
		profile string // one that is granted; empty: refused
	}{
		"by uid, the first rule":      {User(1000, 50, nil, 1), "first"},
		"by uid, the second rule":     {User(1001, 1, nil, 1), "second"},
		"by its group":                {User(7, 50, nil, 1), "second"},
		"by a supplementary group":    {User(7, 7, []uint32{9, 50}, 1), "second"},
		"not listed":                  {User(7, 7, []uint32{1000, 1001}, 1), ""}, // its groups are numbered like the users
		"root is bound by no group":   {User(0, 0, []uint32{50}, 1), "anything"},
		"the daemon":                  {System, "anything"},
		"nobody made it":              {Caller{UID: 1000}, ""},
		"the zero caller":             {Caller{}, ""},
		"whoever has no id":           {User(65534, 50, nil, 1), ""},
		"whoever has no id at all":    {User(1<<32-1, 50, nil, 1), ""},
		"from inside of a sandbox":    {User(1000, 50, nil, 1).In("s1"), ""},
		"root's, inside of a sandbox": {User(0, 0, nil, 1).In("s1"), ""},
	} {
		g, err := p.Grant(tt.c)
		if tt.profile == "" {
			refused(t, name, err, sbxerr.Peer)
			if g.CheckProfile("strict") == nil {
				t.Errorf("%s: the refused grant grants", name)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := g.CheckProfile(tt.profile); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	listedRoot := policy(t, rule(func(r *Rule) { r.UIDs = []uint32{0} }))
	refused(t, "root where it is listed", grant(t, listedRoot, User(0, 0, nil, 1)).CheckProfile("debug"), sbxerr.Peer)
	if _, err := (Policy{}).Grant(User(0, 0, nil, 1)); err != nil {
		t.Errorf("root without rules: %v", err)
	}
	_, err := Policy{}.Grant(User(1000, 1000, nil, 1))
	refused(t, "anybody without rules", err, sbxerr.Peer, "uid 1000 may not use this daemon")
}

func TestAdmit(t *testing.T) {
	p := policy(t, rule(func(*Rule) {}))
	for name, c := range map[string]Caller{"listed": User(1000, 1, nil, 1), "root": User(0, 0, nil, 1), "nested": User(5, 5, nil, 1).In("s1")} {
		if err := p.Admit(c); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, c := range map[string]Caller{"not listed": User(5, 5, nil, 1), "unknown": {}, "unknown and nested": {Sandbox: "s1"}} {
		refused(t, name, p.Admit(c), sbxerr.Peer)
	}
	if !p.Open() || (Policy{}).Open() {
		t.Error("who is open")
	}
}

func TestNewPolicyRefuses(t *testing.T) {
	for want, change := range map[string]func(*Rule){
		"it is for nobody":             func(r *Rule) { r.UIDs = nil },
		"id 65534":                     func(r *Rule) { r.UIDs = []uint32{65534} },
		"id 4294967295":                func(r *Rule) { r.GIDs = []uint32{1<<32 - 1} },
		`"x" is not a clean absolute`:  func(r *Rule) { r.Workspaces = []string{"x"} },
		`"/x/" is not a clean`:         func(r *Rule) { r.Workspaces = []string{"/x/"} },
		"zero never means unlimited":   func(r *Rule) { r.Limits.PIDs = 0 },
		"a limit or quota is -1: zero": func(r *Rule) { r.Quota.Execs = -1 },
		"a limit or quota is 0: zero":  func(r *Rule) { r.TTL = 0 },
	} {
		_, err := NewPolicy([]Rule{rule(func(*Rule) {}), rule(change)})
		refused(t, want, err, sbxerr.DaemonConf, "peers[1]: ", want)
	}
}

func TestCallerContext(t *testing.T) {
	_, err := Require(t.Context())
	refused(t, "no caller", err, sbxerr.Peer, "does not say who")
	ctx := NewContext(t.Context(), User(5, 6, []uint32{8, 6, 7, 8}, 9))
	c, ok := FromContext(ctx)
	if !ok || c.UID != 5 || c.GID != 6 || len(c.Groups) != 2 || c.Groups[0] != 7 || c.Groups[1] != 8 || c.PID != 9 || c.IsSystem() {
		t.Errorf("got %+v, %v", c, ok)
	}
	if c, err := Require(NewContext(context.Background(), System)); err != nil || !c.IsSystem() {
		t.Errorf("the daemon: %+v, %v", c, err)
	}
	data, err := json.Marshal(User(0, 0, nil, 1))
	if err != nil {
		t.Fatal(err)
	}
	var forged Caller
	if err := json.Unmarshal(data, &forged); err != nil {
		t.Fatal(err)
	}
	_, err = Policy{}.Grant(forged)
	refused(t, "root out of JSON", err, sbxerr.Peer)
	for want, c := range map[string]Caller{"an unknown caller": forged, "the daemon": System, "uid 3": User(3, 3, nil, 1), "sandbox s1": User(3, 3, nil, 1).In("s1")} {
		if c.String() != want {
			t.Errorf("%q, want %q", c, want)
		}
	}
}

func TestSees(t *testing.T) {
	p := policy(t, rule(func(*Rule) {}))
	child, err := p.GrantNested(User(70000, 70000, nil, 1).In("p1"), parent(nil))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		who    string
		g      Grant
		owner  uint32
		parent string
		want   bool
	}{
		{"own", grant(t, p, User(1000, 1, nil, 1)), 1000, "", true},
		{"own child", grant(t, p, User(1000, 1, nil, 1)), 1000, "p1", true},
		{"another's", grant(t, p, User(1000, 1, nil, 1)), 1001, "", false},
		{"root's", grant(t, p, User(1000, 1, nil, 1)), 0, "", false},
		{"root", grant(t, p, User(0, 0, nil, 1)), 1001, "", true},
		{"the daemon", grant(t, p, System), 1001, "p1", true},
		{"a child", child, 1000, "p1", true},
		{"a child of a neighbour", child, 1000, "p2", false},
		{"its owner's", child, 1000, "", false},
		{"by its own uid", child, 70000, "", false},
		{"nobody", Grant{}, 0, "", false},
	} {
		if got := tt.g.Sees(tt.owner, tt.parent); got != tt.want {
			t.Errorf("%s: %v", tt.who, got)
		}
	}
}

func TestChecks(t *testing.T) {
	p := policy(t, rule(func(r *Rule) { r.Profiles = []string{"build"} }), rule(func(r *Rule) { r.UIDs = []uint32{1001}; r.Images = true }))
	g := grant(t, p, User(1000, 1, nil, 1))
	for _, name := range []string{"", "strict", "build"} {
		if err := g.CheckProfile(name); err != nil {
			t.Errorf("profile %q: %v", name, err)
		}
	}
	for _, name := range []string{"debug", "compat", "Strict", "strict "} {
		refused(t, name, g.CheckProfile(name), sbxerr.Peer, "uid 1000", "none of strict, build")
	}
	refused(t, "images", g.CheckImages(), sbxerr.Peer)
	refused(t, "admin", g.CheckAdmin(), sbxerr.Peer)
	if err := errors.Join(g.CheckHost(), g.CheckNested(), grant(t, p, User(1001, 1, nil, 1)).CheckImages()); err != nil {
		t.Error(err)
	}
	for _, c := range []Caller{User(0, 0, nil, 1), System} {
		g := grant(t, p, c)
		if err := errors.Join(g.CheckAdmin(), g.CheckImages(), g.CheckHost(), g.CheckNested(), g.CheckProfile("debug")); err != nil {
			t.Error(err)
		}
	}
	var zero Grant
	for name, err := range map[string]error{
		"admin": zero.CheckAdmin(), "images": zero.CheckImages(), "host": zero.CheckHost(), "nested": zero.CheckNested(), "profile": zero.CheckProfile(""),
		"limits": zero.CheckLimits(Limits{}, new(time.Duration)), "quota": zero.CheckQuota(Standing{}, Usage{}),
	} {
		refused(t, "the zero grant, "+name, err, sbxerr.Peer, "nothing is granted")
	}
}

func TestCheckNetwork(t *testing.T) {
	p := policy(t, rule(func(*Rule) {}), rule(func(r *Rule) { r.UIDs = []uint32{1001}; r.Network = true }))
	bound, free := grant(t, p, User(1000, 1, nil, 1)), grant(t, p, User(1001, 1, nil, 1))
	child, err := p.GrantNested(User(70000, 70000, nil, 1).In("p1"), parent(func(p *Parent) { p.Owner = User(0, 0, nil, 1) }))
	if err != nil {
		t.Fatal(err)
	}
	var zero Grant
	for name, tt := range map[string]struct {
		g    Grant
		mode string
		own  bool
		ok   bool
	}{
		"none":                          {bound, "none", true, true},
		"the profile's":                 {bound, "open", false, true},
		"a mode of one's own":           {bound, "allow", true, false},
		"one's own, as granted":         {free, "allow", true, true},
		"root":                          {grant(t, p, User(0, 0, nil, 1)), "open", true, true},
		"a child, as its parent":        {child, "allow", true, true},
		"a child, whose owner is root":  {child, "open", true, false},
		"a child, by its profile":       {child, "bridge", false, false},
		"a child with no way out":       {child, "none", true, true},
		"nobody":                        {zero, "none", false, false},
		"nobody, by a profile's policy": {zero, "allow", false, false},
	} {
		err := tt.g.CheckNetwork(tt.mode, tt.own)
		if tt.ok != (err == nil) || err != nil && sbxerr.Of(err) != sbxerr.Peer {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, tt := range []struct {
		g            Grant
		asked        string
		destinations bool
		want         string
	}{{bound, "", false, ""}, {bound, "", true, ""}, {child, "", false, "none"}, {child, "", true, "allow"}, {child, "open", true, "open"}, {child, "none", true, "none"}} {
		if got := tt.g.Network(tt.asked, tt.destinations); got != tt.want {
			t.Errorf("%s: the mode %q, with destinations %t, is %q, want %q", tt.g.Caller(), tt.asked, tt.destinations, got, tt.want)
		}
	}
}

func TestCheckPublish(t *testing.T) {
	p := policy(t, rule(func(*Rule) {}), rule(func(r *Rule) { r.UIDs = []uint32{1001}; r.Network = true }))
	child, err := p.GrantNested(User(70000, 70000, nil, 1).In("p1"), parent(nil))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		who       string
		g         Grant
		wide, low bool
		words     []string // of the refusal; none: allowed
	}{
		{"a user", grant(t, p, User(1000, 1, nil, 1)), false, false, nil},
		{"a user, for others", grant(t, p, User(1000, 1, nil, 1)), true, false, []string{"not loopback"}},
		{"a user, low", grant(t, p, User(1000, 1, nil, 1)), false, true, []string{"below 1024"}},
		{"a user, both", grant(t, p, User(1000, 1, nil, 1)), true, true, []string{"not loopback", "below 1024"}},
		{"one with a network", grant(t, p, User(1001, 1, nil, 1)), true, false, nil},
		{"one with a network, low", grant(t, p, User(1001, 1, nil, 1)), true, true, []string{"below 1024"}},
		{"root", grant(t, p, User(0, 0, nil, 1)), true, true, nil},
		{"a child", child, false, false, []string{"a child publishes no port"}},
		{"nobody", Grant{}, false, false, []string{"nothing is granted"}},
	} {
		err := tt.g.CheckPublish(tt.wide, tt.low)
		if len(tt.words) > 0 {
			refused(t, tt.who, err, sbxerr.Peer, tt.words...)
		} else if err != nil {
			t.Errorf("%s: %v", tt.who, err)
		}
	}
}

// TestRemedies: an entry of peers is named only to those whom it can give what they lack.
func TestRemedies(t *testing.T) {
	p := policy(t, rule(func(*Rule) {}))
	user := grant(t, p, User(1000, 1, nil, 1))
	child, err := p.GrantNested(User(70000, 70000, nil, 1).In("p1"), parent(nil))
	if err != nil {
		t.Fatal(err)
	}
	const inside = "outside of the sandbox"
	for _, tt := range []struct {
		err  error
		want string
	}{
		{user.CheckProfile("debug"), "ask the operator"},
		{user.CheckPublish(true, false), "ask the operator"},
		{user.CheckPublish(false, true), "from 1024 on"},
		{user.CheckPublish(true, true), "from 1024 on"},
		{user.CheckAdmin(), "have root do it"},
		{child.CheckNested(), "nested.depth"},
		{child.CheckAdmin(), inside},
		{child.CheckWays(Ways{Links: true}), inside},
		{child.CheckNetwork("open", true), inside},
		{child.CheckPublish(false, false), inside},
		{child.CheckLimits(Limits{MemoryBytes: 1 << 40}, nil), inside},
		{child.CheckQuota(below(Usage{Sandboxes: 8}), Usage{Sandboxes: 1}), "or remove another one"},
		{child.CheckQuota(Standing{Owner: Usage{Sandboxes: 16}, Below: below(Usage{}).Below}, Usage{Sandboxes: 1}), "retry later"},
	} {
		if got := sbxerr.RemedyOf(tt.err); tt.err == nil || !strings.Contains(got, tt.want) {
			t.Errorf("%v: remedy %q, want %q", tt.err, got, tt.want)
		}
	}
	ways := Ways{Links: true, Resolvers: true, ECH: true}
	refused(t, "ways around a parent's policy", child.CheckWays(ways), sbxerr.Peer, "no links", "resolvers of its parent", "--allow-ech")
	refused(t, "nobody", Grant{}.CheckWays(Ways{}), sbxerr.Peer, "nothing is granted")
	if err := errors.Join(child.CheckWays(Ways{}), user.CheckWays(ways)); err != nil {
		t.Error(err)
	}
}
