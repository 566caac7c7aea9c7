package fromhost

import (
	"archive/tar"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/md5"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/tests/need"
)

func stanza(name, more string) string {
	return fmt.Sprintf("Package: %s\nStatus: install ok installed\nArchitecture: amd64\nVersion: 1\n%s\n\n", name, more)
}

// certificate returns a self-signed one and its key.
func certificate(t testing.TB, authority bool) (cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotAfter: fixedTime,
		IsCA: authority, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &k.PublicKey, k)
	must(t, err)
	secret, err := x509.MarshalECPrivateKey(k)
	must(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret}))
}

const loader = "/lib64/ld-linux-x86-64.so.2"

// debian is a small host with every kind of thing that matters.
func debian(t testing.TB) map[string]node {
	t.Helper()
	need.Tools(t, "dpkg-query")
	ca, key := certificate(t, true)
	leaf, _ := certificate(t, false)
	kept := "kept\n"
	status := stanza("dash", "Depends: libc6\nProvides: shell") + stanza("libc6", "Multi-Arch: same") +
		stanza("tool", fmt.Sprintf("Pre-Depends: none | shell\nRecommends: extra\nConffiles:\n /etc/tool.conf %x\n /etc/tool.local %x\n /etc/shadow %x",
			md5.Sum([]byte(kept)), md5.Sum([]byte("as it came")), md5.Sum([]byte("root:hash")))) +
		stanza("extra", "Depends: gone") + stanza("python3-minimal", "") + stanza("python3", "Depends: python3-minimal")
	return map[string]node{
		"/bin": link("usr/bin"), "/lib": link("usr/lib"), "/lib64": link("usr/lib64"), "/sbin": link("usr/sbin"), "/usr/sbin": {},
		"/usr/bin/dpkg-query":               prog("#!/bin/sh\nexec dpkg-query \"$@\"\n"),
		"/var/lib/dpkg/status":              file(status),
		"/var/lib/dpkg/info/format":         file("1\n"),
		"/var/lib/dpkg/diversions":          file("/usr/bin/tool-x\n/usr/bin/tool-x.real\nwrapper\n"),
		"/var/lib/dpkg/alternatives/editor": file("auto\n/usr/bin/editor\neditor.1\n/usr/share/man/man1/editor.1\n\n"),
		"/var/lib/dpkg/alternatives/other":  file("auto\n/usr/bin/other\n\n"),
		"/var/lib/dpkg/info/dash.list":      file("/.\n/bin\n/bin/dash\n/bin/sh\n"),
		"/var/lib/dpkg/info/libc6:amd64.list": file(
			"/lib/x86_64-linux-gnu/libc.so.6\n/lib64\n" + loader + "\n/etc/ld.so.conf.d/libc.conf\n"),
		"/var/lib/dpkg/info/tool.list": file(strings.Join([]string{
			"/.", "/usr/bin/tool", "/usr/bin/tool-hard", "/usr/bin/tool-x", "/usr/bin/tool-suid", "/usr/bin/tool-secret", "/usr/bin/tool-gone",
			"/usr/share/doc/tool/README", "/usr/share/man/man1/tool.1.gz", "/etc/tool.conf", "/etc/tool.local", "/etc/shadow",
			"/var/lib/tool", "/var/lib/tool/state", "/usr/lib/tool", "/usr/lib/tool/empty", "/usr/lib/tool/home", "/usr/lib/tool/helper",
			"/usr/lib/tool/conf", "/usr/lib/tool/pipe", "/usr/lib/tool/mod.py", "",
		}, "\n")),
		"/var/lib/dpkg/info/extra.list":           file("/usr/share/extra\n"),
		"/var/lib/dpkg/info/python3-minimal.list": file("/usr/bin/python3\n"),
		"/var/lib/dpkg/info/python3.list":         file("/usr/lib/python3/json.py\n"),
		"/usr/bin/dash":                           prog(elfSpec{interp: loader, needed: []string{"libc.so.6"}}.build()),
		"/usr/bin/sh":                             link("dash"),
		"/usr/lib/x86_64-linux-gnu/libc.so.6":     file(elfSpec{}.build()),
		"/usr/lib/x86_64-linux-gnu/ld.so":         prog(elfSpec{}.build()),
		"/usr/lib64/ld-linux-x86-64.so.2":         link("/lib/x86_64-linux-gnu/ld.so"),
		"/etc/ld.so.conf.d/libc.conf":             file("/usr/local/lib\n"),
		"/etc/ld.so.cache": file(string((&ldCache{entries: []ldEntry{
			{1, "libother.so", "/usr/lib/libother.so"}, {1, "libfar.so", "/opt/far/libfar.so"}, {1, "libc.so.6", "/lib/x86_64-linux-gnu/libc.so.6"},
		}}).marshal())),
		"/usr/lib/libother.so":  file(elfSpec{}.build()),
		"/opt/far/libfar.so":    link("libfar.so.1"),
		"/opt/far/libfar.so.1":  file(elfSpec{needed: []string{"libc.so.6"}}.build()),
		"/usr/bin/tool":         {text: "tool", mode: 0o775},
		"/usr/bin/tool-hard":    {hard: "/usr/bin/tool"},
		"/usr/bin/tool-x.real":  prog("real"),
		"/usr/bin/tool-x":       prog("the wrapper's"),
		"/usr/bin/tool-suid":    {text: "s", mode: os.ModeSetuid | 0o755},
		"/usr/bin/tool-secret":  {text: "s", mode: 0o640},
		"/usr/share/doc/tool/R": file("doc"), "/usr/share/doc/tool/README": file("doc"), "/usr/share/man/man1/tool.1.gz": file("man"),
		"/etc/tool.conf": file(kept), "/etc/tool.local": file("password=1"), "/etc/shadow": {text: "root:hash", mode: 0o644},
		"/var/lib/tool/state": file("state"), "/usr/lib/tool/empty": {}, "/usr/lib/tool/home": link("/home/ann/tool"),
		"/usr/lib/tool/helper": link("../extra/helper"), "/usr/lib/extra/helper": prog(elfSpec{needed: []string{"libfar.so"}}.build()),
		"/usr/lib/tool/conf": link("/etc/secret.conf"), "/etc/secret.conf": file("host"),
		"/usr/lib/tool/mod.py": file("x"), "/usr/lib/tool/__pycache__/mod.cpython-311.pyc": file("c"), "/usr/lib/tool/__pycache__/old.cpython-311.pyc": file("c"),
		"/home/ann/tool": file("ann's"), "/root/.ssh/id_rsa": file("key"), "/usr/share/extra": file("x"),
		"/etc/alternatives/editor": link("/usr/bin/tool"), "/usr/bin/editor": link("/etc/alternatives/editor"),
		"/etc/alternatives/editor.1": link("/usr/share/man/man1/tool.1.gz"), "/usr/share/man/man1/editor.1": link("/etc/alternatives/editor.1"),
		"/etc/alternatives/other": link("/usr/bin/python9"), "/usr/bin/python9": prog("9"), "/usr/bin/other": link("/etc/alternatives/other"),
		"/etc/passwd": file("ann:x:1001:1001::/home/ann:/bin/sh\n"), "/etc/os-release": link("../usr/lib/os-release"), "/usr/lib/os-release": file("ID=debian\n"),
		"/usr/bin/python3": prog(elfSpec{interp: loader}.build()), "/usr/lib/python3/json.py": file("json"), "/usr/bin/env": prog(elfSpec{}.build()),
		"/etc/ssl/certs/ca-certificates.crt": file(ca + ca), "/etc/ssl/certs/01234567.0": link("Good.pem"),
		"/etc/ssl/certs/Good.pem": link("/usr/share/ca-certificates/good.crt"), "/usr/share/ca-certificates/good.crt": file(ca),
		"/etc/ssl/certs/snakeoil.pem": file(leaf), "/etc/ssl/certs/89abcdef.0": link("snakeoil.pem"), "/etc/ssl/certs/key.pem": file(ca + key),
		"/etc/ssl/certs/home.pem": link("/home/ann/ca.pem"), "/home/ann/ca.pem": file(ca), "/usr/lib/ssl/certs": link("/etc/ssl/certs"),
		"/opt/app/bin/app":         prog(elfSpec{interp: loader, needed: []string{"libapp.so", "libfar.so"}, runpath: "$ORIGIN/../lib"}.build()),
		"/opt/app/lib/libapp.so":   file(elfSpec{needed: []string{"libgone.so"}}.build()),
		"/opt/app/bin/script":      prog("#!/usr/bin/env python3\nimport json\n"),
		"/opt/app/bin/odd":         prog("#!/usr/bin/rc\n"),
		"/opt/app/bin/text":        file("#!/usr/bin/perl\n"),
		"/opt/app/data":            link("/usr/share/app-data"),
		"/usr/share/app-data/deep": file("data"),
		"/opt/app/usr":             link("/usr"),
		"/opt/app/.ssh/id_rsa":     file("key"),
		"/opt/app/private/x":       file("s"),
		"/opt/app/private":         {mode: os.ModeDir | 0o750},
		"/opt/app/mine":            {text: "s", mode: 0o600},
		"/opt/current":             link("app"),
	}
}

