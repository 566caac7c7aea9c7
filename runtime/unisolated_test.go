package runtime

import "testing"

// TestUnisolatedStages: removal knows only the ID of a sandbox. So each part of one without
// isolation is among those of all others, in their order.
func TestUnisolatedStages(t *testing.T) {
	m := newTestManager()
	all := m.allStages()
	for _, s := range m.unisolatedStages() {
		for len(all) > 0 && all[0].name != s.name {
			all = all[1:]
		}
		if len(all) == 0 {
			t.Fatalf("stage %s is not in the list of all, or not in this place", s.name)
		}
	}
}
