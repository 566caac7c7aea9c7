package apply

import (
	"testing"

	"github.com/caisson-run/caisson/runtime/changes"
)

func TestControl(t *testing.T) {
	patterns := Control{".git/config", ".git/hooks/**", ".git/modules/**/config", ".envrc", ".github/workflows/**", "*.code-workspace"}
	is := func(kind string) changes.State { return changes.State{Type: kind} }
	link := func(to string) changes.State { return changes.State{Type: symlink, Link: to} }
	for _, c := range []struct {
		changes.Change
		want bool
	}{
		{changes.Change{Path: ".git/config", New: is(file)}, true},
		{changes.Change{Path: "a/b/.git/config", New: is(file)}, true},
		{changes.Change{Path: ".GIT/Config", New: is(file)}, true},
		{changes.Change{Path: ".git/config", Old: is(file)}, true},
		{changes.Change{Path: ".git/hooks", New: is(directory)}, true},
		{changes.Change{Path: ".git/hooks/a/b", New: is(file)}, true},
		{changes.Change{Path: ".git/modules/x/y/config", New: is(file)}, true},
		{changes.Change{Path: ".git/modules/config", New: is(file)}, true},
		{changes.Change{Path: "my.code-workspace", New: is(file)}, true},
		{changes.Change{Path: "sub/.git", New: is(file)}, true},
		{changes.Change{Path: ".git", New: link("elsewhere")}, true},
		{changes.Change{Path: ".git", Old: is(directory)}, true},
		{changes.Change{Path: ".git", Old: is(directory), New: is(file)}, true},
		{changes.Change{Path: ".github", From: "x", Kind: changes.Renamed, New: is(directory)}, true},
		{changes.Change{Path: "x", From: "a/.github/workflows", Kind: changes.Renamed, New: is(directory)}, true},
		{changes.Change{Path: "out", New: link("/etc")}, true},
		{changes.Change{Path: "out", New: link("..")}, true},
		{changes.Change{Path: "a/out", New: link("../..")}, true},
		{changes.Change{Path: "a/b/out", New: link("x/../../y")}, true},

		{changes.Change{Path: ".git", New: is(directory)}, false},
		{changes.Change{Path: ".git/HEAD", New: is(file)}, false},
		{changes.Change{Path: ".git/configs", New: is(file)}, false},
		{changes.Change{Path: "git/config", New: is(file)}, false},
		{changes.Change{Path: ".github", New: is(directory)}, false},
		{changes.Change{Path: "new", From: "old", Kind: changes.Renamed, New: is(directory)}, false},
		{changes.Change{Path: "src", Old: is(directory)}, false},
		{changes.Change{Path: "a/in", New: link("../b")}, false},
		{changes.Change{Path: "in", New: link("a/./b//c")}, false},
	} {
		if got := patterns.Has(c.Change); got != c.want {
			t.Errorf("%+v: %v", c.Change, got)
		}
	}
}