// The whole of it, printed.
func TestCollectGolden(t *testing.T) {
	root := fakeRoot(t, debian(t))
	fifo(t, filepath.Join(root, "/usr/lib/tool/pipe"))
	r := Request{Packages: []string{"tool"}, Paths: []string{"/opt/current"}}
	got, err := collect(t, root, r)
	must(t, err)
	golden(t, "debian.golden", got.render())
	again, err := collect(t, root, r)
	must(t, err)
	if again.render() != got.render() || !maps.Equal(again.content, got.content) {
		t.Error("the same host gives another image")
	}
	for p, h := range got.headers {
		if parent := got.headers[filepath.Dir(p)]; filepath.Dir(p) != "/" && (parent == nil || parent.Typeflag != tar.TypeDir) {
			t.Errorf("%s lies in no directory", p)
		}
		if h.Uid != 0 || h.Gid != 0 || h.Mode&^0o777 != 0 || h.Typeflag != tar.TypeSymlink && h.Mode&0o022 != 0 {
			t.Errorf("%s: %+v", p, h)
		}
	}
	if time := got.headers["/usr/bin/dash"].ModTime; !time.Equal(fixedTime) || got.content["/usr/bin/tool-x"] != "real" {
		t.Errorf("time %v, diverted file %q", time, got.content["/usr/bin/tool-x"])
	}
}

