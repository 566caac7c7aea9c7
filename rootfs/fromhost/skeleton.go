package fromhost

import (
	"path"
	"slices"
	"strings"
)

// topLinks are the directories of the root that are links into /usr on a host
// with merged directories. Loaders are named by them: /lib64/ld-linux….
var topLinks = []string{"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"}

// emptyDirs are there in every image, without anything of the host in them.
var emptyDirs = []string{"/dev", "/etc", "/home", "/proc", "/root", "/run", "/sys", "/tmp", "/usr/bin", "/var", "/var/tmp"}

// accounts are files of the image itself: the host's name its users. 1000 is
// who commands run as.
var accounts = []struct{ path, content string }{
	{"/etc/passwd", `root:x:0:0:root:/root:/bin/sh
caisson:x:1000:1000:caisson:/home/caisson:/bin/sh
nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
`},
	{"/etc/group", `root:x:0:
caisson:x:1000:
nogroup:x:65534:
`},
	// Only files and DNS: no LDAP, no systemd, nothing that looks for a socket.
	{"/etc/nsswitch.conf", `passwd: files
group: files
hosts: files dns
networks: files
protocols: files
services: files
ethers: files
rpc: files
`},
}

// hostFacts are files that tell programs which system they run on.
var hostFacts = []string{"/etc/os-release", "/etc/debian_version"}

// skeleton adds what every image has.
func (c *collector) skeleton() error {
	o := origin{why: "every image"}
	for _, dir := range topLinks {
		if err := c.topLink(dir, o); err != nil {
			return err
		}
	}
	for _, dir := range emptyDirs {
		if err := c.put(&Entry{Path: dir, Kind: Dir, Mode: 0o755, For: o.why}); err != nil {
			return err
		}
	}
	for _, f := range accounts {
		e := &Entry{Path: f.path, Kind: File, Mode: 0o644, Size: int64(len(f.content)), Content: []byte(f.content), For: o.why}
		if err := c.put(e); err != nil {
			return err
		}
	}
	return nil
}

// topLink adds dir with the directory that it leads to, if it is a link.
func (c *collector) topLink(dir string, o origin) error {
	i, err := c.tree.lstat(dir)
	if err != nil || !i.isSymlink() {
		if err != nil && !skippable(err) {
			return err
		}
		return nil
	}
	return c.chain(dir, o)
}

// facts adds the files that name the system. They are the same on all hosts of
// one release.
func (c *collector) facts() error {
	for _, p := range hostFacts {
		r, err := c.tree.resolve(p)
		if err != nil || !r.info.isRegular() {
			if err != nil && !skippable(err) {
				return err
			}
			continue
		}
		if _, never := neverCopied(r.path); never {
			continue
		}
		if err := c.passed(r.links, origin{why: "every image"}); err != nil {
			return err
		}
		if err := c.file(r.path, r.path, r.info, origin{why: "every image"}); err != nil {
			return err
		}
	}
	return nil
}

// shell adds /bin/sh with its libraries.
func (c *collector) shell() error {
	return c.chain("/bin/sh", origin{why: "every image", scan: true})
}

// commands adds the base commands by name.
func (c *collector) commands() error {
	for _, name := range baseCommands {
		at, ok, err := c.command(name)
		if err != nil {
			return err
		}
		if !ok {
			continue // not missed: hosts differ
		}
		if err := c.chain(at, origin{why: "base command " + name, scan: true}); err != nil {
			return err
		}
	}
	return nil
}

// loaderCache adds a cache of the dynamic loader that names the collected
// libraries only. Without one, libraries outside the built-in directories are
// not found.
func (c *collector) loaderCache() error {
	if c.cache == nil {
		return nil
	}
	kept := c.cache.filter(func(p string) bool {
		r, err := c.tree.resolve(p)
		return err == nil && c.set[r.path] != nil
	})
	if len(kept.entries) == 0 {
		return nil
	}
	content := kept.marshal()
	return c.put(&Entry{
		Path: ldCachePath, Kind: File, Mode: 0o644, Size: int64(len(content)), Content: content,
		For: "the dynamic loader",
	})
}

// readLoaderCache returns nil where there is none in a known form: loaders
// other than glibc's have none.
func readLoaderCache(t *tree) *ldCache {
	data, err := t.readFile(ldCachePath, maxCache)
	if err != nil {
		return nil
	}
	cache, err := parseLDCache(data)
	if err != nil {
		return nil
	}
	return cache
}

// environment suggests a PATH with the directories that hold requested
// programs first, and the one locale that is there.
func environment(requested []requestedPath, set map[string]*Entry) []string {
	search := ""
	for _, r := range requested {
		dir := path.Dir(r.asked)
		if r.info.isDir() {
			dir = path.Join(r.asked, "bin")
			if e := set[path.Join(r.path, "bin")]; e == nil || e.Kind != Dir {
				continue
			}
		}
		if !slices.Contains(commandDirs, dir) && !containsDir(search, dir) {
			search += dir + ":"
		}
	}
	return []string{"PATH=" + search + strings.Join(commandDirs, ":"), "LANG=C.UTF-8"}
}

func containsDir(search, dir string) bool {
	return slices.Contains(strings.Split(search, ":"), dir)
}
