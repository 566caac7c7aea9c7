package filter

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
)

func paxed(key, value string) func(*tar.Header) {
	return func(h *tar.Header) { h.PAXRecords = map[string]string{key: value} }
}

func owned(uid, gid int) func(*tar.Header) {
	return func(h *tar.Header) { h.Uid, h.Gid, h.Format = uid, gid, tar.FormatPAX }
}

func moded(mode int64) func(*tar.Header) { return func(h *tar.Header) { h.Mode = mode } }

// ruleCases are attempts, each against one rule. All but the last layer are
// honest. strip is what is counted; without it the entry must be refused.
var ruleCases = []struct {
	rule   string
	name   string
	layers [][]ent
	strip  string
}{
	{"name-length", "path", [][]ent{{file(strings.Repeat("0123456789abcdef/", 240)+strings.Repeat("x", 20), "")}}, ""},
	{"name-length", "component", [][]ent{{file(strings.Repeat("x", 256), "")}}, ""},
	{"name-length", "depth", [][]ent{{file(strings.Repeat("x/", 255)+"x", "")}}, ""},
	{"name-relative", "absolute", [][]ent{{file("/abs", "")}}, ""},
	{"name-relative", "absolute after dot", [][]ent{{file(".//abs", "")}}, ""},
	{"name-clean", "parent", [][]ent{{file("../x", "")}}, ""},
	{"name-clean", "parent within", [][]ent{{file("a/../../x", "")}}, ""},
	{"name-clean", "dot", [][]ent{{file("a/./x", "")}}, ""},
	{"name-clean", "empty component", [][]ent{{file("a//x", "")}}, ""},
	{"name-clean", "file with a slash", [][]ent{{symlink("a/", "b")}}, ""},
	{"name-clean", "symlink as root", [][]ent{{symlink("./", "/")}}, ""},
	{"name-clean", "file as root", [][]ent{{file(".", "")}}, ""},
	{"whiteout-form", "nameless", [][]ent{{dir("a")}, {file("a/.wh.", "")}}, ""},
	{"whiteout-form", "of the directory", [][]ent{{dir("a")}, {file("a/.wh..", "")}}, ""},
	{"whiteout-form", "of the parent", [][]ent{{dir("a")}, {file("a/.wh...", "")}}, ""},
	{"whiteout-form", "as a parent", [][]ent{{file(".wh.a/x", "")}}, ""},
	{"whiteout-form", "of a whiteout", [][]ent{{file(".wh..wh.aufs", "")}}, ""},
	{"whiteout-form", "directory", [][]ent{{dir(".wh..wh.plnk")}}, ""},
	{"whiteout-form", "symlink", [][]ent{{dir("a")}, {symlink(".wh.a", "b")}}, ""},
	{"whiteout-form", "opaque directory", [][]ent{{dir("a")}, {dir("a/.wh..wh..opq")}}, ""},
	{"whiteout-form", "with content", [][]ent{{dir("a")}, {file(".wh.a", "text")}}, ""},
	{"type", "contiguous", [][]ent{{typed("a", '7')}}, ""},
	{"type", "vendor", [][]ent{{typed("a", 'Z')}}, ""},
	{"owner", "uid", [][]ent{{file("a", "").with(owned(65536, 0))}}, ""},
	{"owner", "gid", [][]ent{{file("a", "").with(owned(0, 1<<31))}}, ""},
	{"owner", "of a link", [][]ent{{symlink("a", "b").with(owned(1<<20, 0))}}, ""},
	{"symlink-target", "empty", [][]ent{{symlink("a", "")}}, ""},
	{"symlink-target", "too long", [][]ent{{symlink("a", strings.Repeat("x/", 2048))}}, ""},
	{"special-dirs", "dev symlink", [][]ent{{symlink("dev", "/tmp")}}, ""},
	{"special-dirs", "proc file", [][]ent{{file("proc", "")}}, ""},
	{"special-dirs", "sys hard link", [][]ent{{file("a", ""), hardlink("sys", "a")}}, ""},
	{"special-dirs", "dev device", [][]ent{{typed("dev", tar.TypeChar)}}, ""},
	{"special-dirs", "proc fifo", [][]ent{{typed("./proc", tar.TypeFifo)}}, ""},
	{"special-dirs", "symlink inside", [][]ent{{symlink("dev/null", "/etc/passwd")}}, StripSpecial},
	{"special-dirs", "directory inside", [][]ent{{dir("dev/pts")}}, StripSpecial},
	{"special-dirs", "file inside", [][]ent{{file("proc/version", "x")}}, StripSpecial},
	{"special-dirs", "whiteout inside", [][]ent{{dir("a")}, {file("sys/.wh.kernel", "")}}, StripSpecial},
	{"mount-points", "tmp symlink", [][]ent{{symlink("tmp", "var/tmp")}}, ""},
	{"mount-points", "home file", [][]ent{{file("home", "")}}, ""},
	{"mount-points", "run symlink", [][]ent{{symlink("run", "/")}}, ""},
	{"mount-points", "var/tmp symlink", [][]ent{{symlink("var/tmp", "/tmp")}}, ""},
	{"mount-points", "workspace device", [][]ent{{typed("workspace", tar.TypeBlock)}}, ""},
	{"mount-points", "etc symlink", [][]ent{{symlink("etc", "usr/etc")}}, ""},
	{"devices", "character", [][]ent{{typed("x/y", tar.TypeChar).with(func(h *tar.Header) { h.Devmajor, h.Devminor = 10, 203 })}}, StripDevice},
	{"devices", "block", [][]ent{{typed("sda", tar.TypeBlock).with(func(h *tar.Header) { h.Devmajor = 8 })}}, StripDevice},
	{"devices", "overlay whiteout", [][]ent{{file("a", "")}, {typed("a", tar.TypeChar)}}, StripDevice},
	{"devices", "fifo", [][]ent{{typed("pipe", tar.TypeFifo)}}, StripFIFO},
	{"set-id", "setuid", [][]ent{{file("su", "x").with(moded(0o4755))}}, StripSetuid},
	{"set-id", "setgid", [][]ent{{file("wall", "x").with(moded(0o2755))}}, StripSetgid},
	{"set-id", "setgid directory", [][]ent{{dir("mail").with(moded(0o2775))}}, StripSetgid},
	{"set-id", "sticky file", [][]ent{{file("a", "x").with(moded(0o1755))}}, StripSticky},
	{"xattrs", "capability", [][]ent{{file("ping", "x").with(paxed("SCHILY.xattr.security.capability", "\x01\x00\x00\x02"))}}, StripCapability},
	{"xattrs", "overlay", [][]ent{{dir("a").with(paxed("SCHILY.xattr.trusted.overlay.opaque", "y"))}}, StripXattr},
	{"xattrs", "user overlay", [][]ent{{dir("a").with(paxed("SCHILY.xattr.user.overlay.redirect", "/x"))}}, StripXattr},
	{"xattrs", "user", [][]ent{{file("a", "").with(paxed("SCHILY.xattr.user.comment", "x"))}}, StripXattr},
	{"xattrs", "libarchive", [][]ent{{file("a", "").with(paxed("LIBARCHIVE.xattr.security.capability", "AQ=="))}}, StripCapability},
	{"xattrs", "acl", [][]ent{{file("a", "").with(paxed("SCHILY.acl.access", "user::rwx"))}}, StripXattr},
	{"parents", "symlink", [][]ent{{symlink("lib", "/etc"), file("lib/passwd", "x")}}, ""},
	{"parents", "symlink of a lower layer", [][]ent{{symlink("lib", "/etc")}, {file("lib/passwd", "x")}}, ""},
	{"parents", "chain", [][]ent{{symlink("a", "b"), symlink("b", "/"), file("a/etc/x", "")}}, ""},
	{"parents", "swapped", [][]ent{{dir("a"), file("a/x", "")}, {symlink("a", "/etc"), file("a/passwd", "")}}, ""},
	{"parents", "file", [][]ent{{file("a", ""), file("a/b", "")}}, ""},
	{"parents", "directory through a symlink", [][]ent{{symlink("a", "/"), dir("a/b")}}, ""},
	{"parents", "link through a symlink", [][]ent{{file("f", ""), symlink("a", "/"), hardlink("a/b", "f")}}, ""},
	{"parents", "whiteout through a symlink", [][]ent{{dir("d"), file("d/x", ""), symlink("a", "d")}, {file("a/.wh.x", "")}}, ""},
	{"parents", "opaque symlink", [][]ent{{dir("d"), file("d/x", ""), symlink("a", "d")}, {file("a/.wh..wh..opq", "")}}, ""},
	{"parents", "whited out", [][]ent{{dir("a")}, {file(".wh.a", ""), file("a/b", "")}}, ""},
	{"duplicates", "files", [][]ent{{file("a", "1"), file("a", "2")}}, ""},
	{"duplicates", "file and symlink", [][]ent{{file("a", "1"), symlink("a", "/")}}, ""},
	{"duplicates", "dot and plain", [][]ent{{file("./a", "1"), file("a", "2")}}, ""},
	{"duplicates", "directory and symlink", [][]ent{{dir("a"), symlink("a", "/")}}, ""},
	{"duplicates", "implied directory and file", [][]ent{{file("a/b", ""), file("a", "")}}, ""},
	{"duplicates", "whiteouts", [][]ent{{file("a", "")}, {file(".wh.a", ""), file("./.wh.a", "")}}, ""},
	{"hardlink-target", "absent", [][]ent{{hardlink("a", "etc/shadow")}}, ""},
	{"hardlink-target", "itself", [][]ent{{hardlink("a", "a")}}, ""},
	{"hardlink-target", "later", [][]ent{{hardlink("a", "b"), file("b", "")}}, ""},
	{"hardlink-target", "symlink", [][]ent{{symlink("a", "/etc/shadow"), hardlink("b", "a")}}, ""},
	{"hardlink-target", "directory", [][]ent{{dir("a"), hardlink("b", "a")}}, ""},
	{"hardlink-target", "through a symlink", [][]ent{{dir("d"), file("d/f", ""), symlink("a", "d"), hardlink("b", "a/f")}}, ""},
	{"hardlink-target", "device", [][]ent{{typed("null", tar.TypeChar), hardlink("b", "null")}}, ""},
	{"hardlink-target", "in dev", [][]ent{{file("dev/x", ""), hardlink("b", "dev/x")}}, ""},
	{"hardlink-target", "lower layer", [][]ent{{file("a", "")}, {hardlink("b", "a")}}, ""},
	{"hardlink-target", "whited out", [][]ent{{file("a", "")}, {file(".wh.a", ""), hardlink("b", "a")}}, ""},
	{"hardlink-target", "whiteout", [][]ent{{file("a", "")}, {file(".wh.a", ""), hardlink("b", ".wh.a")}}, ""},
	{"whiteouts", "removes what it added", [][]ent{{file("a", "")}, {file("a", "x"), file(".wh.a", "")}}, ""},
	{"whiteouts", "adds what it removed", [][]ent{{file("a", "")}, {file(".wh.a", ""), file("a", "x")}}, ""},
	{"whiteouts", "removes the parent of what it added", [][]ent{{dir("a")}, {file("a/x", ""), file(".wh.a", "")}}, ""},
	{"whiteouts", "opaque after a whiteout", [][]ent{{file("a/b", "")}, {file("a/.wh.b", ""), file("a/.wh..wh..opq", "")}}, ""},
	{"whiteouts", "opaque above a whiteout", [][]ent{{file("a/b/c/d", "")}, {file("a/b/c/.wh.d", ""), file("a/.wh..wh..opq", "")}}, ""},
	{"whiteouts", "lowest layer", [][]ent{{file("a", ""), file(".wh.b", "")}}, StripWhiteout},
	{"whiteouts", "hides nothing", [][]ent{{file("a", "")}, {file("d/.wh.b", "")}}, StripWhiteout},
	{"whiteouts", "opaque over nothing", [][]ent{{file("a", "")}, {file("b/x", ""), file("b/.wh..wh..opq", "")}}, StripWhiteout},
	{"opaque-root", "two layers", [][]ent{{file("a", "")}, {file("./.wh..wh..opq", "")}}, ""},
	{"opaque-root", "after its own entries", [][]ent{{file("a", "")}, {file("a", ""), file(".wh..wh..opq", "")}}, ""},
	{"whiteouts", "opaque in the lowest layer", [][]ent{{file("b/x", ""), file(".wh..wh..opq", "")}}, StripWhiteout},
}