// Whatever else changes, none of these may ever be in an image.
func TestNothingSecretIsCopied(t *testing.T) {
	root := fakeRoot(t, debian(t))
	got, err := collect(t, root, Request{Packages: []string{"tool", "extra", "python3"}, Paths: []string{"/opt/app", "/opt/far", "/usr"}})
	must(t, err)
	if got.content["/usr/bin/tool"] != "tool" {
		t.Errorf("the tool is %q", got.content["/usr/bin/tool"])
	}
	for p, content := range got.content {
		for _, secret := range []string{"root:hash", "ann", "password", "PRIVATE", "key", "state"} {
			if strings.Contains(content, secret) {
				t.Errorf("%s holds %q", p, secret)
			}
		}
		if content == "s" && p != "/usr/bin/tool-suid" || content == "host" {
			t.Errorf("%s is a secret", p)
		}
	}
}

// The kernel refuses the collector what it refuses everybody, whatever the path
// to it, and without regard to what root could read.
func TestOnlyWhatEverybodyMayRead(t *testing.T) {
	closed := os.ModeDir | 0o700
	root := fakeRoot(t, map[string]node{
		"/bin/sh": prog("x"), "/opt/a/file": file("x"), "/opt/a/secret": {text: "s", mode: 0o600}, "/opt/a/notworld": {text: "s", mode: 0o660},
		"/opt/a/closed/file": file("s"), "/opt/a/closed": {mode: closed}, "/opt/a/in": link("closed/file"), "/opt/a/out": link("/opt/b/deep/file"),
		"/opt/b/deep/file": file("s"), "/opt/b": {mode: closed}, "/opt/a/blind/file": file("x"), "/opt/a/blind": {mode: os.ModeDir | 0o711},
	})
	for _, p := range []string{"/opt/a/secret", "/opt/b/deep/file"} {
		if data, err := os.ReadFile(filepath.Join(root, p)); err != nil || string(data) != "s" {
			t.Fatalf("root reads %q, %v", data, err)
		}
	}
	got, err := collect(t, root, Request{Paths: []string{"/opt/a"}})
	must(t, err)
	for p, content := range got.content {
		if content == "s" {
			t.Errorf("%s was copied", p)
		}
	}
	if want := "not readable by everybody (4): /opt/a/blind, /opt/a/closed, /opt/a/notworld, /opt/a/secret"; got.content["/opt/a/file"] != "x" || got.warned(leftHidden) != want {
		t.Errorf("got %q, want %q", got.warnings, want)
	}
}

