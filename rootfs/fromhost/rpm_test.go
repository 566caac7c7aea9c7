package fromhost

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
)

func rpmFixture(t testing.TB) string {
	t.Helper()
	out, err := os.ReadFile(filepath.Join("testdata", "rpm-qa.txt"))
	must(t, err)
	return string(out)
}

// rpmHost is a host of the Red Hat family with the packages of the fixture.
func rpmHost(t testing.TB) map[string]node {
	t.Helper()
	return map[string]node{
		rpmProgram: prog("#!/bin/sh\n[ \"$1 $2 $3\" = '-qa --qf " + rpmFormat + "' ] && cat \"${0%/*}/../share/rpm-qa.txt\"\n"), "/usr/share/rpm-qa.txt": file(rpmFixture(t)),
		"/usr/lib/sysimage/rpm/rpmdb.sqlite": file("x"), "/bin": link("usr/bin"), "/lib64": link("usr/lib64"),
		"/usr/bin/bash": prog("x"), "/usr/bin/sh": link("bash"), "/usr/bin/git": prog("x"), "/usr/lib64/libc.so.6": file("x"),
		"/usr/lib64/libz.so.1": file("x"), "/usr/lib64/libtinfo.so.6": file("x"), "/etc/bashrc": file("changed"),
	}
}

func TestRPMPackages(t *testing.T) {
	db, x, err := openRPM(&host{root: fakeRoot(t, rpmHost(t))})
	must(t, err)
	golden(t, "rpm.golden", renderPackages(x))
	closed, unmet := x.closure([]*pkg{x.find("git-core")})
	want := "bash:x86_64 filesystem:x86_64 git-core:x86_64 glibc:x86_64 glibc-minimal-langpack:x86_64 ncurses-libs:x86_64 zlib-ng-compat:x86_64"
	if got := names(closed); got != want {
		t.Errorf("closure: %s, want %s", got, want)
	}
	if !slices.Equal(unmet, []string{"git-core needs less-absent"}) {
		t.Errorf("unmet: %q", unmet)
	}
	if name := db.owner("/nothing", "/usr/bin/bash"); name != "bash" {
		t.Errorf("owner of bash: %q", name)
	}
}

func renderPackages(x *index) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(x.byName)) {
		for _, p := range x.byName[name] {
			fmt.Fprintf(&b, "%s %s\n", p.name, p.arch)
			for _, d := range p.depends {
				fmt.Fprintf(&b, "  needs %s\n", strings.Join(d, " | "))
			}
			for _, d := range p.recommends {
				fmt.Fprintf(&b, "  recommends %s\n", strings.Join(d, " | "))
			}
			for _, f := range p.files {
				fmt.Fprintf(&b, "  file %s %s %v\n", f.path, f.digest, f.config)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(x.providers)) {
		fmt.Fprintf(&b, "%s is provided by %s\n", name, names(x.providers[name]))
	}
	return b.String()
}

// A host of the Red Hat family, from the query to the image.
func TestCollectRPM(t *testing.T) {
	root := fakeRoot(t, rpmHost(t))
	got, err := collect(t, root, Request{Packages: []string{"git-core"}})
	must(t, err)
	for _, want := range []string{"/usr/bin/git", "/usr/bin/bash", "/usr/bin/sh", "/usr/lib64/libc.so.6", "/usr/lib64/libz.so.1"} {
		if got.headers[want] == nil {
			t.Errorf("%s is missing", want)
		}
	}
	if got.headers["/etc/bashrc"] != nil || got.warned(leftConfig) != "configuration changed on this host (1): /etc/bashrc" {
		t.Errorf("changed configuration was copied: %q", got.warnings)
	}
	must(t, os.Remove(filepath.Join(root, "/usr/share/rpm-qa.txt")))
	if _, err = collect(t, root, Request{Packages: []string{"git-core"}}); sbxerr.Of(err) != sbxerr.FromHost || !strings.Contains(err.Error(), "No such file") {
		t.Errorf("with a failing rpm: %v", err)
	}
}