// without returns a Filter that lacks a rule.
func without(name string) *Filter {
	f := NewFilter(smallLimits())
	same := func(r rule) bool { return r.name == name }
	f.form = slices.DeleteFunc(slices.Clone(formRules), same)
	f.inTree = slices.DeleteFunc(slices.Clone(treeRules), same)
	return f
}

func TestRules(t *testing.T) {
	for _, tc := range ruleCases {
		t.Run(tc.rule+"/"+tc.name, func(t *testing.T) {
			var layers [][]byte
			for _, l := range tc.layers {
				layers = append(layers, tarOf(t, l...))
			}
			// The attempt itself: archive/tar reads it as it is.
			last := list(t, layers[len(layers)-1])
			if want := tc.layers[len(tc.layers)-1]; !slices.Equal(names(last), names(want)) {
				t.Fatalf("archive/tar reads %q, written were %q", names(last), names(want))
			}
			f := NewFilter(smallLimits())
			out, err := filterAll(f, layers...)
			if bad := violations(t, out); bad != nil {
				t.Errorf("the filter let through: %q", bad)
			}
			if tc.strip == "" {
				checkRefusal(t, err, tc.rule, len(tc.layers))
			} else if err != nil || f.Report().Stripped[tc.strip] != 1 {
				t.Errorf("stripped %v, err %v: want one %s", f.Report().Stripped, err, tc.strip)
			}
			// It is this rule that holds it back.
			g := without(tc.rule)
			_, err = filterAll(g, layers...)
			if err != nil && strings.Contains(err.Error(), "rule "+tc.rule) {
				t.Errorf("a rule that is not there refused: %v", err)
			}
			if tc.strip != "" && g.Report().Stripped[tc.strip] != 0 {
				t.Errorf("without the rule it is stripped all the same")
			}
		})
	}
}

