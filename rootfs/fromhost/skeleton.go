package fromhost

import (
	"archive/tar"
	"io/fs"
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

// skeleton adds what every image has.
func (c *collector) skeleton() {
	for _, dir := range topLinks {
		if i, err := c.lstat(dir); err == nil && i.Mode().Type() == fs.ModeSymlink {
			c.chain(dir, origin{})
		}
	}
	for _, dir := range emptyDirs {
		c.dir(dir)
	}
	for _, f := range accounts {
		c.put(&entry{path: f.path, kind: tar.TypeReg, content: []byte(f.content)})
	}
}

// loaderCache adds a cache of the dynamic loader that names the collected
// libraries only. Without one, libraries outside the built-in directories are
// not found.
func (c *collector) loaderCache() {
	if c.cache == nil {
		return
	}
	c.cache.entries = slices.DeleteFunc(c.cache.entries, func(e ldEntry) bool {
		r, err := c.resolve(e.path)
		return err != nil || c.set[r.path] == nil
	})
	if len(c.cache.entries) > 0 {
		c.put(&entry{path: ldCachePath, kind: tar.TypeReg, content: c.cache.marshal()})
	}
}

// environment suggests a PATH with the directories that hold requested
// programs first, and the one locale that is there. The programs of a package that was
// collected are called by the links that it has for them.
func (c *collector) environment(requested []requestedPath) []string {
	var search []string
	for _, r := range requested {
		dir := path.Dir(r.asked)
		if r.info.IsDir() {
			dir = path.Join(r.asked, "bin")
			if e := c.set[path.Join(r.path, "bin")]; e == nil || e.kind != tar.TypeDir {
				continue
			}
			if c.isCollected(path.Join(r.path, "bin")) {
				continue
			}
		}
		if !slices.Contains(commandDirs, dir) && !slices.Contains(search, dir) {
			search = append(search, dir)
		}
	}
	return []string{"PATH=" + strings.Join(append(search, commandDirs...), ":"), "LANG=C.UTF-8"}
}
