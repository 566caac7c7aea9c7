package fromhost

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
)

// ldCachePath is where the dynamic loader of glibc finds libraries outside its
// built-in directories.
const ldCachePath = "/etc/ld.so.cache"

// The file's format (glibc, sysdeps/generic/dl-cache.h), in the byte order of
// the host: a header, the entries sorted by name for a binary search, and their
// strings. Up to glibc 2.31 it follows an older one.
const ldCacheMagic = "glibc-ld.so.cache1.1"

type ldHeader struct {
	Magic     [20]byte
	Entries   uint32
	StringLen uint32
	Flags     uint32
	Unused    [4]uint32
}

type ldRawEntry struct {
	Flags     uint32 // architecture and kind of C library
	Name      uint32 // offset in the file
	Path      uint32 // offset in the file
	OSVersion uint32
	Hwcap     uint64 // not 0: for some processors only
}

// ldCache is a parsed cache. Entries that are for some processors only are
// dropped: each has a twin for all of them.
type ldCache struct {
	flags   uint32
	entries []ldEntry
}

type ldEntry struct {
	flags      uint32
	name, path string // libz.so.1, /lib/x86_64-linux-gnu/libz.so.1
}

func parseLDCache(data []byte) (*ldCache, error) {
	data = data[max(bytes.Index(data, []byte(ldCacheMagic)), 0):]
	var h ldHeader
	n, err := binary.Decode(data, binary.NativeEndian, &h)
	if err != nil || string(h.Magic[:]) != ldCacheMagic || int64(h.Entries) > int64(len(data)) {
		return nil, errors.New("it is no cache of the dynamic loader")
	}
	raw := make([]ldRawEntry, h.Entries)
	if _, err := binary.Decode(data[n:], binary.NativeEndian, raw); err != nil {
		return nil, err
	}
	text := string(data) // once: all names and paths are parts of it
	at := func(offset uint32) string {
		s, _, _ := strings.Cut(text[min(int(offset), len(text)):], "\x00")
		return s
	}
	c := &ldCache{flags: h.Flags}
	for _, e := range raw {
		if e.Hwcap == 0 {
			c.entries = append(c.entries, ldEntry{e.Flags, at(e.Name), at(e.Path)})
		}
	}
	return c, nil
}

// marshal renders c as ldconfig(8) would write it.
func (c *ldCache) marshal() []byte {
	h := ldHeader{Entries: uint32(len(c.entries)), Flags: c.flags}
	copy(h.Magic[:], ldCacheMagic)
	raw := make([]ldRawEntry, len(c.entries))
	start := binary.Size(h) + binary.Size(raw)
	var text []byte
	add := func(s string) uint32 {
		at := start + len(text)
		text = append(text, s+"\x00"...)
		return uint32(at)
	}
	for i, e := range c.entries {
		raw[i] = ldRawEntry{Flags: e.flags, Name: add(e.name), Path: add(e.path)}
	}
	h.StringLen = uint32(len(text))
	var out bytes.Buffer
	for _, part := range []any{h, raw, text} {
		_ = binary.Write(&out, binary.NativeEndian, part) // a buffer takes all
	}
	return out.Bytes()
}