func checkRefusal(t *testing.T, err error, rule string, layer int) {
	t.Helper()
	if sbxerr.Of(err) != sbxerr.ImageContent {
		t.Fatalf("err %v: want a refusal with %s", err, sbxerr.ImageContent)
	}
	for _, want := range []string{"rule " + rule, fmt.Sprintf("layer %d, entry ", layer)} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
}

// TestRulesAreNeeded removes each rule: at least one attempt of its table then
// gets through, so no rule is there for nothing.
func TestRulesAreNeeded(t *testing.T) {
	for _, r := range slices.Concat(formRules, treeRules) {
		if r.name == "name-text" { // no tar can hold what it refuses: see TestNULInNames
			continue
		}
		through := 0
		for _, tc := range ruleCases {
			if tc.rule != r.name {
				continue
			}
			var layers [][]byte
			for _, l := range tc.layers {
				layers = append(layers, tarOf(t, l...))
			}
			f := without(r.name)
			if _, err := filterAll(f, layers...); err == nil && f.Report().Stripped[tc.strip] == 0 {
				through++
			}
		}
		if through == 0 {
			t.Errorf("rule %s: nothing gets through without it", r.name)
		}
		if r.why == "" {
			t.Errorf("rule %s has no reason", r.name)
		}
	}
}

