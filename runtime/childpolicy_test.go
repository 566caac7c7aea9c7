package runtime

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/api/sbxerr/errtest"
	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/netns"
	"github.com/caisson-run/caisson/runtime/idblock"
	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/runtime/plan"
)

// family is a sandbox that may reach a.example, b.example and c.example, and may have
// children and grandchildren.
type family struct {
	*fixture
	gateway *fakeEgress
	root    context.Context // of a caller outside
	outer   context.Context // of a caller inside of the sandbox
}

func newFamily(t *testing.T) family {
	t.Helper()
	f, gateway := newPublishing(t)
	blocks, err := idblock.NewAllocator(f.paths.ids(), idblock.Range{Base: 1879048192, Blocks: 16})
	if err != nil {
		t.Fatal(err)
	}
	f.blocks = blocks
	f.deep(2)
	p := f.opts.Profiles[plan.DefaultProfile]
	p.Network, p.Limits.MemoryBytes, p.Limits.MilliCPU = plan.Network{Allow: []string{"profile.example"}}, 32<<20, 50
	f.opts.Profiles[plan.DefaultProfile] = p
	fam := family{f, gateway, callerContext(t), nil}
	fam.outer = fam.member(t, fam.root, plan.CreateRequest{Name: "outer", Allow: []string{"a.example", "b.example", "c.example"}})
	return fam
}

