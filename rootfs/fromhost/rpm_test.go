package fromhost

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
)

func rpmFixture(t testing.TB) []byte {
	t.Helper()
	out, err := os.ReadFile(filepath.Join("testdata", "rpm-qa.txt"))
	must(t, err)
	return out
}

func TestParseRPM(t *testing.T) {
	r := &rpm{query: func(_ context.Context, format string) ([]byte, error) {
		if format != rpmFormat {
			t.Errorf("format %q", format)
		}
		return rpmFixture(t), nil
	}}
	all, err := r.load(t.Context())
	must(t, err)
	golden(t, "rpm.golden", renderPackages(all, r))
	x := newIndex(all)
	closed, unmet := x.closure([]*Package{x.find("git-core", "x86_64")})
	want := "bash:x86_64 filesystem:x86_64 git-core:x86_64 glibc:x86_64 glibc-minimal-langpack:x86_64 ncurses-libs:x86_64 zlib-ng-compat:x86_64"
	if got := names(closed); got != want {
		t.Errorf("closure: %s, want %s", got, want)
	}
	if !slices.Equal(unmet, []string{"git-core needs less-absent"}) {
		t.Errorf("unmet: %q", unmet)
	}
	if name, ok := r.owner("/nothing", "/usr/bin/bash"); !ok || name != "bash" {
		t.Errorf("owner of bash: %q", name)
	}
}

func renderPackages(all []*Package, db database) string {
	var b strings.Builder
	for _, p := range all {
		fmt.Fprintf(&b, "%s %s %s\n", p.Name, p.Version, p.Arch)
		for _, d := range p.depends {
			fmt.Fprintf(&b, "  needs %s\n", d)
		}
		for _, d := range p.recommends {
			fmt.Fprintf(&b, "  recommends %s\n", d)
		}
		for _, d := range p.provides {
			fmt.Fprintf(&b, "  provides %s\n", d.name)
		}
		files, _ := db.files(p, all)
		for _, f := range files {
			fmt.Fprintf(&b, "  file %s\n", f.path)
		}
		for _, c := range slices.Sorted(maps.Keys(p.config)) {
			fmt.Fprintf(&b, "  config %s %s\n", c, p.config[c])
		}
	}
	return b.String()
}

func TestParseRPMRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"nothing":       "",
		"a fact first":  "r\tx\n",
		"unknown fact":  "P\ta\t1\tx86_64\nz\tx\n",
		"a path":        "P\t../a\t1\tx86_64\n",
		"missing words": "P\ta\n",
	} {
		if _, _, err := parseRPM([]byte(text)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// A host of the Red Hat family, from the query to the plan.
func TestCollectRPM(t *testing.T) {
	root := fakeRoot(t, map[string]node{
		"/usr/bin/rpm": prog("x"), "/usr/lib/sysimage/rpm/rpmdb.sqlite": file("x"), "/bin": link("usr/bin"), "/lib64": link("usr/lib64"),
		"/usr/bin/bash": prog("x"), "/usr/bin/sh": link("bash"), "/usr/bin/git": prog("x"), "/usr/lib64/libc.so.6": file("x"),
		"/usr/lib64/libz.so.1": file("x"), "/usr/lib64/libtinfo.so.6": file("x"), "/etc/bashrc": file("changed"),
	})
	query := func(context.Context, string) ([]byte, error) { return rpmFixture(t), nil }
	r := Request{Packages: []string{"git-core"}, Limits: ample}
	p, err := Collect(t.Context(), Host{Root: root, RPM: query}, r)
	must(t, err)
	for _, want := range []string{"/usr/bin/git", "/usr/bin/bash", "/usr/bin/sh", "/usr/lib64/libc.so.6", "/usr/lib64/libz.so.1"} {
		if find(p, want) == nil {
			t.Errorf("%s is missing", want)
		}
	}
	if find(p, "/etc/bashrc") != nil || p.LeftOut[LeftConfig] != 1 {
		t.Errorf("changed configuration was copied: %v", p.LeftOut)
	}
	_, err = Collect(t.Context(), Host{Root: root}, r)
	if sbxerr.Of(err) != sbxerr.FromHost || !strings.Contains(err.Error(), "neither") {
		t.Errorf("without rpm: %v", err)
	}
	failing := func(context.Context, string) ([]byte, error) { return nil, os.ErrPermission }
	if _, err = Collect(t.Context(), Host{Root: root, RPM: failing}, r); sbxerr.Of(err) != sbxerr.FromHost {
		t.Errorf("with a failing rpm: %v", err)
	}
}

func FuzzParseRPM(f *testing.F) {
	f.Add(rpmFixture(f))
	f.Fuzz(func(t *testing.T, data []byte) {
		all, files, err := parseRPM(data)
		if err != nil {
			return
		}
		provideFiles(all, ownersOf(all, files))
		for _, p := range all {
			if !packageName.MatchString(p.Name) {
				t.Errorf("name %q", p.Name)
			}
		}
		newIndex(all).closure(all)
	})
}

func TestCapped(t *testing.T) {
	c := capped{limit: 3}
	if _, err := c.Write([]byte("abc")); err != nil {
		t.Error(err)
	}
	if _, err := c.Write([]byte("d")); err == nil {
		t.Error("no error beyond the limit")
	}
}

// Where there is an rpm, its real output is read; else its absence has a code.
func TestQueryRPM(t *testing.T) {
	out, err := QueryRPM(t.Context(), rpmFormat)
	if _, statErr := os.Stat(rpmProgram); statErr != nil {
		if sbxerr.Of(err) != sbxerr.FromHost || !strings.Contains(err.Error(), rpmProgram) {
			t.Errorf("without rpm: %v", err)
		}
		return
	}
	must(t, err)
	if len(out) > 0 {
		_, _, err = parseRPM(out)
		must(t, err)
	}
}
