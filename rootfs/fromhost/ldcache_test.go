package fromhost

import (
	"bytes"
	"encoding/binary"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

var cacheFixture = &ldCache{flags: 2, entries: []ldEntry{
	{flags: 0x303, name: "libz.so.1", path: "/lib/x86_64-linux-gnu/libz.so.1"},
	{flags: 0x003, name: "libz.so.1", path: "/lib32/libz.so.1"},
	{flags: 0x303, name: "liba.so", path: "/opt/a/liba.so"},
}}

func TestLDCacheRoundTrip(t *testing.T) {
	got, err := parseLDCache(cacheFixture.marshal())
	must(t, err)
	if !reflect.DeepEqual(got, cacheFixture) {
		t.Errorf("got %+v, want %+v", got, cacheFixture)
	}
	if got, want := got.paths("libz.so.1"), []string{"/lib/x86_64-linux-gnu/libz.so.1", "/lib32/libz.so.1"}; !slices.Equal(got, want) {
		t.Errorf("paths: %q, want %q", got, want)
	}
	kept := got.filter(func(p string) bool { return strings.HasPrefix(p, "/opt") })
	if len(kept.entries) != 1 || kept.flags != 2 {
		t.Errorf("filtered: %+v", kept)
	}
	if (*ldCache)(nil).paths("x") != nil {
		t.Error("no cache finds something")
	}
}

func TestParseLDCacheOldHeader(t *testing.T) {
	old := make([]byte, oldHeader+3*oldEntry) // 52 bytes: padded to 56
	copy(old, oldMagic)
	binary.NativeEndian.PutUint32(old[12:], 3)
	data := slices.Concat(old, make([]byte, 4), cacheFixture.marshal())
	got, err := parseLDCache(data)
	must(t, err)
	if !reflect.DeepEqual(got, cacheFixture) {
		t.Errorf("got %+v", got)
	}
}

func TestParseLDCacheRefuses(t *testing.T) {
	good := cacheFixture.marshal()
	at := func(offset int, v uint32) []byte {
		data := bytes.Clone(good)
		binary.NativeEndian.PutUint32(data[offset:], v)
		return data
	}
	for name, data := range map[string][]byte{
		"empty":               nil,
		"text":                []byte(strings.Repeat("x", 100)),
		"too many entries":    at(offCount, 1<<31),
		"name beyond the end": at(newHeader+4, 1<<31),
		"path without end":    good[:len(good)-1],
		"old header only":     append([]byte(oldMagic), make([]byte, 60)...),
		"old count too large": append([]byte(oldMagic+"\x00"), 0xff, 0xff, 0xff, 0xff),
	} {
		if _, err := parseLDCache(data); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestParseLDCacheDropsVariants(t *testing.T) {
	data := cacheFixture.marshal()
	binary.NativeEndian.PutUint64(data[newHeader+16:], 1<<62) // for some processors only
	got, err := parseLDCache(data)
	must(t, err)
	if len(got.entries) != 2 {
		t.Errorf("%+v", got.entries)
	}
}

func TestHostLDCache(t *testing.T) {
	data, err := os.ReadFile(ldCachePath)
	if err != nil {
		t.Skip("this host has no cache of the loader")
	}
	c, err := parseLDCache(data)
	must(t, err)
	if len(c.paths("libc.so.6")) == 0 {
		t.Errorf("no C library among %d entries", len(c.entries))
	}
}

func FuzzParseLDCache(f *testing.F) {
	f.Add(cacheFixture.marshal())
	f.Add(append([]byte(oldMagic+"\x00"), make([]byte, 80)...))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := parseLDCache(data)
		if err != nil {
			return
		}
		again, err := parseLDCache(c.marshal())
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(again, c) {
			t.Errorf("%+v becomes %+v", c, again)
		}
	})
}
