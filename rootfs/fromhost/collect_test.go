package fromhost

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/md5"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// find returns the entry of p at path.
func find(p *Plan, path string) *Entry {
	for i := range p.Entries {
		if p.Entries[i].Path == path {
			return &p.Entries[i]
		}
	}
	return nil
}

func render(p *Plan) string {
	var b strings.Builder
	for _, e := range p.Entries {
		fmt.Fprintf(&b, "%-8s %04o %s", e.Kind, e.Mode, e.Path)
		if e.Link != "" {
			fmt.Fprintf(&b, " -> %s", e.Link)
		}
		if e.Source != "" && e.Source != e.Path {
			fmt.Fprintf(&b, " from %s", e.Source)
		}
		fmt.Fprintf(&b, "  (%s)\n", e.For)
	}
	fmt.Fprintf(&b, "packages: %s\n", names(p.Packages))
	for _, w := range p.Warnings {
		fmt.Fprintf(&b, "warning: %s\n", w)
	}
	fmt.Fprintf(&b, "left out: %v\nenv: %q\n", p.LeftOut, p.Env)
	return b.String()
}

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
	ca, key := certificate(t, true)
	leaf, _ := certificate(t, false)
	kept := "kept\n"
	status := stanza("dash", "Depends: libc6\nProvides: shell") + stanza("libc6", "") +
		stanza("tool", fmt.Sprintf("Pre-Depends: none | shell\nRecommends: extra\nConffiles:\n /etc/tool.conf %x\n /etc/tool.local %x\n /etc/shadow %x",
			md5.Sum([]byte(kept)), md5.Sum([]byte("as it came")), md5.Sum([]byte("root:hash")))) +
		stanza("extra", "Depends: gone") + stanza("python3-minimal", "") + stanza("python3", "Depends: python3-minimal")
	return map[string]node{
		"/bin": link("usr/bin"), "/lib": link("usr/lib"), "/lib64": link("usr/lib64"), "/sbin": link("usr/sbin"), "/usr/sbin": {},
		"/var/lib/dpkg/status":              file(status),
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
			"/usr/lib/tool/conf", "/usr/lib/tool/pipe", "/usr/lib/tool/mod.py",
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
	r := Request{Packages: []string{"tool"}, Paths: []string{"/opt/current"}, Limits: ample}
	p, err := Collect(t.Context(), Host{Root: root}, r)
	must(t, err)
	golden(t, "debian.golden", render(p))
	again, err := Collect(t.Context(), Host{Root: root}, r)
	must(t, err)
	if render(again) != render(p) {
		t.Error("the same host gives another plan")
	}
	r.Minimal = true
	r.Paths = nil
	p, err = Collect(t.Context(), Host{Root: root}, r)
	must(t, err)
	golden(t, "minimal.golden", render(p))
}

// Whatever else changes, none of these may ever be in a plan.
func TestNothingSecretIsCopied(t *testing.T) {
	root := fakeRoot(t, debian(t))
	r := Request{Packages: []string{"tool", "extra", "python3"}, Paths: []string{"/opt/app", "/opt/far", "/usr"}, Limits: ample}
	p, err := Collect(t.Context(), Host{Root: root}, r)
	must(t, err)
	for _, e := range p.Entries {
		content := string(e.Content)
		if e.Source != "" {
			data, err := os.ReadFile(filepath.Join(root, e.Source))
			must(t, err)
			content = string(data)
		}
		for _, secret := range []string{"root:hash", "ann", "password", "PRIVATE", "key", "state"} {
			if strings.Contains(content, secret) {
				t.Errorf("%s holds %q", e.Path, secret)
			}
		}
		if content == "s" && e.Path != "/usr/bin/tool-suid" || content == "host" {
			t.Errorf("%s is a secret", e.Path)
		}
		if e.Mode&^0o777 != 0 || e.Kind != Symlink && e.Mode&0o022 != 0 {
			t.Errorf("%s has mode %o", e.Path, e.Mode)
		}
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
		Packages: []string{"toool", "shell"}, Limits: ample,
		Paths: []string{"/opt/to-home", "/opt/to-root", "/opt/to-etc", "/opt/none", "/opt/app/private", "/opt/app/private/x", "/opt/app/mine", "/opt/loop", "/opt/pipe"},
	}
	_, err := Collect(t.Context(), Host{Root: root}, r)
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
	if _, err := Collect(t.Context(), Host{Root: filepath.Join(root, "none")}, r); sbxerr.Of(err) != sbxerr.FromHost {
		t.Errorf("without a root: %v", err)
	}
	if _, err := Collect(t.Context(), Host{Root: root}, Request{Limits: ample}); sbxerr.Of(err) != sbxerr.Config {
		t.Errorf("nothing asked for: %v", err)
	}
}

func TestCollectLimits(t *testing.T) {
	root := fakeRoot(t, debian(t))
	r := Request{Packages: []string{"tool"}, Limits: ample}
	full, err := Collect(t.Context(), Host{Root: root}, r)
	must(t, err)
	for _, l := range []Limits{{Bytes: 1 << 30, Entries: int64(len(full.Entries)) - 1}, {Bytes: full.Bytes - 1, Entries: 1000}} {
		r.Limits = l
		if _, err := Collect(t.Context(), Host{Root: root}, r); sbxerr.Of(err) != sbxerr.ImageTooBig {
			t.Errorf("%+v: %v", l, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r.Limits = ample
	if _, err := Collect(ctx, Host{Root: root}, r); sbxerr.Of(err) != sbxerr.Canceled {
		t.Errorf("cancelled: %v", err)
	}
}

// A host without a package manager gives its commands one by one.
func TestCollectWithoutPackages(t *testing.T) {
	root := fakeRoot(t, map[string]node{
		"/bin/busybox": prog(elfSpec{interp: "/lib/ld-musl.so.1"}.build()), "/bin/sh": link("/bin/busybox"), "/bin/ls": link("/bin/busybox"),
		"/lib/ld-musl.so.1": prog(elfSpec{}.build()), "/usr/local/lib/libx.so": file(elfSpec{}.build()),
		"/opt/x": prog(elfSpec{needed: []string{"libx.so"}}.build()),
	})
	p, err := Collect(t.Context(), Host{Root: root}, Request{Paths: []string{"/opt/x"}, Limits: ample})
	must(t, err)
	for _, want := range []string{"/bin/sh", "/bin/ls", "/bin/busybox", "/lib/ld-musl.so.1", "/usr/local/lib/libx.so"} {
		if find(p, want) == nil {
			t.Errorf("%s is missing", want)
		}
	}
	if len(p.Warnings) != 0 || p.Env[0] != "PATH=/opt:"+strings.Join(commandDirs, ":") {
		t.Errorf("warnings %q, environment %q", p.Warnings, p.Env)
	}
}

func TestDescriptorsAfterCollect(t *testing.T) {
	root := fakeRoot(t, debian(t))
	before := openFDs(t)
	_, err := Collect(t.Context(), Host{Root: root}, Request{Packages: []string{"tool"}, Paths: []string{"/opt/app"}, Limits: ample})
	must(t, err)
	if after := openFDs(t); after != before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}