// member makes a sandbox that may make others, and returns the context of a caller inside.
func (f family) member(t *testing.T, ctx context.Context, r plan.CreateRequest) context.Context {
	t.Helper()
	r.Nested = &plan.NestedRequest{Sandboxes: new(int64(14)), MemoryBytes: new(int64(1 << 30)), MilliCPU: new(int64(1000))}
	info, err := f.Create(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	c, _ := peer.FromContext(ctx)
	return peer.NewContext(ctx, c.In(info.ID))
}

// child makes one with the rules.
func (f family) child(t *testing.T, ctx context.Context, name string, allow ...string) {
	t.Helper()
	if _, err := f.Create(ctx, plan.CreateRequest{Name: name, Allow: allow, Network: "allow"}); err != nil {
		t.Fatal(err)
	}
}

// allow gives the sandbox of the caller ctx, or of root, other rules.
func (f family) allow(t *testing.T, ctx context.Context, name string, rules ...string) {
	t.Helper()
	if _, err := f.Update(ctx, name, UpdateRequest{Allow: &Rules{rules}}); err != nil {
		t.Fatal(err)
	}
}

// want compares what name may reach with the rules, in its record and at the gateway.
func (f family) want(t *testing.T, name string, rules ...string) {
	t.Helper()
	s, err := f.find(f.root, name)
	if err != nil {
		t.Fatal(err)
	}
	r := s.kept()
	if r.Network != netns.ModeAllow || !slices.Equal(r.Policy.Allow, rules) {
		t.Errorf("%s: %s, %q, want %q", name, r.Network, r.Policy.Allow, rules)
	}
	if served, told := f.gateway.policy(s.id); told && !slices.Equal(served.Allow, rules) {
		t.Errorf("%s is served with %q, want %q", name, served.Allow, rules)
	}
}

func TestChildPolicy(t *testing.T) {
	f := newFamily(t)
	f.child(t, f.outer, "whole")
	f.want(t, "whole", "a.example", "b.example", "c.example")
	f.child(t, f.outer, "part", "b.example:443")
	f.want(t, "part", "b.example:443")
	info, err := f.Create(f.outer, plan.CreateRequest{Name: "named", Allow: []string{"c.example"}})
	if err != nil || info.Network != "allow" {
		t.Errorf("to name a destination is to want a network: %+v, %v", info, err)
	}
	info, err = f.Create(f.outer, plan.CreateRequest{Name: "plain"})
	if err != nil || info.Network != "none" {
		t.Errorf("a child that asks for nothing: %+v, %v", info, err)
	}
	for name, version := range map[string]int{"outer": 6, "plain": 6, "part": 7} { // which an older daemon does not read
		if s, err := f.find(f.root, name); err != nil || s.kept().Version != version {
			t.Errorf("the record of %s: %v, want version %d", name, err, version)
		}
	}
	for _, tt := range []struct {
		r    plan.CreateRequest
		code sbxerr.Code
		says string
	}{
		{plan.CreateRequest{Allow: []string{"a.example", "d.example"}}, sbxerr.NetChild, `"d.example"`},
		{plan.CreateRequest{Allow: []string{"profile.example"}}, sbxerr.NetChild, "profile.example"},
		{plan.CreateRequest{Network: "open"}, sbxerr.NetChild, `not "open"`},
		{plan.CreateRequest{Network: "bridge"}, sbxerr.NetChild, `not "bridge"`},
		{plan.CreateRequest{Links: []string{"db=named:5432"}}, sbxerr.Peer, "no links"},
		{plan.CreateRequest{DNS: []string{"192.0.2.53"}}, sbxerr.Peer, "resolvers of its parent"},
		{plan.CreateRequest{AllowECH: true}, sbxerr.Peer, "--allow-ech"},
	} {
		_, err := f.Create(f.outer, tt.r)
		errtest.Want(t, err, tt.code, tt.says)
	}
	view, err := f.ExplainPolicy(f.outer, PolicyQuery{Network: "allow"})
	if err != nil || len(view.Lines) != 4 || view.Lines[0].Rule != "allow a.example:80+443" {
		t.Errorf("what a child would have: %+v, %v", view, err)
	}
	_, err = f.ExplainPolicy(f.outer, PolicyQuery{Allow: []string{"d.example"}})
	errtest.Want(t, err, sbxerr.NetChild, "d.example")
	none := f.member(t, f.root, plan.CreateRequest{Name: "closed", Network: "none"})
	_, err = f.Create(none, plan.CreateRequest{Network: "allow"})
	errtest.Want(t, err, sbxerr.NetChild, `its parent has the network mode "none"`)
}

// What a parent may reach no longer, no generation below it may, and what comes back comes
// back. What a child asked for is kept.
func TestChildPolicyFollows(t *testing.T) {
	f := newFamily(t)
	inner := f.member(t, f.outer, plan.CreateRequest{Name: "child", Allow: []string{"a.example", "b.example"}})
	f.child(t, inner, "grandchild", "b.example:443")
	f.child(t, inner, "heir")
	f.allow(t, f.root, "outer", "a.example")
	f.want(t, "child", "a.example")
	f.want(t, "grandchild")
	f.want(t, "heir", "a.example")
	f.allow(t, f.root, "outer", "b.example", "c.example")
	f.want(t, "child", "b.example")
	f.want(t, "grandchild", "b.example:443")
	f.want(t, "heir", "b.example")
	if _, err := f.Update(f.root, "outer", UpdateRequest{Deny: &Rules{[]string{"b.example"}}}); err != nil {
		t.Fatal(err)
	}
	s, _ := f.find(f.root, "grandchild")
	if deny := s.kept().Policy.Deny; !slices.Equal(deny, []string{"b.example"}) {
		t.Errorf("a grandchild is denied %q", deny)
	}
	read, err := readRecord(f.paths.record(s.id), f.boot)
	if err != nil || !slices.Equal(read.Policy.Deny, []string{"b.example"}) {
		t.Errorf("kept %+v, %v", read.Policy, err)
	}
	if _, err := f.Update(f.root, "outer", UpdateRequest{Network: new("open"), Allow: &Rules{[]string{"d.example:22"}}, Deny: &Rules{}}); err != nil {
		t.Fatal(err)
	}
	f.want(t, "child", "a.example", "b.example") // public names
	f.want(t, "heir", "a.example", "b.example")
	if s, _ := f.find(f.root, "outer"); s.kept().Network != netns.ModeOpen {
		t.Errorf("the parent is %s", s.kept().Network)
	}
}

// Whoever updates a child stays within the policy of its parent.
func TestUpdateChildPolicy(t *testing.T) {
	f := newFamily(t)
	f.child(t, f.outer, "child", "a.example", "b.example")
	for who, ctx := range map[string]context.Context{"its parent": f.outer, "root": f.root} {
		f.allow(t, ctx, "child", "c.example")
		f.want(t, "child", "c.example")
		for _, tt := range []struct {
			r    UpdateRequest
			code sbxerr.Code
		}{
			{UpdateRequest{Allow: &Rules{[]string{"c.example", "d.example"}}}, sbxerr.NetChild},
			{UpdateRequest{Network: new("open")}, sbxerr.NetChild},
			{UpdateRequest{Network: new("none")}, sbxerr.NetworkMode},
			{UpdateRequest{Deny: &Rules{[]string{"no rule"}}}, sbxerr.NetPolicy},
		} {
			if _, err := f.Update(ctx, "child", tt.r); sbxerr.Of(err) != tt.code {
				t.Errorf("%s: %+v: %v", who, tt.r, err)
			}
		}
		f.want(t, "child", "c.example")
		f.allow(t, ctx, "child")
		f.want(t, "child") // not all of its parent's
		f.allow(t, ctx, "child", "a.example", "b.example")
		f.allow(t, f.root, "outer", "a.example", "c.example")
		if _, err := f.Update(ctx, "child", UpdateRequest{Deny: &Rules{[]string{"x.example"}}}); err != nil {
			t.Errorf("%s denies something, while an older rule is not covered: %v", who, err)
		}
		f.want(t, "child", "a.example")
		f.allow(t, f.root, "outer", "a.example", "b.example", "c.example")
		f.want(t, "child", "a.example", "b.example")
	}
}

// A child that was planned before its parent's policy changed gets a part of the new policy,
// made anew or out of a pool.
func TestChildPlannedBeforeAnUpdate(t *testing.T) {
	f := newFamily(t)
	request := func(name string) plan.CreateRequest {
		return plan.CreateRequest{Name: name, Allow: []string{"a.example", "b.example"}}
	}
	late := func(name string) {
		t.Helper()
		r := request(name)
		p, err := f.planFor(f.outer, r)
		if err != nil {
			t.Fatal(err)
		}
		f.allow(t, f.root, "outer", "b.example")
		if _, err := f.obtain(f.outer, p, nil, nil); err != nil {
			t.Fatal(err)
		}
		f.want(t, name, "b.example")
		f.allow(t, f.root, "outer", "a.example", "b.example")
		f.want(t, name, "a.example", "b.example")
	}
	late("made")
	f.pooled(t, 1)
	late("pooled")
	if st := f.pool(); st.Hits != 1 {
		t.Errorf("the pool: %+v", st)
	}

	// In the middle of the making: it is known by then, and the gateway serves it or not.
	for _, name := range []string{"netns", "posture"} {
		i := slices.IndexFunc(f.stages, func(s stage) bool { return s.name == name })
		was := f.stages[i]
		f.stages[i].create = func(ctx context.Context, s *sandbox) error {
			if s.kept().Parent != "" {
				f.gateway.refuseFor(s.id, errInjected) // it is not asked yet
				f.allow(t, f.root, "outer", "b.example")
				f.gateway.refuseFor(s.id, nil)
			}
			return was.create(ctx, s)
		}
		if _, err := f.Create(f.outer, request("at-"+name)); err != nil {
			t.Fatal(err)
		}
		f.want(t, "at-"+name, "b.example")
		f.stages[i] = was
		f.allow(t, f.root, "outer", "a.example", "b.example")
	}
}

// A child that cannot be held to its parent's policy is cut off and ended. Its parent's is
// in force.
func TestChildThatCannotFollow(t *testing.T) {
	f := newFamily(t)
	f.child(t, f.outer, "child", "a.example")
	f.child(t, f.outer, "other", "b.example")
	s, err := f.find(f.root, "child")
	if err != nil {
		t.Fatal(err)
	}
	f.gateway.refuseFor(s.id, errInjected)
	f.allow(t, f.root, "outer", "b.example")
	if cause := s.endCause(); cause == nil || !strings.Contains(cause.Error(), "injected") {
		t.Errorf("the child ends for %v", cause)
	}
	if !slices.Contains(f.gateway.gone(), s.id) {
		t.Error("what the child has open goes on")
	}
	within(t, "its end", s.ended)
	f.want(t, "outer", "b.example")
	f.want(t, "other", "b.example")
	f.allow(t, f.root, "outer", "b.example", "c.example") // what has ended is left alone
}

// A child of an earlier daemon has what its parent has now, by the operator's word of now. It
// has nothing where the parent ended.
func TestAdoptChildPolicy(t *testing.T) {
	f, _ := newPublishing(t)
	f.opts.Egress = nil
	spec := policy.Spec{Mode: policy.Allow, Allow: []string{"a.example", "b.example"}}
	known(t, f.Manager,
		record{ID: idA1, Name: "outer", Profile: plan.DefaultProfile, Network: netns.ModeAllow, Policy: spec},
		record{ID: idA2, Name: "child", Profile: plan.DefaultProfile, Parent: idA1, Network: netns.ModeAllow, Policy: spec, Asked: plan.NetworkRequest{Mode: "allow", Allow: []string{"b.example", "a.example"}}})
	outer, child := f.sandboxes[idA1], f.sandboxes[idA2]
	adopt := func(want ...string) {
		t.Helper()
		errtest.Want(t, f.adoptEgress(t.Context(), child), sbxerr.Gateway, "no gateway") // it gets as far as that
		if r := child.kept(); !slices.Equal(r.Policy.Allow, want) || r.Network != netns.ModeAllow {
			t.Errorf("it is adopted with %+v, want %q", r.Policy, want)
		}
	}
	adopt("b.example", "a.example")
	outer.update(func() { outer.record.Policy.Allow = []string{"b.example"} }) // its daemon was killed before the child's was written
	adopt("b.example")
	f.opts.Network.AirGapped = true
	errtest.Want(t, f.adoptEgress(t.Context(), outer), sbxerr.Gateway, "no gateway")
	adopt()
	if !child.kept().Policy.AirGapped {
		t.Error("the child is not air-gapped")
	}
	f.forget(outer)
	adopt()
	if p := child.kept().Policy; p.Mode != policy.Allow || p.Map != nil {
		t.Errorf("the child of none has %+v", p)
	}
	f.forget(child)
}

// However makings and updates fall together, each child ends up with what its parent has.
func TestChildPolicyAtOnce(t *testing.T) {
	f := newFamily(t)
	inner := f.member(t, f.outer, plan.CreateRequest{Name: "inner", Network: "allow"})
	var makers, changers sync.WaitGroup
	stop := make(chan struct{})
	for _, name := range []string{"outer", "inner"} {
		changers.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				rules := []string{"a.example", "b.example", "c.example"}[i%3:]
				if _, err := f.Update(f.root, name, UpdateRequest{Allow: &Rules{rules}}); err != nil && sbxerr.Of(err) != sbxerr.NetChild {
					t.Error(err)
				}
			}
		})
	}
	for i, ctx := range []context.Context{f.outer, inner, inner} {
		makers.Go(func() {
			for n := range 4 {
				name := fmt.Sprintf("child-%d-%d", i, n)
				if _, err := f.Create(ctx, plan.CreateRequest{Name: name, Network: "allow"}); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		})
	}
	makers.Wait()
	close(stop)
	changers.Wait()
	for _, s := range f.all() {
		r := s.kept()
		if r.Parent == "" {
			continue
		}
		if spec, _, err := f.narrowed(r); err != nil || !reflect.DeepEqual(spec, r.Policy) {
			t.Errorf("%s has %+v, want %+v, %v", r.Name, r.Policy, spec, err)
		}
		if served, told := f.gateway.policy(s.id); told && !reflect.DeepEqual(served, r.Policy) {
			t.Errorf("%s is served with %+v, not %+v", r.Name, served, r.Policy)
		}
	}
}
