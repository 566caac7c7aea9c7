package plan

import (
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// cachePrefix begins the names of the volumes that are caches.
const cachePrefix = "caisson-cache-"

// CachesDir has the caches of tools inside. Root or no root, an image's home or none: the
// variables of each tool lead there.
const CachesDir = "/var/cache/caisson"

// tools are the tools whose cache has a name, with the variables that tell them where it is. The
// directory replaces @.
var tools = map[string][]string{
	"npm":   {"npm_config_cache=@"},
	"pip":   {"PIP_CACHE_DIR=@"},
	"uv":    {"UV_CACHE_DIR=@"},
	"go":    {"GOMODCACHE=@/mod", "GOCACHE=@/build"},
	"cargo": {"CARGO_HOME=@"},
	"maven": {"MAVEN_OPTS=-Dmaven.repo.local=@"},
	"nuget": {"NUGET_PACKAGES=@"},
}

// cacheForm is that of a name. A volume of it has a name that is allowed.
var cacheForm = regexp.MustCompile(`^[a-z0-9][a-z0-9_.-]{0,39}$`)

// cache is one cache that a sandbox is asked for with.
type cache struct {
	name, target string
	env          []string
}

// parseCache reads the name of a tool, or NAME=PATH.
func parseCache(text string) (cache, error) {
	name, target, named := strings.Cut(text, "=")
	if !cacheForm.MatchString(name) {
		return cache{}, Invalid("cache %q: a name has 1 to 40 small letters, digits, and _ . - after the first", sbxerr.Clip(name))
	}
	if named {
		return cache{name: name, target: target}, checkTarget("cache path", target)
	}
	vars, known := tools[name]
	if !known {
		return cache{}, Invalid("cache %q: give one of %s, or NAME=PATH", sbxerr.Clip(name), strings.Join(slices.Sorted(maps.Keys(tools)), ", "))
	}
	c := cache{name: name, target: CachesDir + "/" + name}
	for _, v := range vars {
		c.env = append(c.env, strings.ReplaceAll(v, "@", c.target))
	}
	return c, nil
}

// cachesOf are the names of the caches that r gets. A step of a build has none.
func (p Profile) cachesOf(r CreateRequest) []string {
	switch {
	case r.Build:
		return nil
	case len(r.Caches) > 0:
		return r.Caches
	}
	return p.Caches
}

// cacheMounts are the mounts of the caches of r, which are volumes of the caller's. What is
// written goes to the sandbox's disk.
func (p Profile) cacheMounts(r CreateRequest) (mounts []MountRequest, errs []error) {
	for _, text := range p.cachesOf(r) {
		c, err := parseCache(text)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		mounts = append(mounts, MountRequest{Type: VolumeType, Source: cachePrefix + c.name, Target: c.target, Cow: true})
	}
	return mounts, errs
}

// cacheEnv tells tools where their caches are.
func (p *Sandbox) cacheEnv() (env []string) {
	for _, text := range p.Profile.cachesOf(p.Request) {
		c, _ := parseCache(text) // planMounts refused it
		env = append(env, c.env...)
	}
	return env
}

// Cache is a cache of a sandbox: where its parts are on the host, below the sandbox's directory.
type Cache struct {
	Volume         string // its name
	Lower, Changes string
}

// CachesIn are the caches among the mounts of a sandbox.
func CachesIn(mounts []MountRequest) (caches []Cache) {
	for i, m := range mounts {
		if m.Cow && m.Type == VolumeType {
			caches = append(caches, Cache{m.Source, cacheLower(i), cacheChanges(i)})
		}
	}
	return caches
}

// CowMounts are the caches and the directories of snapshots among the mounts of a sandbox: what is
// written to them goes to its disk.
func CowMounts(mounts []MountRequest) (list []Mount) {
	for i, m := range mounts {
		if m.Cow {
			list = append(list, Mount{Snapshot: m.Type == SnapshotType, Target: m.Target, Point: bindPoint(i), Cow: true, Lower: cacheLower(i), Changes: cacheChanges(i)})
		}
	}
	return list
}

func cacheLower(i int) string   { return filepath.Join(MountsDir, "lower-"+strconv.Itoa(i)) }
func cacheChanges(i int) string { return filepath.Join(DiskPoint, cacheChangesPrefix+strconv.Itoa(i)) }

// cacheChangesPrefix begins the directories of a disk with what was written to caches.
const cacheChangesPrefix = "cache-"

// IsCacheChanges reports whether a disk has changes of a cache below that name.
func IsCacheChanges(name string) bool { return strings.HasPrefix(name, cacheChangesPrefix) }

// Merges reports whether what a sandbox of p with such mounts writes to caches may go into them.
// Nil is a profile of an older daemon.
func (p *Profile) Merges(mounts []MountRequest) bool {
	return p != nil && p.MergeCaches && len(CachesIn(mounts)) > 0
}

// VolumesIn are the names of the volumes among mounts that are written to.
func VolumesIn(mounts []MountRequest) (names []string) {
	for _, m := range mounts {
		if m.Type == VolumeType && !m.Cow && !m.ReadOnly {
			names = append(names, m.Source)
		}
	}
	return names
}
