package fromhost

import (
	"debug/elf"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/tests/need"
)

// collectPath plans an image of one path, with /bin/sh that needs nothing.
func collectPath(t *testing.T, nodes map[string]node, p string) collected {
	t.Helper()
	all := map[string]node{"/bin/sh": prog(elfSpec{}.build())}
	maps.Copy(all, nodes)
	got, err := collect(t, fakeRoot(t, all), Request{Paths: []string{p}})
	must(t, err)
	return got
}

func lib(needed ...string) node { return file(elfSpec{needed: needed}.build()) }

func TestLibraries(t *testing.T) {
	i386 := file(elf32())
	cache := func(entries ...ldEntry) node { return file(string((&ldCache{entries: entries}).marshal())) }
	tests := []struct {
		name  string
		app   elfSpec
		nodes map[string]node
		want  string // libraries in the plan
		miss  int
	}{
		{"built-in directory", elfSpec{needed: []string{"liba.so"}}, map[string]node{"/usr/lib/x86_64-linux-gnu/liba.so": lib()},
			"/usr/lib/x86_64-linux-gnu/liba.so", 0},
		{"cache before built-in", elfSpec{needed: []string{"liba.so"}}, map[string]node{
			"/usr/lib/liba.so": lib(), "/opt/a/liba.so": lib(), "/etc/ld.so.cache": cache(ldEntry{1, "liba.so", "/opt/a/liba.so"})}, "/opt/a/liba.so", 0},
		{"runpath before cache", elfSpec{needed: []string{"liba.so"}, runpath: "/none:$ORIGIN/../r"}, map[string]node{
			"/opt/r/liba.so": lib(), "/opt/a/liba.so": lib(), "/etc/ld.so.cache": cache(ldEntry{1, "liba.so", "/opt/a/liba.so"})}, "/opt/r/liba.so", 0},
		{"runpath is not handed down", elfSpec{needed: []string{"liba.so"}, runpath: "${ORIGIN}/../r"}, map[string]node{
			"/opt/r/liba.so": lib("libb.so"), "/opt/r/libb.so": lib(), "/usr/lib/libb.so": lib()}, "/opt/r/liba.so /usr/lib/libb.so", 0},
		{"rpath is handed down", elfSpec{needed: []string{"liba.so"}, rpath: "/opt/r"}, map[string]node{
			"/opt/r/liba.so": lib("libb.so"), "/opt/r/libb.so": lib(), "/usr/lib/libb.so": lib()}, "/opt/r/liba.so /opt/r/libb.so", 0},
		{"runpath hides rpath", elfSpec{needed: []string{"liba.so"}, rpath: "/opt/r", runpath: "/opt/q"}, map[string]node{
			"/opt/r/liba.so": lib(), "/opt/q/liba.so": lib()}, "/opt/q/liba.so", 0},
		{"wrong architecture is passed over", elfSpec{needed: []string{"liba.so"}}, map[string]node{
			"/lib64/liba.so": i386, "/usr/lib/liba.so": lib()}, "/usr/lib/liba.so", 0},
		{"text is passed over", elfSpec{needed: []string{"liba.so"}}, map[string]node{
			"/lib64/liba.so": file("/* GNU ld script */"), "/usr/lib/liba.so": lib()}, "/usr/lib/liba.so", 0},
		{"with a slash", elfSpec{needed: []string{"/opt/z/liba.so", "./libb.so"}}, map[string]node{"/opt/z/liba.so": lib()}, "/opt/z/liba.so", 1},
		{"cycle", elfSpec{needed: []string{"liba.so"}}, map[string]node{"/lib/liba.so": lib("libb.so"), "/lib/libb.so": lib("liba.so", "libb.so")},
			"/lib/liba.so /lib/libb.so", 0},
		{"missing", elfSpec{needed: []string{"liba.so", "libb.so"}}, nil, "", 2},
		{"in a home", elfSpec{needed: []string{"liba.so"}, runpath: "/home/ann"}, map[string]node{"/home/ann/liba.so": lib()}, "", 0},
		{"not for everybody", elfSpec{needed: []string{"liba.so"}, runpath: "/opt/r"}, map[string]node{
			"/opt/r/liba.so": {text: elfSpec{}.build(), mode: 0o600}}, "", 1},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			nodes := map[string]node{"/opt/bin/app": prog(tc.app.build())}
			maps.Copy(nodes, tc.nodes)
			p := collectPath(t, nodes, "/opt/bin/app")
			var got []string
			for _, p := range p.order {
				if strings.HasSuffix(p, ".so") {
					got = append(got, p)
				}
			}
			miss := ""
			if tc.miss > 0 {
				miss = fmt.Sprintf("%s (%d): ", leftLibrary, tc.miss)
			}
			if w := p.warned(leftLibrary); strings.Join(got, " ") != tc.want || !strings.HasPrefix(w, miss) || miss == "" && w != "" {
				t.Errorf("got %q and %q, want %q and %q", got, w, tc.want, miss)
			}
		})
	}
}

