package runtime

import "testing"

func TestShimsFillGroupAfterGroup(t *testing.T) {
	g := newShims(3)
	var groups []string
	for _, id := range []string{"a", "b", "c", "d"} {
		groups = append(groups, g.take(id))
	}
	if groups[0] == "" || groups[0] != groups[1] || groups[1] != groups[2] || groups[2] == groups[3] {
		t.Errorf("groups %q", groups)
	}
	g.drop("a")
	if got := g.take("e"); got != groups[3] {
		t.Errorf("a used up group is used again: %q", got)
	}
	for _, id := range []string{"b", "c", "d", "e", "never"} {
		g.drop(id)
	}
	if len(g.groups) != 0 || len(g.of) != 0 {
		t.Errorf("left: %v, %v", g.groups, g.of)
	}
	if got := g.take("f"); got == groups[3] {
		t.Error("an empty group, whose process may be ending, is used again")
	}
}

func TestShimsOfTheirOwn(t *testing.T) {
	if got := newShims(1).take("a"); got != "" {
		t.Errorf("group %q", got)
	}
}
