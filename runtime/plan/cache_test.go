package plan

import (
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
)

func TestCaches(t *testing.T) {
	pl := testPlanner()
	pl.DiskBytes = 1 << 30
	own := pl.Profiles["strict"]
	own.Caches, own.Env = []string{"pip"}, []string{"PIP_CACHE_DIR=/elsewhere"}
	pl.Profiles["own"] = own
	for asked, want := range map[string]struct{ profile, mounts, env string }{
		"npm":       {"strict", "caisson-cache-npm /var/cache/caisson/npm", "npm_config_cache=/var/cache/caisson/npm"},
		"mine=/a/b": {"strict", "caisson-cache-mine /a/b", ""},
		"go":        {"own", "caisson-cache-go /var/cache/caisson/go", "GOMODCACHE=/var/cache/caisson/go/mod"},
		"":          {"own", "caisson-cache-pip /var/cache/caisson/pip", "PIP_CACHE_DIR=/elsewhere"},
	} {
		r := CreateRequest{Profile: want.profile}
		if asked != "" {
			r.Caches = []string{asked}
		}
		p, err := pl.Sandbox(r)
		if err != nil {
			t.Errorf("%q: %v", asked, err)
			continue
		}
		var mounts []string
		for _, m := range p.Mounts {
			mounts = append(mounts, m.Source+" "+m.Target)
			if !m.Cow || !m.Volume || m.WritesHost() || m.Lower == "" || m.Changes == "" {
				t.Errorf("%q: %+v", asked, m)
			}
		}
		if strings.Join(mounts, ",") != want.mounts || want.env != "" && !slices.Contains(p.Env, want.env) || p.Limits.DiskBytes != 1<<30 {
			t.Errorf("%q: %q, %q, a disk of %d", asked, mounts, p.Env, p.Limits.DiskBytes)
		}
		if caches := CachesIn(p.MountRequests); len(caches) != 1 || caches[0].Lower != p.Mounts[0].Lower || caches[0].Changes != p.Mounts[0].Changes {
			t.Errorf("%q: %+v", asked, caches)
		}
	}
	for asked, want := range map[string]string{
		"nothing": "give one of cargo, go, maven, npm, nuget, pip, uv, or NAME=PATH", "": "a name has", "../x": "a name has", "a/b=/x": "a name has", "A": "a name has",
		"x=relative": "not a clean absolute path", "x=/etc": "the sandbox's own", "x=/tmp": "the sandbox's own", "npm npm": "two mounts", "npm x=/var/cache/caisson/npm": "two mounts",
	} {
		_, err := pl.Sandbox(CreateRequest{Caches: strings.Split(asked, " ")})
		if err == nil || !strings.Contains(err.Error(), want) || sbxerr.Of(err) == sbxerr.Internal {
			t.Errorf("%q: %v, want %q", asked, err, want)
		}
	}
	if _, err := pl.Sandbox(CreateRequest{Mounts: []MountRequest{{Type: "tmpfs", Target: "/x", Cow: true}, {Type: "volume", Source: "v", Target: "/y", Cow: true, ReadOnly: true}}}); err == nil || strings.Count(err.Error(), "copy-on-write is for types volume and snapshot") != 2 {
		t.Errorf("cow: %v", err)
	}
}

// TestPooledWithCaches: a sandbox that is made ahead has the disk and the mount points of its
// caches, and no mount of anybody. Its workspace is on the disk, where another can take its place.
func TestPooledWithCaches(t *testing.T) {
	pl := testPlanner()
	pl.DiskBytes = 1 << 30
	own := pl.Profiles["strict"]
	own.Mounts = []MountRequest{{Type: "tmpfs", Target: "/workspace"}}
	pl.Profiles["own"] = own
	for _, profile := range []string{"strict", "own"} {
		p, err := pl.Sandbox(CreateRequest{Profile: profile, Caches: []string{"npm"}, Pooled: true})
		if err != nil {
			t.Fatal(err)
		}
		if len(p.Mounts) != 0 || !p.OwnWorkspace || p.Limits.DiskBytes != 1<<30 || !slices.Equal(p.MountPoints(), []string{"var/cache/caisson/npm"}) {
			t.Errorf("%s: %+v, points %q", profile, p.Mounts, p.MountPoints())
		}
	}
}
