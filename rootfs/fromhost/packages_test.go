package fromhost

import (
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/tests/need"
)

const statusFixture = `Package: app
Status: install ok installed
Architecture: amd64
Version: 1.0-1
Pre-Depends: libc6 (>= 2.30)
Depends: gone | mta, plug (>= 2) | other (>= 1),
 tool:any, virtual-old (= 1)
Recommends: extra, absent
Conffiles:
 /etc/app.conf 0123456789abcdef0123456789abcdef
 /etc/app.old 0123456789abcdef0123456789abcdee obsolete
 /etc/app.new newconffile
Description: an app
 Depends: nothing, this is text
 .
 more

Package: libc6
Status: install ok installed
Architecture: amd64
Multi-Arch: same
Version: 2.36-9
Depends: app

Package: libc6
Status: install ok installed
Architecture: i386
Multi-Arch: same
Version: 2.36-9

Package: postmaster
Status: install ok triggers-pending
Triggers-Pending: x
Architecture: amd64
Version: 3
Provides: mta, virtual-old (= 1)

Package: plug
Status: install ok installed
Architecture: amd64
Version: 1.9

Package: other
Status: hold ok installed
Architecture: all
Version: 5
Depends: libc6

Package: tool
Status: install ok installed
Architecture: arm64
Multi-Arch: foreign
Version: 5

Package: extra
Status: install ok installed
Architecture: all
Version: 5
Recommends: plug

Package: removed
Status: deinstall ok config-files
Architecture: all
Version: 5

Package: broken
Status: install ok half-configured
Config-Version: 4
Architecture: all
Version: 5
`

// fixtureDpkg is a host with the packages of statusFixture.
func fixtureDpkg(t testing.TB) (*dpkg, *index) {
	t.Helper()
	need.Tools(t, "dpkg-query")
	root := fakeRoot(t, map[string]node{
		dpkgQuery:                            prog("#!/bin/sh\nexec dpkg-query \"$@\"\n"),
		"/var/lib/dpkg/status":               file(statusFixture),
		"/var/lib/dpkg/diversions":           file("/usr/bin/x\n/usr/bin/x.real\nwrapper\n/usr/bin/y\n/usr/bin/y.local\n:\n"),
		"/var/lib/dpkg/info/format":          file("1\n"),
		"/var/lib/dpkg/info/app.list":        file("/.\n/usr\n/usr/bin\n/usr/bin/x\n/usr/bin/y\nrelative\n/usr/../up\n"),
		"/var/lib/dpkg/info/libc6:i386.list": file("/lib/i386\n"), "/var/lib/dpkg/info/libc6:amd64.list": file("/lib/amd64\n"),
	})
	db, x, err := openDpkg(&host{root: root})
	must(t, err)
	return db.(*dpkg), x
}

func names(all []*pkg) string {
	var s []string
	for _, p := range all {
		s = append(s, p.name+":"+p.arch)
	}
	return strings.Join(s, " ")
}

func TestDpkgPackages(t *testing.T) {
	_, x := fixtureDpkg(t)
	if !slices.Equal(x.broken, []string{"broken"}) || x.native != "amd64" {
		t.Errorf("broken %q, native %q", x.broken, x.native)
	}
	if len(x.byName) != 7 || x.byName["removed"] != nil {
		t.Errorf("installed: %v", x.byName)
	}
	app := x.find("app")
	var needs []string
	for _, d := range app.depends {
		needs = append(needs, strings.Join(d, " | "))
	}
	if got, want := strings.Join(needs, "; "), "libc6; gone | mta; plug | other; tool:any; virtual-old"; got != want {
		t.Errorf("depends: %s, want %s", got, want)
	}
	if len(app.config) != 3 || app.config["/etc/app.conf"] != "0123456789abcdef0123456789abcdef" {
		t.Errorf("configuration: %q", app.config)
	}
}

func TestParsePackagesRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"a path as name": "P\t../x\tamd64\tok installed\n", "no name": "P\t\tamd64\tok installed\n", "a path as arch": "P\ta\t../x\tok installed\n",
		"a fact first": "r\tx\n", "unknown fact": "P\ta\tall\tok installed\nz\tx\n", "missing words": "P\ta\n",
	} {
		if _, err := parsePackages(text); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestClosure(t *testing.T) {
	_, x := fixtureDpkg(t)
	var reasons sbxerr.Reasons
	roots := x.requested([]string{"app"}, &reasons)
	all, unmet := x.closure(roots)
	// plug may be too old, so other is taken as well; mta is provided; libc6 needs app back.
	if got, want := names(all), "app:amd64 libc6:amd64 other:all plug:amd64 postmaster:amd64 tool:arm64"; got != want {
		t.Errorf("closure: %s, want %s", got, want)
	}
	if len(unmet) != 0 {
		t.Errorf("unmet: %q", unmet)
	}
	c := collector{index: x}
	if got := names(c.withBase(roots)); got != "app:amd64 extra:all" {
		t.Errorf("recommended of the requested only: %s", got)
	}
	if i386 := x.requested([]string{"libc6:i386"}, &reasons); names(i386) != "libc6:i386" {
		t.Errorf("qualified: %s", names(i386))
	}
	must(t, reasons.Err())
	x, err := parsePackages("P\tx\tall\tok installed\nr\ty (>= 2) | z\n")
	must(t, err)
	if _, unmet := x.closure(x.byName["x"]); !slices.Equal(unmet, []string{"x needs y | z"}) {
		t.Errorf("unmet: %q", unmet)
	}
}

func TestMissingPackages(t *testing.T) {
	_, x := fixtureDpkg(t)
	var reasons sbxerr.Reasons
	x.requested([]string{"app", "mta", "broken", "postmastr", "zzzzzz", "app:arm64", "removed"}, &reasons)
	err := reasons.Err()
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		`"mta" is virtual: name one that provides it: postmaster`, `"broken" is only partly installed`,
		`"postmastr" is not installed: did you mean postmaster?`, `"zzzzzz" is not installed`, `"app:arm64" is not installed`, `"removed"`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v\ndoes not say %s", err, want)
		}
	}
	if strings.Contains(err.Error(), `"app" is`) {
		t.Errorf("an installed package is missing: %v", err)
	}
}

func TestDpkgFiles(t *testing.T) {
	d, _ := fixtureDpkg(t)
	app := &pkg{name: "app", arch: "amd64"}
	render := func(p *pkg, chosen ...string) string {
		files, err := d.files(p, func(name string) bool { return slices.Contains(chosen, name) })
		must(t, err)
		var s []string
		for _, f := range files {
			s = append(s, f.path+"<"+f.source)
		}
		return strings.Join(s, " ")
	}
	plain := "/usr</usr /usr/bin</usr/bin "
	if got, want := render(app, "app"), plain+"/usr/bin/x</usr/bin/x.real /usr/bin/y</usr/bin/y.local /up</up"; got != want {
		t.Errorf("alone: %s, want %s", got, want)
	}
	if got, want := render(app, "app", "wrapper"), plain+"/usr/bin/x.real</usr/bin/x.real /usr/bin/y</usr/bin/y.local /up</up"; got != want {
		t.Errorf("with the wrapper: %s, want %s", got, want)
	}
	if got := render(&pkg{name: "libc6", arch: "i386"}); got != "/lib/i386</lib/i386" {
		t.Errorf("multi-arch: %s", got)
	}
	if name := d.owner(aliases("/usr/lib/i386")...); name != "libc6:i386" {
		t.Errorf("owner: %q", name)
	}
	for _, p := range []string{"/usr/bin/xx", "/usr/bin/*"} {
		if name := d.owner(p); name != "" {
			t.Errorf("owner of %s: %q", p, name)
		}
	}
	if _, err := d.files(&pkg{name: "none"}, nil); err == nil {
		t.Error("no error without a list")
	}
}

// The host's own database is the largest fixture there is.
func TestHostPackages(t *testing.T) {
	need.Tools(t, "dpkg-query")
	_, x, err := openDpkg(&host{})
	must(t, err)
	out, err := exec.Command("sh", "-c", "dpkg-query -W -f '${db:Status-Status}\n' | grep -c '^installed$'").Output()
	must(t, err)
	var all []*pkg
	for _, p := range x.byName {
		all = append(all, p...)
	}
	if _, unmet := x.closure(all); len(unmet) > 0 {
		t.Errorf("dpkg holds all dependencies met, we do not: %q", unmet)
	}
	if got, want := len(all), strings.TrimSpace(string(out)); strconv.Itoa(got) != want {
		t.Errorf("%d packages, want %s", got, want)
	}
}

func FuzzParsePackages(f *testing.F) {
	f.Add(rpmFixture(f))
	f.Add("P\ta\tall\tok installed\nr\ta (>> 1:2~3-4) | b:any, ,|,(\n /etc/x 0 \n")
	f.Fuzz(func(t *testing.T, text string) {
		x, err := parsePackages(text)
		if err != nil {
			return
		}
		for name, all := range x.byName {
			if strings.ContainsAny(name+all[0].arch, "/\x00\n") || name == "" {
				t.Errorf("name %q, architecture %q", name, all[0].arch)
			}
			if closed, _ := x.closure(all); len(closed) < len(all) {
				t.Errorf("%s is not in its own closure", name)
			}
		}
	})
}

func TestNear(t *testing.T) {
	x := &index{byName: map[string][]*pkg{"python3": nil, "libpython3-stdlib": nil, "git": nil, "golang-1.24-go": nil, "curl": nil}}
	for name, want := range map[string][]string{
		"python": {"python3", "libpython3-stdlib"}, "golang": {"golang-1.24-go"}, "gitt": {"git"}, "python3-extras": {"python3"}, "ur": {"curl"}, "zzzzzz": {},
	} {
		if got := x.near(name); !slices.Equal(got, want) {
			t.Errorf("near %q: %q, want %q", name, got, want)
		}
	}
}
