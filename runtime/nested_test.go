package runtime

import (
	"context"
	"net"
	"slices"
	"testing"
	"time"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/api/sbxerr/errtest"
	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/runtime/plan"
)

// A name means the caller's own sandbox, whoever else took the same name.
func TestFindPrefersItsOwn(t *testing.T) {
	m := newTestManager()
	known(t, m, record{ID: idA1, Name: "agent", OwnerUID: 1000}, record{ID: idA2, Name: "agent"})
	known(t, m, record{ID: idB, Name: "agent", Parent: idA2})
	for range 20 { // maps have no order
		if s, err := m.find(callerContext(t), "agent"); err != nil || s.id != idA2 {
			t.Fatalf("found %v, %v, want root's own %s", s, err, idA2)
		}
	}
	if s := m.match(rootGrant(t), plan.CreateRequest{Name: "agent", Ensure: true}); s == nil || s.id != idA2 {
		t.Errorf("ensured %v", s)
	}
	m.forget(m.sandboxes[idA2])
	_, err := m.find(callerContext(t), "agent")
	errtest.Want(t, err, sbxerr.NotFound, `"agent" is the name of 2 sandboxes, none of them yours: give an ID`)
	if s := m.match(rootGrant(t), plan.CreateRequest{Name: "agent", Ensure: true}); s != nil {
		t.Errorf("another's sandbox was taken for root's own: %v", s)
	}
	m.forget(m.sandboxes[idB])
	if s, err := m.find(callerContext(t), "agent"); err != nil || s.id != idA1 {
		t.Errorf("the only one of that name: %v, %v", s, err)
	}
}

// A child that is asked for while its parent ends would be nobody's.
func TestNoChildOfAnEndingParent(t *testing.T) {
	m := newTestManager()
	known(t, m, record{ID: idA1, Name: "parent"}, record{ID: idA2, Name: "child", Parent: idA1})
	m.sandboxes[idA1].end(ErrRemoved)
	late := m.newSandbox(&plan.Sandbox{ID: idB, Grant: rootGrant(t)}, record{ID: idB, Name: "late", Parent: idA1})
	errtest.Want(t, m.admit(late), sbxerr.Canceled, "the sandbox that made it ended")
	if m.byID(idB) != nil {
		t.Error("a refused child is known")
	}
}

// Children whose parent ended while no daemon was there end with the next one.
func TestOrphansEnd(t *testing.T) {
	m := newTestManager()
	known(t, m, record{ID: idA1, Name: "parent"}, record{ID: idA2, Name: "child", Parent: idA1})
	m.endOrphans(t.Context())
	if err := m.sandboxes[idA2].endCause(); err != nil {
		t.Errorf("the child of one that lives: %v", err)
	}
	m.forget(m.sandboxes[idA1])
	m.endOrphans(t.Context())
	if err := m.sandboxes[idA2].endCause(); err != errParentEnded {
		t.Errorf("the child of one that is gone: %v", err)
	}
}

