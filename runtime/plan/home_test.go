package plan

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/caisson-run/caisson/rootfs/layerfs"
	"github.com/caisson-run/caisson/runtime/images"
	"github.com/caisson-run/caisson/tests/need"
)

// homesOf plans the image "base" with a layer that has these directories, each of the
// user's own, for a user with that home.
func homesOf(t *testing.T, dirs []string, home string, change func(*CreateRequest)) *planned {
	t.Helper()
	layer := t.TempDir()
	for _, dir := range dirs {
		if err := os.MkdirAll(filepath.Join(layer, dir), 0o750); err != nil {
			t.Fatal(err)
		}
	}
	uid := uint32(max(os.Getuid(), 1))
	if os.Getuid() == 0 {
		for _, dir := range dirs {
			if err := os.Chown(filepath.Join(layer, dir), int(uid), int(uid)); err != nil {
				t.Fatal(err)
			}
		}
	}
	pl := testPlanner()
	pl.User = func(images.Stored, string) (Account, error) {
		return Account{User: User{UID: uid, GID: uid}, Name: "me", Home: home, Layers: layerfs.Layers{layer}}, nil
	}
	r := CreateRequest{Image: "base"}
	if change != nil {
		change(&r)
	}
	p, err := planRun(pl, Request{Create: r, Exec: ExecRequest{Args: []string{"true"}}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestHomes(t *testing.T) {
	mounted := func(target string) func(*CreateRequest) {
		return func(r *CreateRequest) {
			r.Mounts = []MountRequest{{Type: VolumeType, Source: "cache", Target: target}}
		}
	}
	for name, tt := range map[string]struct {
		dirs   []string
		home   string
		change func(*CreateRequest)
		want   []string // targets
		points []string // of the first one
	}{
		"nothing in /home":         {[]string{"home"}, "/home/me", nil, nil, nil},
		"no /home":                 {nil, "", nil, nil, nil},
		"a home":                   {[]string{"home/me"}, "/home/me", nil, []string{"/home"}, nil},
		"somebody else's":          {[]string{"home/you"}, "/home/me", nil, []string{"/home"}, nil},
		"a home elsewhere":         {[]string{"var/lib/db"}, "/var/lib/db", nil, []string{"/var/lib/db"}, nil},
		"elsewhere, absent":        {nil, "/nonexistent", nil, nil, nil},
		"both":                     {[]string{"home/you", "opt/me"}, "/opt/me", nil, []string{"/home", "/opt/me"}, nil},
		"programs":                 {[]string{"usr/sbin"}, "/usr/sbin", nil, nil, nil},
		"the root":                 {nil, "/", nil, nil, nil},
		"a scratch directory":      {[]string{"tmp/me"}, "/tmp/me", nil, nil, nil},
		"odd characters":           {[]string{"srv/a:b"}, "/srv/a:b", nil, nil, nil},
		"a cache in a home":        {[]string{"home/me"}, "/home/me", mounted("/home/me/.cache"), []string{"/home"}, []string{"me/.cache"}},
		"a cache in an empty home": {nil, "/home/me", mounted("/home/me/.cache"), []string{"/home"}, []string{"me/.cache"}},
		"a mount as home":          {[]string{"home/me"}, "/home/me", mounted("/home/me"), []string{"/home"}, []string{"me"}},
		"beside an empty home":     {nil, "/home/me", mounted("/home/you"), nil, nil},
		"a cache elsewhere":        {[]string{"srv/me"}, "/srv/me", mounted("/srv/me/.cache"), []string{"/srv/me"}, []string{".cache"}},
		"a mount instead":          {[]string{"srv/me"}, "/srv/me", mounted("/srv"), nil, nil},
		"a step of a build":        {[]string{"home/me"}, "/home/me", func(r *CreateRequest) { r.Build = true }, nil, nil},
	} {
		p := homesOf(t, tt.dirs, tt.home, tt.change)
		var got []string
		for _, h := range p.Homes {
			got = append(got, h.Target)
			if h.Target != "/home" && h.Mode != 0o750 {
				t.Errorf("%s: %s has the mode %o", name, h.Target, h.Mode)
			}
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
		if len(got) > 0 && !slices.Equal(p.Homes[0].Points, tt.points) {
			t.Errorf("%s: points %q, want %q", name, p.Homes[0].Points, tt.points)
		}
		for _, m := range p.Mounts {
			if inHome := len(tt.points) > 0; m.Nested != inHome || slices.Contains(p.MountPoints(), m.Target[1:]) == inHome {
				t.Errorf("%s: %+v among the points %q", name, m, p.MountPoints())
			}
		}
	}
}

func TestHomeElsewhereIsTheUsersOwn(t *testing.T) {
	need.Root(t, "directories of other owners")
	layer := t.TempDir()
	if err := os.MkdirAll(filepath.Join(layer, "srv/me"), 0o755); err != nil {
		t.Fatal(err)
	}
	for owner, want := range map[int]uint32{1000: 0o755, 0: 0, 1001: 0} {
		if err := os.Chown(filepath.Join(layer, "srv/me"), owner, owner); err != nil {
			t.Fatal(err)
		}
		u := Account{User: User{UID: 1000, GID: 1000}, Layers: layerfs.Layers{layer}}
		if mode, err := u.ownHome("/srv/me"); mode != want || err != nil {
			t.Errorf("of %d: %o, %v", owner, mode, err)
		}
	}
}

func TestEnvironmentOfHome(t *testing.T) {
	for name, tt := range map[string]struct {
		home   string
		change func(*CreateRequest)
		want   []string
	}{
		"of passwd":   {"/home/me", nil, []string{"HOME=/home/me", "USER=me"}},
		"no entry":    {"", nil, []string{"HOME=/home/caisson", "USER=me"}},
		"the request": {"/home/me", func(r *CreateRequest) { r.Env = []string{"HOME=/tmp"} }, []string{"HOME=/tmp", "USER=me"}},
	} {
		p := homesOf(t, nil, tt.home, tt.change)
		for _, kv := range tt.want {
			if !slices.Contains(p.Env, kv) {
				t.Errorf("%s: %q lacks %q", name, p.Env, kv)
			}
		}
	}
}
