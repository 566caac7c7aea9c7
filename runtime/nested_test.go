package runtime

import (
	"testing"

	"github.com/caisson-run/caisson/sbxerr"
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
	if s, err := m.match(callerContext(t), CreateRequest{Name: "agent", Ensure: true}); err != nil || s.id != idA2 {
		t.Errorf("ensured %v, %v", s, err)
	}
	m.forget(m.sandboxes[idA2])
	_, err := m.find(callerContext(t), "agent")
	wantError(t, err, sbxerr.NotFound, `"agent" is the name of 2 sandboxes, none of them yours: give an ID`)
	if s, err := m.match(callerContext(t), CreateRequest{Name: "agent", Ensure: true}); s != nil || err != nil {
		t.Errorf("another's sandbox was taken for root's own: %v, %v", s, err)
	}
	m.forget(m.sandboxes[idB])
	if s, err := m.find(callerContext(t), "agent"); err != nil || s.id != idA1 {
		t.Errorf("the only one of that name: %v, %v", s, err)
	}
}
