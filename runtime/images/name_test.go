package images

import "testing"

func TestKeys(t *testing.T) {
	for key, want := range map[string]Image{
		"base": {Name: "base"}, "1000+tools:1": {Name: "tools:1", Owner: 1000}, "4294967294+a/b": {Name: "a/b", Owner: 4294967294},
	} {
		if owner, name := SplitKey(key); owner != want.Owner || name != want.Name || want.Key() != key {
			t.Errorf("%q is %q of %d, and back %q", key, name, owner, want.Key())
		}
	}
	for _, key := range []string{"01+x", "-1+x", "4294967296+x", "a+x"} {
		if owner, name := SplitKey(key); owner != 0 || name != key {
			t.Errorf("%q is %q of %d", key, name, owner)
		}
	}
}
