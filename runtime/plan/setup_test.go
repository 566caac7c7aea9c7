package plan

import (
	"strings"
	"testing"

	"github.com/caisson-run/caisson/runtime/images"
)

// The rules of a set-up are checked with those of its sandboxes' profile, each by its key.
func TestSetupNetwork(t *testing.T) {
	for want, s := range map[string]Setup{
		"profiles.a.setup.network.allow[1]": {Run: []string{"x"}, Allow: []string{"x.example", "a b"}},
		"profiles.a.setup.network.deny[0]":  {Run: []string{"x"}, Deny: []string{"a b"}},
		"profiles.a.setup.network: ":        {Run: []string{"x"}, Network: "bridge"},
		"":                                  {Run: []string{"x"}, Allow: []string{"x.example"}},
	} {
		all := BuiltinProfiles()
		a := all[DefaultProfile]
		a.Setup = &s
		all["a"] = a
		err := NetworkRules{}.Validate(all)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", s, err, want)
		}
	}
}

// A sandbox from a snapshot of a template has that one, and any other has the newest.
func TestTemplateOfSnapshot(t *testing.T) {
	named := func(ref string) (images.Stored, error) {
		return images.Stored{Image: images.Image{Name: ref}}, nil
	}
	pl := Planner{RootImage: named, Template: func(string) (images.Stored, error) { return named("template/a:new") }}
	for from, want := range map[string]string{"": "template/a:new", "base": "template/a:new", "template/b:old": "template/a:new", "template/a:old": "template/a:old"} {
		pl.From = nil
		if from != "" {
			pl.From = &Origin{Snapshot: Snapshot{Image: from}}
		}
		if img, err := pl.template("a"); err != nil || img.Name != want {
			t.Errorf("from %q: %q, %v, want %q", from, img.Name, err, want)
		}
	}
}