// What is mounted inside a requested directory was not asked for.
func TestOtherFileSystems(t *testing.T) {
	need.Root(t, "it mounts")
	root := fakeRoot(t, map[string]node{"/bin/sh": prog("x"), "/opt/a/file": file("x"), "/opt/a/m": {}})
	at := filepath.Join(root, "/opt/a/m")
	must(t, unix.Mount("tmpfs", at, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=64k,mode=755"))
	t.Cleanup(func() { must(t, unix.Unmount(at, unix.MNT_DETACH)) })
	must(t, os.WriteFile(filepath.Join(at, "in"), []byte("in"), 0o644))
	got, err := collect(t, root, Request{Paths: []string{"/opt/a"}})
	must(t, err)
	if got.headers["/opt/a/file"] == nil || got.headers["/opt/a/m/in"] != nil || got.warned(leftMount) != string(leftMount)+" (1): /opt/a/m" {
		t.Errorf("got %q and %q", got.order, got.warnings)
	}
	got, err = collect(t, root, Request{Paths: []string{"/opt/a", "/opt/a/m"}})
	must(t, err)
	if got.content["/opt/a/m/in"] != "in" {
		t.Errorf("got %q", got.order)
	}
}

func TestCollectRefuses(t *testing.T) {
	nodes := debian(t)
	maps.Copy(nodes, map[string]node{
		"/opt/to-home": link("/home/ann"), "/opt/to-root": link("/"), "/opt/to-etc": link("/etc/ssl"), "/opt/loop": link("loop"),
	})
	root := fakeRoot(t, nodes)
	fifo(t, filepath.Join(root, "/opt/pipe"))
	r := Request{
		Packages: []string{"toool", "shell"},
		Paths:    []string{"/opt/to-home", "/opt/to-root", "/opt/to-etc", "/opt/none", "/opt/app/private", "/opt/app/private/x", "/opt/app/mine", "/opt/loop", "/opt/pipe"},
	}
	_, err := collect(t, root, r)
	if sbxerr.Of(err) != sbxerr.FromHost {
		t.Fatalf("error %v", err)
	}
	for _, want := range []string{
		"did you mean tool?", "provides it: dash", `leads to "/home/ann", is refused: it holds files of people`, `leads to "/", is refused`,
		`leads to "/etc/ssl", is refused`, `"/opt/none" does not exist`, `"/opt/app/private" is not readable by everybody`,
		`"/opt/app/private/x" is not readable by everybody`, `"/opt/app/mine" is not readable by everybody`, `"/opt/loop" is a chain`,
		`"/opt/pipe" is no directory`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v\ndoes not say %s", err, want)
		}
	}
	if _, err := collect(t, filepath.Join(root, "none"), r); sbxerr.Of(err) != sbxerr.FromHost {
		t.Errorf("without a root: %v", err)
	}
	if _, err := collect(t, root, Request{}); sbxerr.Of(err) != sbxerr.Config {
		t.Errorf("nothing asked for: %v", err)
	}
}

func TestCollectLimits(t *testing.T) {
	root := fakeRoot(t, debian(t))
	r := Request{Packages: []string{"tool"}}
	full, err := collect(t, root, r)
	must(t, err)
	for _, l := range []Limits{{Bytes: 1 << 30, Entries: int64(len(full.order)) - 1}, {Bytes: 100, Entries: 1000}} {
		r.Limits = l
		if _, err := collect(t, root, r); sbxerr.Of(err) != sbxerr.ImageTooBig {
			t.Errorf("%+v: %v", l, err)
		}
	}
}

// A host without a package manager gives paths, with what they need.
func TestCollectWithoutPackages(t *testing.T) {
	root := fakeRoot(t, map[string]node{
		"/bin/busybox": prog(elfSpec{interp: "/lib/ld-musl.so.1"}.build()), "/bin/sh": link("/bin/busybox"),
		"/lib/ld-musl.so.1": prog(elfSpec{}.build()), "/usr/local/lib/libx.so": file(elfSpec{}.build()),
		"/opt/x": prog(elfSpec{needed: []string{"libx.so"}}.build()),
	})
	got, err := collect(t, root, Request{Paths: []string{"/opt/x"}})
	must(t, err)
	for _, want := range []string{"/bin/sh", "/bin/busybox", "/lib/ld-musl.so.1", "/usr/local/lib/libx.so"} {
		if got.headers[want] == nil {
			t.Errorf("%s is missing", want)
		}
	}
	if len(got.warnings) != 0 || got.Env[0] != "PATH=/opt:"+strings.Join(commandDirs, ":") {
		t.Errorf("warnings %q, environment %q", got.warnings, got.Env)
	}
	if _, err := collect(t, root, Request{Packages: []string{"x"}}); err == nil || !strings.Contains(err.Error(), "neither a dpkg nor an rpm") {
		t.Errorf("without a database: %v", err)
	}
}

// Files that are not as their package brought them are named: a program of the
// package that somebody replaced, and a package that was upgraded outside dpkg.
func TestChangedFilesAreNamed(t *testing.T) {
	nodes := debian(t)
	sum := func(s string) string { return fmt.Sprintf("%x", md5.Sum([]byte(s))) }
	nodes["/var/lib/dpkg/info/tool.md5sums"] = file(sum("tool") + "  usr/bin/tool\n" + sum("old") + "  usr/lib/tool/mod.py\n")
	nodes["/var/lib/dpkg/info/extra.md5sums"] = file(sum("x") + "  usr/share/extra\n")
	root := fakeRoot(t, nodes)
	got, err := collect(t, root, Request{Packages: []string{"tool"}})
	must(t, err)
	if w := got.warned(notAsItCame); !strings.HasSuffix(w, " (1): tool (/usr/lib/tool/mod.py: --path /usr/lib/tool)") {
		t.Errorf("warnings %q", got.warnings)
	}
	got, err = collect(t, root, Request{Packages: []string{"tool"}, Paths: []string{"/usr/lib/tool"}})
	must(t, err)
	if w := got.warned(notAsItCame); w != "" || got.content["/usr/lib/tool/mod.py"] != "x" {
		t.Errorf("of a requested path: %q", got.warnings)
	}
}

// TestPathOfPrograms: a requested directory is put on PATH, but for one of a package that is
// there with links to its programs.
func TestPathOfPrograms(t *testing.T) {
	nodes := debian(t)
	list := nodes["/var/lib/dpkg/info/tool.list"]
	list.text += "/usr/lib/tool/bin\n/usr/lib/tool/bin/tool\n"
	nodes["/var/lib/dpkg/info/tool.list"] = list
	nodes["/usr/lib/tool/bin/tool"], nodes["/opt/go/bin/go"] = prog("#!/bin/sh\n"), prog("#!/bin/sh\n")
	root := fakeRoot(t, nodes)
	usual := strings.Join(commandDirs, ":")
	for want, r := range map[string]Request{
		"PATH=/opt/go/bin:" + usual:       {Packages: []string{"tool"}, Paths: []string{"/usr/lib/tool", "/opt/go"}},
		"PATH=/usr/lib/tool/bin:" + usual: {Packages: []string{"extra"}, Paths: []string{"/usr/lib/tool"}},
	} {
		got, err := collect(t, root, r)
		must(t, err)
		if got.Env[0] != want {
			t.Errorf("%v: %s, want %s", r.Paths, got.Env[0], want)
		}
	}
}

// bigRoot holds one path with a file that does not fit into a pipe.
func bigRoot(t *testing.T) string {
	t.Helper()
	return fakeRoot(t, map[string]node{"/bin/sh": prog("x"), "/opt/a/big": file(strings.Repeat("0123456789", 1<<20))})
}

// A file that changes while it is copied would be half old and half new.
func TestChangesDuringTheCopy(t *testing.T) {
	for what, change := range map[string]func(p string) error{
		"cut short": func(p string) error { return os.Truncate(p, 3) },
		"rewritten": func(p string) error { return os.Chtimes(p, time.Time{}, time.Now()) },
	} {
		root := bigRoot(t)
		c, err := Collect(t.Context(), Request{Root: root, Paths: []string{"/opt/a"}, Limits: ample})
		must(t, err)
		m := memory{headers: map[string]*tar.Header{}, content: map[string]string{}}
		m.hook = func(p string) error {
			if p == "/opt/a/big" {
				return change(filepath.Join(root, p))
			}
			return nil
		}
		_, err = c.Write(&m)
		if sbxerr.Of(err) != sbxerr.FromHost || !strings.Contains(err.Error(), `copy "/opt/a/big": it changed while it was copied`) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestCollectEnds(t *testing.T) {
	need.Root(t, "it starts a process of another user")
	ctx, cancel := context.WithCancel(t.Context())
	before := openFDs(t)
	r := Request{Root: bigRoot(t), Paths: []string{"/opt/a"}, Limits: ample}
	c, err := Collect(ctx, r)
	must(t, err)
	m := memory{headers: map[string]*tar.Header{}, content: map[string]string{}, hook: func(string) error { return io.ErrShortWrite }}
	if _, err := c.Write(&m); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("the sink's error is lost: %v", err)
	}
	m.hook = nil
	if _, err := c.Write(&m); err != nil || len(m.content["/opt/a/big"]) != 10<<20 {
		t.Errorf("the second time: %v", err)
	}
	c, err = Collect(ctx, r)
	must(t, err)
	m.hook = func(string) error { cancel(); return nil }
	if _, err := c.Write(&m); sbxerr.Of(err) != sbxerr.Canceled {
		t.Errorf("cancelled: %v", err)
	}
	if _, err := Collect(ctx, r); sbxerr.Of(err) != sbxerr.Canceled {
		t.Errorf("cancelled before: %v", err)
	}
	c.Close()
	if after := openFDs(t); after != before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}
