package filter

import (
	"archive/tar"
	"math"
	"path"
	"slices"
	"strings"
)

// kind is what an entry or a node of the tree is.
type kind uint8

const (
	kindUnknown kind = iota
	kindDir
	kindFile
	kindSymlink
	kindHardlink
	kindDevice
	kindFIFO
	kindWhiteout // hides what lower layers have under its name
	kindOpaque   // hides what lower layers have inside the directory of its name
)

var kindNames = [...]string{
	kindUnknown: "something unknown", kindDir: "a directory", kindFile: "a file", kindSymlink: "a symlink",
	kindHardlink: "a hard link", kindDevice: "a device", kindFIFO: "a fifo",
	kindWhiteout: "a whiteout", kindOpaque: "an opaque whiteout",
}

// String names k in messages.
func (k kind) String() string { return kindNames[k] }

// kinds has no contiguous files (7) and nothing a vendor made up.
var kinds = map[byte]kind{
	tar.TypeReg: kindFile, tar.TypeGNUSparse: kindFile, tar.TypeDir: kindDir,
	tar.TypeSymlink: kindSymlink, tar.TypeLink: kindHardlink,
	tar.TypeChar: kindDevice, tar.TypeBlock: kindDevice, tar.TypeFifo: kindFIFO,
}

// The names that mark whiteouts in a layer:
// https://github.com/opencontainers/image-spec/blob/v1.1.1/layer.md#whiteouts
const (
	whiteoutPrefix = ".wh."
	opaqueName     = ".wh..wh..opq"
)

// Bits of tar's mode field, as in inode(7).
const (
	modeSetuid = 0o4000
	modeSetgid = 0o2000
	modeSticky = 0o1000
	modePerm   = 0o777
)

// meta is what is kept of an inode.
type meta struct {
	mode     uint16
	uid, gid uint16
	mtime    uint32 // seconds since 1970
}

// entry is a tar header as the rules see it. What is written is made from its
// fields alone, so what no field holds cannot get through.
type entry struct {
	path     string // in the archive, without a leading "./" and a directory's trailing "/"
	name     string // what it is about: path, or what a whiteout hides; "" is the root
	kind     kind
	flag     byte // tar's type, for messages
	link     string
	size     int64
	mode     int64
	uid, gid int
	mtime    uint32
	xattrs   []string

	strip string // set by a rule: leave the entry out and count it under this key
}

// parse reads hdr without judging it.
func parse(hdr *tar.Header) *entry {
	e := &entry{
		kind:   kinds[hdr.Typeflag],
		flag:   hdr.Typeflag,
		link:   hdr.Linkname,
		size:   hdr.Size,
		mode:   hdr.Mode,
		uid:    hdr.Uid,
		gid:    hdr.Gid,
		mtime:  uint32(min(max(hdr.ModTime.Unix(), 0), math.MaxUint32)),
		xattrs: xattrNames(hdr),
	}
	e.path = trimName(hdr.Name, e.kind == kindDir)
	e.name = e.path
	if e.kind == kindHardlink {
		e.link = trimName(hdr.Linkname, false)
	}
	e.parseWhiteout()
	return e
}

func (e *entry) parseWhiteout() {
	dir, base := path.Split(e.path)
	switch {
	case base == opaqueName && e.kind == kindFile:
		e.kind, e.name = kindOpaque, strings.TrimSuffix(dir, "/")
	case strings.HasPrefix(base, whiteoutPrefix) && e.kind == kindFile:
		e.kind, e.name = kindWhiteout, dir+strings.TrimPrefix(base, whiteoutPrefix)
	}
}

// trimName takes off what archivers put around a name that says nothing.
func trimName(name string, dir bool) string {
	if dir {
		name = strings.TrimSuffix(name, "/")
		if name == "." {
			return ""
		}
	}
	return strings.TrimPrefix(name, "./")
}

// xattrNames returns the names of hdr's extended attributes in all of the
// spellings that archivers use.
func xattrNames(hdr *tar.Header) []string {
	var names []string
	for key := range hdr.PAXRecords {
		for _, prefix := range []string{"SCHILY.xattr.", "LIBARCHIVE.xattr.", "SCHILY.acl.", "RHT."} {
			if name, ok := strings.CutPrefix(key, prefix); ok {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return names
}

// paths returns the names that must stay inside the image.
func (e *entry) paths() []string {
	if e.kind == kindHardlink {
		return []string{e.path, e.link}
	}
	return []string{e.path}
}

// meta returns what is kept of e's inode.
func (e *entry) meta() meta {
	m := meta{mode: uint16(e.mode & modePerm), uid: uint16(e.uid), gid: uint16(e.gid), mtime: e.mtime}
	switch e.kind {
	case kindDir:
		m.mode = uint16(e.mode & (modePerm | modeSticky))
	case kindSymlink:
		m.mode = modePerm // Linux knows no other: symlink(7)
	}
	return m
}
