package fromhost

import (
	"os"
	"slices"
	"strings"
	"testing"
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
Architecture: all
Version: 5
`

func fixtureIndex(t testing.TB) *software {
	t.Helper()
	all, broken, err := parseStatus([]byte(statusFixture))
	must(t, err)
	if !slices.Equal(broken, []string{"broken"}) {
		t.Errorf("broken: %q", broken)
	}
	return &software{db: &dpkg{broken: broken}, index: newIndex(all), native: nativeArch(all), chosen: map[*Package]bool{}}
}

func names(all []*Package) string {
	var s []string
	for _, p := range all {
		s = append(s, p.Name+":"+p.Arch)
	}
	return strings.Join(s, " ")
}

func TestParseStatus(t *testing.T) {
	s := fixtureIndex(t)
	if got, want := strings.Join(s.index.names, " "), "app extra libc6 other plug postmaster tool"; got != want {
		t.Errorf("installed: %s, want %s", got, want)
	}
	app := s.index.find("app", "amd64")
	var needs []string
	for _, d := range app.depends {
		needs = append(needs, d.String())
	}
	want := "libc6 (>= 2.30); gone | mta; plug (>= 2) | other (>= 1); tool; virtual-old (= 1)"
	if got := strings.Join(needs, "; "); got != want {
		t.Errorf("depends: %s, want %s", got, want)
	}
	if len(app.config) != 3 || app.config["/etc/app.conf"] != "0123456789abcdef0123456789abcdef" {
		t.Errorf("configuration: %q", app.config)
	}
}

func TestParseStatusRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"a path as name":      "Package: ../../etc/x\nStatus: install ok installed\n",
		"no name":             "Status: install ok installed\n",
		"a path as arch":      "Package: a\nArchitecture: ../x\nStatus: install ok installed\n",
		"a field twice":       "Package: a\nPackage: b\n",
		"a continued first":   " x\n",
		"a line without name": "Package: a\nnonsense\n",
		"a line too long":     "Package: " + strings.Repeat("a", maxStanza+1) + "\n",
	} {
		if _, _, err := parseStatus([]byte(text)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestClosure(t *testing.T) {
	s := fixtureIndex(t)
	roots, err := s.requested([]string{"app"})
	must(t, err)
	all, unmet := s.index.closure(roots)
	// plug is too old, so other is taken; mta is provided; libc6 needs app back.
	if got, want := names(all), "app:amd64 libc6:amd64 other:all postmaster:amd64 tool:arm64"; got != want {
		t.Errorf("closure: %s, want %s", got, want)
	}
	if len(unmet) != 0 {
		t.Errorf("unmet: %q", unmet)
	}
	all, _ = s.index.closure(s.withRecommended(roots))
	if !strings.Contains(names(all), "extra:all") || strings.Contains(names(all), "plug") {
		t.Errorf("recommended of the requested only: %s", names(all))
	}
	i386, err := s.requested([]string{"libc6:i386"})
	if err != nil || names(i386) != "libc6:i386" {
		t.Errorf("qualified: %s, %v", names(i386), err)
	}
	_, unmet = newIndex([]*Package{{Name: "x", depends: []anyOf{{{name: "y", op: ">=", version: "2"}, {name: "z"}}}}}).closure(
		[]*Package{{Name: "x", depends: []anyOf{{{name: "y", op: ">=", version: "2"}, {name: "z"}}}}})
	if !slices.Equal(unmet, []string{"x needs y (>= 2) | z"}) {
		t.Errorf("unmet: %q", unmet)
	}
}

func TestMissingPackages(t *testing.T) {
	s := fixtureIndex(t)
	_, err := s.requested([]string{"app", "mta", "broken", "postmastr", "zzzzzz", "app:arm64", "removed"})
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
	if _, err := (&software{}).requested([]string{"x"}); err == nil || !strings.Contains(err.Error(), "neither a dpkg nor an rpm") {
		t.Errorf("without a database: %v", err)
	}
}

func TestDpkgFiles(t *testing.T) {
	tr := open(t, fakeRoot(t, map[string]node{
		"/var/lib/dpkg/status":               file(statusFixture),
		"/var/lib/dpkg/diversions":           file("/usr/bin/x\n/usr/bin/x.real\nwrapper\n/usr/bin/y\n/usr/bin/y.local\n:\n/cut"),
		"/var/lib/dpkg/info/app.list":        file("/.\n/usr\n/usr/bin\n/usr/bin/x\n/usr/bin/y\nrelative\n/usr/../up\n"),
		"/var/lib/dpkg/info/libc6:i386.list": file("/lib/i386\n"), "/var/lib/dpkg/info/libc6:amd64.list": file("/lib/amd64\n"),
	}))
	d, err := openDpkg(tr)
	must(t, err)
	app, wrapper := &Package{Name: "app", Arch: "amd64"}, &Package{Name: "wrapper"}
	render := func(p *Package, chosen ...*Package) string {
		files, err := d.files(p, chosen)
		must(t, err)
		var s []string
		for _, f := range files {
			s = append(s, f.path+"<"+f.source)
		}
		return strings.Join(s, " ")
	}
	plain := "/usr</usr /usr/bin</usr/bin "
	if got, want := render(app, app), plain+"/usr/bin/x</usr/bin/x.real /usr/bin/y</usr/bin/y.local /up</up"; got != want {
		t.Errorf("alone: %s, want %s", got, want)
	}
	if got, want := render(app, app, wrapper), plain+"/usr/bin/x.real</usr/bin/x.real /usr/bin/y</usr/bin/y.local /up</up"; got != want {
		t.Errorf("with the wrapper: %s, want %s", got, want)
	}
	if got := render(&Package{Name: "libc6", Arch: "i386"}); got != "/lib/i386</lib/i386" {
		t.Errorf("multi-arch: %s", got)
	}
	if name, ok := d.owner(aliases("/usr/lib/i386")...); !ok || name != "libc6:i386" {
		t.Errorf("owner: %q", name)
	}
	if name, ok := d.owner("/usr/bin/xx"); ok {
		t.Errorf("owner of an unknown file: %q", name)
	}
	if _, err := d.files(&Package{Name: "none"}, nil); err == nil {
		t.Error("no error without a list")
	}
}

// The host's own database is the largest fixture there is.
func TestHostStatus(t *testing.T) {
	data, err := os.ReadFile(dpkgStatus)
	if err != nil {
		t.Skip("this host has no dpkg")
	}
	all, _, err := parseStatus(data)
	must(t, err)
	x := newIndex(all)
	if _, unmet := x.closure(all); len(unmet) > 0 {
		t.Errorf("dpkg holds all dependencies met, we do not: %q", unmet)
	}
	if got, want := len(all), strings.Count(string(data), "\nStatus: install ok installed\n"); got < want {
		t.Errorf("%d packages, want %d", got, want)
	}
}

func TestParseAlternative(t *testing.T) {
	text := "auto\n/usr/bin/awk\nawk.1.gz\n/usr/share/man/man1/awk.1.gz\n../x\n/usr/bin/evil\nnawk\nrelative\n\n/usr/bin/mawk\n5\n\n"
	got := parseAlternative("awk", []byte(text))
	want := []alternative{{"awk", "/usr/bin/awk"}, {"awk.1.gz", "/usr/share/man/man1/awk.1.gz"}}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, bad := range []string{"", "auto", "x\n/usr/bin/awk\n", "auto\nrelative\n"} {
		if got := parseAlternative("awk", []byte(bad)); len(got) > 0 {
			t.Errorf("%q gives %q", bad, got)
		}
	}
}

func FuzzParseStatus(f *testing.F) {
	f.Add([]byte(statusFixture))
	f.Add([]byte("Package: a\nStatus: install ok installed\nDepends: a (>> 1:2~3-4) | b [!x] (= ), ,|,(\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		all, broken, err := parseStatus(data)
		if err != nil && (all != nil || broken != nil) {
			t.Error("a result beside an error")
		}
		for _, p := range all {
			if strings.ContainsAny(p.Name+p.Arch, "/\x00\n") || p.Name == "" {
				t.Errorf("name %q, architecture %q", p.Name, p.Arch)
			}
			for c := range p.config {
				if c[0] != '/' {
					t.Errorf("configuration file %q", c)
				}
			}
		}
		closed, _ := newIndex(all).closure(all)
		for _, p := range all {
			if !slices.Contains(closed, p) {
				t.Errorf("%s is not in the closure of all", p.Name)
			}
		}
	})
}

func FuzzCompareVersions(f *testing.F) {
	f.Add("1:2.3~rc1-4", "2.3", "0")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		if compareVersions(a, b) != -compareVersions(b, a) || compareVersions(a, a) != 0 {
			t.Errorf("%q and %q are not ordered", a, b)
		}
		if compareVersions(a, b) <= 0 && compareVersions(b, c) <= 0 && compareVersions(a, c) > 0 {
			t.Errorf("%q, %q, %q are not transitive", a, b, c)
		}
	})
}

func TestNear(t *testing.T) {
	x := newIndex([]*Package{{Name: "python3"}, {Name: "libpython3-stdlib"}, {Name: "git"}, {Name: "golang-1.24-go"}, {Name: "curl"}})
	for name, want := range map[string][]string{
		"python":         {"python3", "libpython3-stdlib"},
		"golang":         {"golang-1.24-go"},
		"gitt:arm64":     {"git"},
		"python3-extras": {"python3"},
		"ur":             {"curl"},
		"zzzzzz":         nil,
	} {
		if got := x.near(name); !slices.Equal(got, want) {
			t.Errorf("near %q: %q, want %q", name, got, want)
		}
	}
}