func TestRefusalNamesEveryReason(t *testing.T) {
	l := tarOf(t, file("../dev", "").with(owned(1<<20, 0)), file("b", ""))
	_, err := filterAll(NewFilter(smallLimits()), l)
	for _, want := range []string{"rule name-clean", "rule owner", `"../dev"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
}

func TestNULInNames(t *testing.T) {
	// No tar can hold one; entries that are made here could.
	for _, e := range []ent{file("a\x00b", ""), symlink("a", "b\x00c"), hardlink("a", "b\x00c")} {
		w := NewFilter(smallLimits()).layer(io.Discard, nil)
		if err := w.Entry(&e.Header, nil); !errors.Is(err, sbxerr.ImageContent) || !strings.Contains(err.Error(), "NUL") {
			t.Errorf("%q: %v", e.Name, err)
		}
	}
}

// TestNamesAreBytes: the kernel knows no encoding of names.
func TestNamesAreBytes(t *testing.T) {
	out, err := filterAll(NewFilter(smallLimits()), tarOf(t, dir("d\xff"), file("d\xff/caf\xe9", "x"), symlink("l", "d\xff"), hardlink("h\xe9", "d\xff/caf\xe9")))
	if err != nil {
		t.Fatal(err)
	}
	if bad := violations(t, out); bad != nil {
		t.Errorf("violations: %q", bad)
	}
	var names []string
	for r := tar.NewReader(bytes.NewReader(out[0])); ; {
		h, err := r.Next()
		if err != nil {
			break
		}
		names = append(names, h.Name)
	}
	if want := []string{"d\xff/", "d\xff/caf\xe9", "l", "h\xe9"}; !slices.Equal(names, want) {
		t.Errorf("names: %q, want %q", names, want)
	}
}

func TestHonestLayers(t *testing.T) {
	when := time.Unix(1_700_000_000, 123456789)
	base := tarOf(t,
		dir("."), dir("./bin"), file("./bin/sh", "#!").with(moded(0o755)), hardlink("./bin/ash", "./bin/sh").with(moded(0o4777)), hardlink("./bin/cat", "./bin/ash").with(moded(0o4777)),
		symlink("./var/run", "/run").with(moded(0)), dir("./tmp").with(moded(0o1777)), dir("./dev"),
		dir("./etc/cron").with(owned(3, 4)), dir("./etc/cron").with(moded(0o700)),
		file("./etc/cron/daily", "job").with(func(h *tar.Header) { h.ModTime, h.Uname, h.Format = when, "root", tar.FormatPAX }),
		file("opt/a", "a"), file("opt/d/b", "b"), file("srv/x/y", ""), file("srv/x2", ""), file("lib", "a file"))
	top := tarOf(t,
		file(".wh.lib", ""), file("lib64/x", ""),
		file("opt/.wh.a", ""), file("etc/cron/weekly", "job"),
		file("srv/x/new", ""), file("srv/.wh..wh..opq", ""), file("srv/.wh.x2", ""))
	third := tarOf(t, dir("lib"), file("lib/y", ""), file("opt/a", "again"), file("srv/x/y", "again"))
	f := NewFilter(smallLimits())
	out, err := filterAll(f, base, top, third)
	if err != nil {
		t.Fatal(err)
	}
	if bad := violations(t, out); bad != nil {
		t.Errorf("violations: %q", bad)
	}
	want := [][]string{
		{"bin/", "bin/sh", "bin/ash", "bin/cat", "var/", "var/run", "tmp/", "dev/", "etc/", "etc/cron/", "etc/cron/", "etc/cron/daily",
			"opt/", "opt/a", "opt/d/", "opt/d/b", "srv/", "srv/x/", "srv/x/y", "srv/x2", "lib"},
		{".wh.lib", "lib64/", "lib64/x", "opt/", "opt/.wh.a", "etc/", "etc/cron/", "etc/cron/weekly", "srv/", "srv/x/", "srv/x/new", "srv/.wh..wh..opq"},
		{"lib/", "lib/y", "opt/", "opt/a", "srv/", "srv/x/", "srv/x/y"},
	}
	for i, w := range want {
		if got := names(list(t, out[i])); !slices.Equal(got, w) {
			t.Errorf("layer %d:\n got %q\nwant %q", i+1, got, w)
		}
	}
	// srv is opaque, so the whiteout of what was in it has nothing to hide.
	if n := f.Report().Stripped; !maps.Equal(n, map[string]int64{StripWhiteout: 1}) {
		t.Errorf("stripped %v of honest layers", n)
	}
	byName := map[string]ent{}
	for _, e := range list(t, out[0]) {
		byName[e.Name] = e
	}
	if h := byName["bin/ash"]; h.Mode != 0o755 || h.Linkname != "bin/sh" {
		t.Errorf("a hard link's header says %o, %q: want its target's", h.Mode, h.Linkname)
	}
	if h := byName["bin/cat"]; h.Mode != 0o755 || h.Linkname != "bin/ash" {
		t.Errorf("a link to a link says %o, %q: want the file's mode", h.Mode, h.Linkname)
	}
	if h := byName["var/run"]; h.Mode != 0o777 || h.Linkname != "/run" {
		t.Errorf("a symlink became %o, %q", h.Mode, h.Linkname)
	}
	if h := byName["tmp/"]; h.Mode != 0o1777 {
		t.Errorf("/tmp has mode %o", h.Mode)
	}
	if h := byName["etc/cron/daily"]; !h.ModTime.Equal(when.Truncate(time.Second)) || h.text != "job" || h.Uname != "" {
		t.Errorf("a file became %+v", h)
	}
	// A directory that a layer only implies keeps what the lower one says.
	for _, e := range list(t, out[1]) {
		if e.Name == "etc/cron/" && (e.Mode != 0o700 || e.Uid != 0) {
			t.Errorf("a repeated directory has mode %o, owner %d", e.Mode, e.Uid)
		}
	}
}

func TestOpaqueHidesLowerOnly(t *testing.T) {
	base := tarOf(t, file("d/e/low", ""), file("d/low", ""))
	top := tarOf(t, file("d/e/high", ""), file("d/.wh..wh..opq", ""))
	for name, ok := range map[string]bool{"d/e/.wh.high": true, "d/e/.wh.low": false, "d/.wh.low": false, "d/.wh.e": true} {
		f := NewFilter(smallLimits())
		if _, err := filterAll(f, base, top, tarOf(t, file(name, ""))); err != nil {
			t.Fatal(err)
		}
		if got := f.Report().Stripped[StripWhiteout] == 0; got != ok {
			t.Errorf("%s hides something: %v, want %v", name, got, ok)
		}
	}
}

func TestTimesAreClamped(t *testing.T) {
	for _, sec := range []int64{-1, -1 << 40, 1 << 40, 5} {
		l := tarOf(t, file("a", "").with(func(h *tar.Header) { h.ModTime, h.Format = time.Unix(sec, 0), tar.FormatPAX }))
		out, err := filterAll(NewFilter(smallLimits()), l)
		if err != nil {
			t.Fatal(err)
		}
		want := min(max(sec, 0), 1<<32-1)
		if got := list(t, out[0])[0].ModTime.Unix(); got != want {
			t.Errorf("time %d became %d, want %d", sec, got, want)
		}
	}
}

func TestGlobalHeadersAreDropped(t *testing.T) {
	// What "git archive" writes first; some readers apply its path to all.
	l := tarOf(t, ent{tar.Header{Typeflag: tar.TypeXGlobalHeader, Name: "pax_global_header", PAXRecords: map[string]string{"path": "../evil", "comment": "x"}}, ""}, file("a", ""))
	out, err := filterAll(NewFilter(smallLimits()), l)
	if err != nil || !slices.Equal(names(list(t, out[0])), []string{"a"}) {
		t.Errorf("got %v, err %v", out, err)
	}
}

func TestBrokenLayers(t *testing.T) {
	good := tarOf(t, file("a", strings.Repeat("x", 2000)))
	cases := map[string][]byte{
		"cut in the content":   good[:1500],
		"cut in the header":    good[:300],
		"no tar":               []byte(strings.Repeat("this is no tar archive. ", 100)),
		"something after":      append(slices.Clone(good), "more"...),
		"archive after":        append(slices.Clone(good), tarOf(t, file("../evil", ""))...),
		"bad checksum":         append([]byte("b"), good[1:]...),
		"one zero block, junk": append(append(slices.Clone(good[:2560]), make([]byte, 512)...), bytes.Repeat([]byte("j"), 512)...),
	}
	for name, data := range cases {
		out, err := filterAll(NewFilter(smallLimits()), data)
		if sbxerr.Of(err) != sbxerr.ImageFormat {
			t.Errorf("%s: %d layers, err %v", name, len(out), err)
		}
	}
}

func TestFilterLimits(t *testing.T) {
	many := []ent{}
	for i := range 20 {
		many = append(many, file(fmt.Sprintf("f%02d", i), ""))
	}
	cases := map[string]struct {
		change func(*Limits)
		layers [][]ent
	}{
		"entries":                    {func(l *Limits) { l.Entries = 19 }, [][]ent{many}},
		"entries of two layers":      {func(l *Limits) { l.Entries = 39 }, [][]ent{many, many}},
		"stripped entries":           {func(l *Limits) { l.Entries = 2 }, [][]ent{{file("dev/a", ""), file("dev/b", ""), file("dev/c", "")}}},
		"implied directories":        {func(l *Limits) { l.Entries = 5 }, [][]ent{{file("a/b/c/d/e/f", ""), file("x", "")}}},
		"names":                      {func(l *Limits) { l.NameBytes = 10 }, [][]ent{{file("0123456789", ""), file("a", ""), file("b", "")}}},
		"bytes":                      {func(l *Limits) { l.Bytes = 4096 }, [][]ent{{file("a", strings.Repeat("x", 4000))}}},
		"bytes of two layers":        {func(l *Limits) { l.Bytes = 8000 }, [][]ent{{file("a", strings.Repeat("x", 3000))}, {file("b", strings.Repeat("x", 3000))}}},
		"headers count as bytes":     {func(l *Limits) { l.Bytes = 4096 }, [][]ent{many}},
		"long names count as bytes":  {func(l *Limits) { l.Bytes = 4096 }, [][]ent{{file(strings.Repeat("d/", 200)+"f", "")}}},
		"repeated directories count": {func(l *Limits) { l.Entries = 5 }, [][]ent{{dir("a"), dir("a"), dir("a"), dir("a"), dir("a"), dir("a")}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var layers [][]byte
			for _, l := range tc.layers {
				layers = append(layers, tarOf(t, l...))
			}
			if _, err := filterAll(NewFilter(smallLimits()), layers...); err != nil {
				t.Fatalf("within the limits: %v", err)
			}
			l := smallLimits()
			tc.change(&l)
			if _, err := filterAll(NewFilter(l), layers...); sbxerr.Of(err) != sbxerr.ImageTooBig {
				t.Errorf("past the limit: %v", err)
			}
		})
	}
}

// gnuSparse makes a file of the GNU 1.0 sparse format that claims to be size
// bytes long and holds none of them but its last ones.
func gnuSparse(t *testing.T, name string, size int64, last ...byte) []byte {
	t.Helper()
	body := make([]byte, 512)
	copy(body, fmt.Sprintf("1\n%d\n%d\n", size-int64(len(last)), len(last)))
	body = append(body, last...)
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	// archive/tar writes no sparse files, so the record is put in by hand.
	rec := func(k, v string) string {
		s := " " + k + "=" + v + "\n"
		n := len(s) + 2
		return fmt.Sprint(n) + s
	}
	pax := rec("GNU.sparse.major", "1") + rec("GNU.sparse.minor", "0") + rec("GNU.sparse.name", name) + rec("GNU.sparse.realsize", fmt.Sprint(size))
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "PLACEHOLDER", Size: int64(len(pax))}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, pax); err != nil {
		t.Fatal(err)
	}
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "x", Size: int64(len(body)), Mode: 0o644, Format: tar.FormatUSTAR}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(body); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	data := buf.Bytes()
	data[156] = tar.TypeXHeader
	return rechecksum(data)
}

// rechecksum makes the first header of a tar valid again.
func rechecksum(data []byte) []byte {
	copy(data[148:156], "        ")
	sum := 0
	for _, b := range data[:512] {
		sum += int(b)
	}
	copy(data[148:156], fmt.Sprintf("%06o\x00 ", sum))
	return data
}

func TestSparseFilesCountAsWhatTheyBecome(t *testing.T) {
	small, big := gnuSparse(t, "s", 1000), gnuSparse(t, "s", 99<<20)
	if got := list(t, small); len(got) != 1 || got[0].Name != "s" || len(got[0].text) != 1000 {
		t.Fatalf("the fixture is no sparse file: %+v", names(got))
	}
	out, err := filterAll(NewFilter(smallLimits()), small)
	if err != nil || len(list(t, out[0])[0].text) != 1000 {
		t.Fatalf("a small one: %v", err)
	}
	if _, err := filterAll(NewFilter(smallLimits()), big); sbxerr.Of(err) != sbxerr.ImageTooBig {
		t.Errorf("past the bytes: %v", err)
	}
	l := DefaultLimits()
	if err := NewFilter(l).Layer(bytes.NewReader(big), io.Discard); sbxerr.Of(err) != sbxerr.ImageTooBig || !strings.Contains(err.Error(), "200 times") {
		t.Errorf("past the ratio: %v", err)
	}
}

func TestSparseFilesInARootFS(t *testing.T) {
	data := append(gnuSparse(t, "s", 100<<10), make([]byte, 9000)...)
	if _, r, err := do(t, data, options(t)); err != nil || r.Report.Bytes != 100<<10 {
		t.Errorf("report %+v, err %v", r.Report, err)
	}
	if _, _, err := do(t, gnuSparse(t, "s", 5000, bytes.Repeat([]byte("x"), 1024)...)[:2048+1024], options(t)); sbxerr.Of(err) != sbxerr.ImageFormat || !strings.Contains(err.Error(), "no end mark") {
		t.Errorf("cut off: %v", err)
	}
}

// TestNamesAreCopied makes sure that the filter does not hold on to the long
// names that the short ones are parts of.
func TestNamesAreCopied(t *testing.T) {
	const n, long = 10_000, 2000
	f := NewFilter(DefaultLimits())
	w := f.layer(io.Discard, nil)
	parents := strings.Repeat(strings.Repeat("d", 199)+"/", long/200) // few, for their number takes time
	peak := watchHeap(t)
	for i := range n {
		if err := w.Entry(&tar.Header{Typeflag: tar.TypeReg, Name: fmt.Sprintf("%s%d", parents, i)}, nil); err != nil {
			t.Fatal(err)
		}
	}
	goruntime.GC()
	if grown := peak(); grown > n*long/2 {
		t.Errorf("the heap grew by %d KiB for %d names", grown>>10, n)
	}
}

func TestWriterNeedsContent(t *testing.T) {
	for name, content := range map[string]io.Reader{"none": nil, "short": strings.NewReader("abc")} {
		w := NewFilter(smallLimits()).layer(io.Discard, nil)
		err := w.Entry(&tar.Header{Typeflag: tar.TypeReg, Name: "a", Size: 4}, content)
		if sbxerr.Of(err) != sbxerr.ImageFormat {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// naiveUnpack does what unpackers did before they were fixed: it joins names
// and lets the kernel follow what is there.
func naiveUnpack(root string, entries []ent) error {
	for _, e := range entries {
		to := filepath.Join(root, e.Name)
		var err error
		switch e.Typeflag {
		case tar.TypeDir:
			err = os.MkdirAll(to, 0o755)
		case tar.TypeSymlink:
			err = os.Symlink(e.Linkname, to)
		case tar.TypeLink:
			err = os.Link(filepath.Join(root, e.Linkname), to)
		case tar.TypeReg:
			err = os.WriteFile(to, []byte(e.text), 0o644)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// TestEscapes unpacks archives that leave their root, once as they are, which
// shows that they do, and once as the filter lets them through.
func TestEscapes(t *testing.T) {
	cases := map[string]func(outside string) []ent{
		"dot dot": func(string) []ent { return []ent{file("../outside/sentinel", "evil")} },
		"write through a symlink": func(o string) []ent {
			return []ent{symlink("d", o), file("d/sentinel", "evil")}
		},
		"write through a chain": func(string) []ent {
			return []ent{symlink("a", "b"), symlink("b", "../outside"), file("a/sentinel", "evil")}
		},
		"symlink over which is written": func(o string) []ent {
			return []ent{symlink("f", o+"/sentinel"), file("f", "evil")}
		},
		"hard link to the outside": func(string) []ent {
			return []ent{hardlink("f", "../outside/sentinel"), file("f", "evil")}
		},
		"hard link through a symlink": func(o string) []ent {
			return []ent{symlink("d", o), hardlink("f", "d/sentinel"), file("f", "evil")}
		},
	}
	for name, make := range cases {
		t.Run(name, func(t *testing.T) {
			attempt := func(through func([]ent) []ent) string {
				top := t.TempDir()
				outside, root := filepath.Join(top, "outside"), filepath.Join(top, "root")
				sentinel := filepath.Join(outside, "sentinel")
				for _, d := range []string{outside, root} {
					if err := os.Mkdir(d, 0o755); err != nil {
						t.Fatal(err)
					}
				}
				if err := os.WriteFile(sentinel, []byte("intact"), 0o644); err != nil {
					t.Fatal(err)
				}
				if err := naiveUnpack(root, through(make(outside))); err != nil {
					t.Fatal(err)
				}
				got, err := os.ReadFile(sentinel)
				if err != nil {
					t.Fatal(err)
				}
				return string(got)
			}
			if got := attempt(func(e []ent) []ent { return e }); got != "evil" {
				t.Fatalf("the attempt does nothing: the sentinel is %q", got)
			}
			got := attempt(func(e []ent) []ent {
				out, err := filterAll(NewFilter(smallLimits()), tarOf(t, e...))
				if sbxerr.Of(err) != sbxerr.ImageContent {
					t.Errorf("not refused: %v", err)
				}
				var clean []ent
				for _, l := range out {
					clean = append(clean, list(t, l)...)
				}
				return clean
			})
			if got != "intact" {
				t.Errorf("the sentinel is %q", got)
			}
		})
	}
}

func TestReportIsACopy(t *testing.T) {
	f := NewFilter(smallLimits())
	if _, err := filterAll(f, tarOf(t, typed("a", tar.TypeFifo), file("b", "four"))); err != nil {
		t.Fatal(err)
	}
	r := f.Report()
	if r.Entries != 1 || r.Bytes != 4 || !maps.Equal(r.Stripped, map[string]int64{StripFIFO: 1}) {
		t.Errorf("report %+v", r)
	}
	r.Stripped[StripFIFO] = 9
	if f.Report().Stripped[StripFIFO] != 1 {
		t.Error("the report shares its map")
	}
}