// The cache of the image names what is there and nothing else of the host.
func TestLoaderCacheIsFiltered(t *testing.T) {
	cache := &ldCache{flags: 2, entries: []ldEntry{{3, "libz.so", "/opt/z/libz.so"}, {3, "libsecret.so", "/opt/s/libsecret.so"}}}
	p := collectPath(t, map[string]node{
		"/opt/app": prog(elfSpec{needed: []string{"libz.so"}}.build()), "/opt/z/libz.so": lib(), "/opt/s/libsecret.so": lib(),
		"/etc/ld.so.cache": file(string(cache.marshal())),
	}, "/opt/app")
	content := p.content[ldCachePath]
	got, err := parseLDCache([]byte(content))
	must(t, err)
	if len(got.entries) != 1 || got.entries[0] != cache.entries[0] || got.flags != 2 {
		t.Errorf("got %+v", got)
	}
	if strings.Contains(content, "secret") {
		t.Error("the cache names a library that stays behind")
	}
}

func TestInterpreter(t *testing.T) {
	tests := []struct{ line, program, command string }{
		{"#!/bin/sh\necho", "/bin/sh", ""},
		{"#! /usr/bin/perl -w\n", "/usr/bin/perl", ""},
		{"#!/usr/bin/env python3\n", "/usr/bin/env", "python3"},
		{"#!/usr/bin/env -S A=1 node --x", "/usr/bin/env", "node"},
		{"#!/usr/bin/env", "/usr/bin/env", ""},
		{"#!python\n", "", ""},
		{"#!\n/bin/sh", "", ""},
		{"#!", "", ""},
	}
	for _, tc := range tests {
		if program, command := interpreter([]byte(tc.line)); program != tc.program || command != tc.command {
			t.Errorf("%q: %q, %q", tc.line, program, command)
		}
	}
}

func TestScripts(t *testing.T) {
	p := collectPath(t, map[string]node{
		"/opt/a/run": prog("#!/usr/bin/env tool\n"), "/opt/a/two": prog("#!/usr/local/bin/next -x\n"), "/opt/a/abs": prog("#!/usr/bin/env /usr/bin/abs\n"),
		"/opt/a/lost": prog("#!/usr/bin/env lost\n"), "/opt/a/page": file("#!/usr/bin/unused\n"),
		"/usr/bin/env": prog(elfSpec{needed: []string{"libenv.so"}}.build()), "/usr/lib/libenv.so": lib(), "/usr/bin/abs": prog("x"),
		"/usr/local/bin/next": prog("#!/usr/bin/last\n"), "/usr/bin/last": prog("x"), "/usr/bin/tool": link("tool-1"), "/usr/bin/tool-1": prog("x"),
		"/usr/bin/unused": prog("x"),
	}, "/opt/a")
	for _, want := range []string{"/usr/bin/env", "/usr/lib/libenv.so", "/usr/bin/abs", "/usr/local/bin/next", "/usr/bin/last", "/usr/bin/tool", "/usr/bin/tool-1"} {
		if p.headers[want] == nil {
			t.Errorf("%s is missing", want)
		}
	}
	if p.headers["/usr/bin/unused"] != nil {
		t.Error("the interpreter of a file that nobody runs was taken")
	}
	if p.warned(leftInterpreter) != "interpreter not found (1): lost for /opt/a/lost" {
		t.Errorf("warnings %q", p.warnings)
	}
}

// Every library that a program of the host's own packages needs is in the plan:
// the standard library says what is needed, dpkg what belongs together.
func TestHostPrograms(t *testing.T) {
	need.Tools(t, "dpkg-query")
	got, err := collect(t, "/", Request{Packages: []string{"bash", "tar"}, Paths: []string{"/bin/bash"}})
	must(t, err)
	base := map[string]bool{}
	for _, p := range got.order {
		base[path.Base(p)] = true
	}
	programs := 0
	for p, content := range got.content {
		f, err := elf.NewFile(strings.NewReader(content))
		if err != nil || path.Dir(p) != "/usr/bin" {
			continue
		}
		programs++
		needed, _ := f.ImportedLibraries()
		for _, n := range needed {
			if !base[n] {
				t.Errorf("%s needs %s", p, n)
			}
		}
	}
	if programs < 50 || !base["sh"] || !base["ls"] {
		t.Errorf("%d programs", programs)
	}
	if !slices.ContainsFunc(got.warnings, func(w string) bool { return strings.Contains(w, "--package bash") }) {
		t.Errorf("no hint at the package: %q", got.warnings)
	}
}
