package fromhost

import (
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
}

func TestParseLDCacheOldHeader(t *testing.T) {
	data := slices.Concat([]byte("ld.so-1.7.0"), make([]byte, 45), cacheFixture.marshal())
	got, err := parseLDCache(data)
	must(t, err)
	if !reflect.DeepEqual(got, cacheFixture) {
		t.Errorf("got %+v", got)
	}
}

func TestParseLDCacheRefuses(t *testing.T) {
	many := cacheFixture.marshal()
	binary.NativeEndian.PutUint32(many[len(ldCacheMagic):], 1<<31)
	for name, data := range map[string][]byte{
		"empty": nil, "text": []byte(strings.Repeat("x", 100)), "too many entries": many, "the magic alone": []byte(ldCacheMagic),
	} {
		if _, err := parseLDCache(data); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestParseLDCacheDropsVariants(t *testing.T) {
	data := cacheFixture.marshal()
	binary.NativeEndian.PutUint64(data[binary.Size(ldHeader{})+16:], 1<<62) // for some processors only
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
	if !slices.ContainsFunc(c.entries, func(e ldEntry) bool { return e.name == "libc.so.6" }) {
		t.Errorf("no C library among %d entries", len(c.entries))
	}
}

func FuzzParseLDCache(f *testing.F) {
	f.Add(cacheFixture.marshal())
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