// nestedIn makes a sandbox that may make others, as the caller of ctx, and returns the
// context of calls from inside of it.
func (f *fixture) nestedIn(t *testing.T, ctx context.Context, name string) context.Context {
	t.Helper()
	r := plan.CreateRequest{Name: name, Nested: &plan.NestedRequest{}, Limits: &caissonv1.Limits{MemoryBytes: new(int64(64 << 20)), MilliCpu: new(int64(100))}}
	info, err := f.Create(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	c, _ := peer.FromContext(ctx)
	return peer.NewContext(ctx, c.In(info.ID))
}

// deep lets sandboxes of the default profile have so many generations below them.
func (f *fixture) deep(depth int) {
	p := plan.BuiltinProfiles()[plan.DefaultProfile]
	p.NestedDepth = depth
	f.opts.Profiles = map[string]plan.Profile{plan.DefaultProfile: p}
	f.opts.ServeNested = func(string, *net.UnixListener) {}
}

// A grandchild counts against the budget of the outermost sandbox too, also while its
// own parent is removed, and a removal waits for all generations.
func TestGenerations(t *testing.T) {
	f := newFixture(t)
	f.deep(2)
	outer := f.nestedIn(t, callerContext(t), "outer")
	child := f.nestedIn(t, outer, "child")
	c, _ := peer.FromContext(outer)
	top := f.sandboxes[c.Sandbox]
	top.update(func() { top.record.Nested = &peer.Usage{Sandboxes: 2, MemoryBytes: 1 << 30, MilliCPU: 1000, Execs: 8} })
	grandchild, err := f.Create(child, plan.CreateRequest{Name: "grandchild", Limits: &caissonv1.Limits{MemoryBytes: new(int64(16 << 20)), MilliCpu: new(int64(100))}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Create(child, plan.CreateRequest{Name: "more"})
	errtest.Want(t, err, sbxerr.Peer, "above") // its limits are above the parent's
	small := &caissonv1.Limits{MemoryBytes: new(int64(16 << 20)), MilliCpu: new(int64(100))}
	for who, ctx := range map[string]context.Context{"the child": child, "the outermost": outer} {
		_, err := f.Create(ctx, plan.CreateRequest{Limits: small})
		if sbxerr.Of(err) != sbxerr.Busy {
			t.Errorf("%s makes one too many: %v", who, err)
		}
	}
	_, err = f.Create(child, plan.CreateRequest{Limits: small, Nested: &plan.NestedRequest{}})
	errtest.Want(t, err, sbxerr.Peer, "no socket")
	if infos, err := f.List(outer); err != nil || len(infos) != 1 || infos[0].Name != "child" {
		t.Errorf("the outermost sees %+v, %v", infos, err)
	}
	_, err = f.Remove(outer, grandchild.ID, true)
	errtest.Want(t, err, sbxerr.NotFound)
	if _, err := f.Remove(outer, "child", true); err != nil {
		t.Fatal(err)
	}
	if f.byID(grandchild.ID) != nil {
		t.Error("a removal left a grandchild")
	}
	f.nestedIn(t, outer, "another")
}

// A grandchild ends with the outermost sandbox, and of one whose parent is gone there is no
// grant any more.
func TestGenerationsEnd(t *testing.T) {
	m := newTestManager()
	usage := &peer.Usage{}
	known(t, m,
		record{ID: idA1, Name: "outer", Nested: usage, NestedDepth: 2},
		record{ID: idA2, Name: "child", Nested: usage, NestedDepth: 1, Parent: idA1},
		record{ID: idB, Name: "grandchild", Parent: idA2, Ancestors: []string{idA1}})
	if _, above, err := m.parents(idA2); err != nil || len(above) != 1 || above[0].ID != idA1 || above[0].Depth != 2 {
		t.Errorf("above the child: %+v, %v", above, err)
	}
	m.forget(m.sandboxes[idA1])
	_, _, err := m.parents(idA2)
	errtest.Want(t, err, sbxerr.Canceled, "the sandbox that made it ended")
	m.endOrphans(t.Context())
	if err := m.sandboxes[idA2].endCause(); err != errParentEnded {
		t.Errorf("the child: %v", err)
	}
}

func TestNestedPlan(t *testing.T) {
	f := newFixture(t)
	zero := int64(0)
	_, err := f.planFor(callerContext(t), plan.CreateRequest{Nested: &plan.NestedRequest{Sandboxes: &zero, MemoryBytes: &zero}})
	errtest.Want(t, err, sbxerr.Limits, "nested sandboxes 0: give more than 0")
	errtest.Want(t, err, sbxerr.Limits, "nested memory 0")
	p, command, err := f.planMain(callerContext(t), plan.Request{Create: plan.CreateRequest{Nested: &plan.NestedRequest{}}, Exec: script("exit:0")})
	if err != nil {
		t.Fatal(err)
	}
	const socket = "CAISSON_SOCKET=/run/caisson/api.sock"
	for who, env := range map[string][]string{"sandbox": newRecord(p, "boot", time.Time{}).Env, "command": command.Env} {
		if !slices.Contains(env, socket) {
			t.Errorf("the environment of the %s has no %s: %q", who, socket, env)
		}
	}
}
