package fromhost

import (
	"bytes"
	"encoding/binary"
	"errors"
	"path"
	"strings"
)

// ldCachePath is where the dynamic loader of glibc finds libraries outside its
// built-in directories. It reads no other file: /etc/ld.so.conf is only for
// ldconfig(8).
const ldCachePath = "/etc/ld.so.cache"

const maxCache = 64 << 20

// The file's format (glibc, sysdeps/generic/dl-cache.h), in the byte order of
// the host: a header with the number of entries, the entries sorted by name
// for a binary search, and their strings.
const (
	oldMagic      = "ld.so-1.7.0"
	oldHeader     = 16
	oldEntry      = 12
	newMagic      = "glibc-ld.so.cache1.1"
	newHeader     = 48
	newEntry      = 24
	offCount      = 20
	offStringSize = 24
	offFlags      = 28
)

var errBadCache = errors.New("not a cache of the dynamic loader")

// ldCache is a parsed cache. Entries that are for some processors only are
// dropped: each has a twin for all of them.
type ldCache struct {
	flags   byte // byte order, as of glibc 2.33; 0 when it is not said
	entries []ldEntry
}

type ldEntry struct {
	flags uint32 // architecture and kind of C library
	name  string // libz.so.1
	path  string // /lib/x86_64-linux-gnu/libz.so.1
}

// parseLDCache reads the present format, also where it follows the one of
// glibc before 2.2, as ldconfig wrote it up to 2.31.
func parseLDCache(data []byte) (*ldCache, error) {
	if bytes.HasPrefix(data, []byte(oldMagic)) && len(data) >= oldHeader {
		count := int64(binary.NativeEndian.Uint32(data[12:]))
		skip := (oldHeader + count*oldEntry + 7) / 8 * 8
		if skip > int64(len(data)) {
			return nil, errBadCache
		}
		data = data[skip:]
	}
	if len(data) < newHeader || !bytes.HasPrefix(data, []byte(newMagic)) {
		return nil, errBadCache
	}
	count := int64(binary.NativeEndian.Uint32(data[offCount:]))
	if newHeader+count*newEntry > int64(len(data)) {
		return nil, errBadCache
	}
	c := &ldCache{flags: data[offFlags]}
	text := string(data) // once: all names and paths are parts of it
	for i := range count {
		raw := data[newHeader+i*newEntry:]
		e := ldEntry{flags: binary.NativeEndian.Uint32(raw)}
		var okName, okPath bool
		e.name, okName = stringAt(text, binary.NativeEndian.Uint32(raw[4:]))
		e.path, okPath = stringAt(text, binary.NativeEndian.Uint32(raw[8:]))
		if !okName || !okPath {
			return nil, errBadCache
		}
		if binary.NativeEndian.Uint64(raw[16:]) == 0 && path.IsAbs(e.path) && e.name != "" {
			c.entries = append(c.entries, e)
		}
	}
	return c, nil
}

func stringAt(text string, at uint32) (string, bool) {
	if int64(at) >= int64(len(text)) {
		return "", false
	}
	text = text[at:]
	end := strings.IndexByte(text[:min(len(text), maxString)], 0)
	if end < 0 {
		return "", false
	}
	return text[:end], true
}

// paths returns where libraries called name are, the preferred first.
func (c *ldCache) paths(name string) []string {
	if c == nil {
		return nil
	}
	var found []string
	for _, e := range c.entries {
		if e.name == name {
			found = append(found, e.path)
		}
	}
	return found
}

// filter keeps the entries whose path passes. Order, and with it the binary
// search, is kept.
func (c *ldCache) filter(pass func(string) bool) *ldCache {
	kept := &ldCache{flags: c.flags}
	for _, e := range c.entries {
		if pass(e.path) {
			kept.entries = append(kept.entries, e)
		}
	}
	return kept
}

// marshal renders c as ldconfig would write it.
func (c *ldCache) marshal() []byte {
	var text bytes.Buffer
	seen := map[string]uint32{}
	start := newHeader + len(c.entries)*newEntry
	intern := func(s string) uint32 {
		at, ok := seen[s]
		if !ok {
			at = uint32(start + text.Len())
			seen[s] = at
			text.WriteString(s + "\x00")
		}
		return at
	}
	out := make([]byte, start)
	copy(out, newMagic)
	for i, e := range c.entries {
		raw := out[newHeader+i*newEntry:]
		binary.NativeEndian.PutUint32(raw, e.flags)
		binary.NativeEndian.PutUint32(raw[4:], intern(e.name))
		binary.NativeEndian.PutUint32(raw[8:], intern(e.path))
	}
	binary.NativeEndian.PutUint32(out[offCount:], uint32(len(c.entries)))
	binary.NativeEndian.PutUint32(out[offStringSize:], uint32(text.Len()))
	out[offFlags] = c.flags
	return append(out, text.Bytes()...)
}
