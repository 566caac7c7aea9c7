package runtime

import (
	"slices"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/api/sbxerr/errtest"
	"github.com/caisson-run/caisson/runtime/plan"
)

// A name means the caller's own sandbox, whoever else took the same name.
func TestFindPrefersItsOwn(t *testing.T) {
	m := &Manager{sandboxes: map[string]*sandbox{}}
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
	m := &Manager{sandboxes: map[string]*sandbox{}}
	known(t, m, record{ID: idA1, Name: "parent"}, record{ID: idA2, Name: "child", Parent: idA1})
	m.sandboxes[idA1].end(ErrRemoved)
	late := m.newSandbox(&plan.Sandbox{ID: idB, Grant: rootGrant(t)}, record{ID: idB, Name: "late", Parent: idA1})
	errtest.Want(t, m.admit(late), sbxerr.Canceled, "the sandbox that made it ended")
	if m.known(idB) {
		t.Error("a refused child is known")
	}
}

// Children whose parent ended while no daemon was there end with the next one.
func TestOrphansEnd(t *testing.T) {
	m := &Manager{sandboxes: map[string]*sandbox{}}
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
