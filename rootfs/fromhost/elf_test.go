package fromhost

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestReadELF(t *testing.T) {
	for _, class := range []elf.Class{elf.ELFCLASS64, elf.ELFCLASS32} {
		for _, order := range []binary.ByteOrder{binary.LittleEndian, binary.BigEndian} {
			s := elfSpec{
				class: class, order: order, machine: elf.EM_PPC64, interp: "/lib/ld.so", needed: []string{"liba.so.1", "libb.so"},
				runpath: "/opt/x/lib:$ORIGIN/../lib:", rpath: "/ignored",
			}
			o, err := readELF(strings.NewReader(s.build()))
			if err != nil {
				t.Fatalf("%v %v: %v", class, order, err)
			}
			if o.class != class || o.machine != elf.EM_PPC64 || o.interp != "/lib/ld.so" || !slices.Equal(o.needed, s.needed) ||
				!slices.Equal(o.runpath, []string{"/opt/x/lib", "$ORIGIN/../lib"}) || o.rpath != nil {
				t.Errorf("%v %v: %+v", class, order, o)
			}
		}
	}
	o, err := readELF(strings.NewReader(elfSpec{typ: elf.ET_REL, needed: []string{"x"}}.build()))
	if err != nil || o.needed != nil {
		t.Errorf("an object file: %+v, %v", o, err)
	}
}

func TestReadELFRefuses(t *testing.T) {
	good := elfSpec{interp: "/lib/ld.so", needed: []string{"liba.so"}}.build()
	at := func(offset int, with string) string { return good[:offset] + with + good[offset+len(with):] }
	tests := map[string]struct {
		data string
		want error
	}{
		"empty":                  {"", errNotELF},
		"text":                   {"#!/bin/sh\necho this is no program, and long enough to be one\n", errNotELF},
		"only the magic":         {"\x7fELF", errNotELF},
		"cut in the header":      {good[:40], errBadELF},
		"cut in the table":       {good[:100], errBadELF},
		"cut in the strings":     {good[:240], errBadELF},
		"unknown class":          {at(4, "\x09"), errBadELF},
		"unknown order":          {at(5, "\x09"), errBadELF},
		"table beyond the file":  {at(32, "\xff\xff\xff\x7f"), errBadELF},
		"table at -1":            {at(32, "\xff\xff\xff\xff\xff\xff\xff\xff"), errBadELF},
		"headers of no size":     {at(54, "\x00\x00"), errBadELF},
		"too many headers":       {at(56, "\xff\xff"), errBadELF},
		"dynamic beyond the end": {at(64+56+8, "\xff\xff\xff\x7f"), errBadELF},
		"no loaded segment":      {at(64, "\x00"), errBadELF},
	}
	for name, tc := range tests {
		if _, err := readELF(strings.NewReader(tc.data)); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
	}
}

// What the standard library reads of the host's own programs is what we read.
func TestReadELFLikeTheStandardLibrary(t *testing.T) {
	compared := 0
	for _, pattern := range []string{"/usr/bin/[a-g]*", "/usr/lib/*-linux-gnu/lib[a-g]*.so*", "/usr/lib64/lib[a-g]*.so*", "/bin/busybox"} {
		files, err := filepath.Glob(pattern)
		must(t, err)
		for _, name := range files[:min(len(files), 150)] {
			if compareELF(t, name) {
				compared++
			}
		}
	}
	t.Logf("%d files compared", compared)
	if compared == 0 {
		t.Skip("this host has no ELF file in the usual places")
	}
}

func compareELF(t *testing.T, name string) bool {
	data, err := os.ReadFile(name)
	if err != nil {
		return false
	}
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return false
	}
	o, err := readELF(bytes.NewReader(data))
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return false
	}
	needed, _ := f.ImportedLibraries()
	runpath, _ := f.DynString(elf.DT_RUNPATH)
	if !slices.Equal(o.needed, needed) || strings.Join(o.runpath, ":") != strings.Join(runpath, ":") || o.machine != f.Machine {
		t.Errorf("%s: needs %q by %q, want %q by %q", name, o.needed, o.runpath, needed, runpath)
	}
	return true
}

func FuzzReadELF(f *testing.F) {
	f.Add([]byte(elfSpec{interp: "/lib/ld.so", needed: []string{"liba.so", "libb.so"}, rpath: "$ORIGIN:/x"}.build()))
	f.Add([]byte(elfSpec{class: elf.ELFCLASS32, order: binary.BigEndian, needed: []string{"liba.so"}}.build()))
	f.Fuzz(func(t *testing.T, data []byte) {
		o, err := readELF(bytes.NewReader(data))
		if err != nil {
			if !errors.Is(err, errNotELF) && !errors.Is(err, errBadELF) {
				t.Error(err)
			}
			return
		}
		if len(o.needed) > maxNeeded {
			t.Errorf("%d libraries", len(o.needed))
		}
		for _, s := range slices.Concat(o.needed, o.rpath, o.runpath, []string{o.interp}) {
			if strings.Contains(s, "\x00") || len(s) > maxString {
				t.Errorf("string of %d bytes", len(s))
			}
		}
	})
}
