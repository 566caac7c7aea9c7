package escape

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// sentinel is a tree of the host that archives aim at.
type sentinel struct{ dir string }

func newSentinel(t *testing.T) sentinel {
	t.Helper()
	s := sentinel{workspace(t)}
	must(t, os.WriteFile(filepath.Join(s.dir, "file"), []byte("of the host"), 0o600))
	must(t, os.Mkdir(filepath.Join(s.dir, "sub"), 0o700))
	return s
}

// state says all of the tree that an escape could change.
func (s sentinel) state(t *testing.T) string {
	t.Helper()
	var out strings.Builder
	must(t, filepath.WalkDir(s.dir, func(path string, _ fs.DirEntry, err error) error {
		must(t, err)
		var st unix.Stat_t
		must(t, unix.Lstat(path, &st))
		data, _ := os.ReadFile(path)
		fmt.Fprintf(&out, "%s %o %d:%d %d links %d.%d %q\n", path, st.Mode, st.Uid, st.Gid, st.Nlink, st.Ctim.Sec, st.Ctim.Nsec, data)
		return nil
	}))
	return out.String()
}

// up leads from any place of an image to the root of the host.
var up = strings.Repeat("../", 40)

// outside is the sentinel's path without its first slash.
func (s sentinel) outside(name string) string {
	return strings.TrimPrefix(filepath.Join(s.dir, name), "/")
}

// hostile are archives that must be refused as a whole.
func hostile(t *testing.T, s sentinel) map[string][]byte {
	t.Helper()
	link := func(name, to string) tar.Header {
		return tar.Header{Name: name, Linkname: to, Typeflag: tar.TypeSymlink}
	}
	hard := func(name, to string) tar.Header { return tar.Header{Name: name, Linkname: to, Typeflag: tar.TypeLink} }
	text := []byte("escaped")
	return map[string][]byte{
		"P135 climbing":             rootfs(t).file(up+s.outside("new"), 0o644, text).bytes(),
		"P135 absolute":             rootfs(t).file("/"+s.outside("new"), 0o644, text).bytes(),
		"P135 climbing in between":  rootfs(t).file("usr/"+up+s.outside("new"), 0o644, text).bytes(),
		"P135 long component":       rootfs(t).file(strings.Repeat("x", 256), 0o644, text).bytes(),
		"P135 long path":            rootfs(t).file(strings.Repeat("x/", 2100)+"x", 0o644, text).bytes(),
		"P135 twice":                rootfs(t).file("x", 0o644, text).file("x", 0o644, text).bytes(),
		"P135 NUL":                  bytes.Replace(rootfs(t).file(strings.Repeat("n", 120)+"NUL", 0o644, text).bytes(), []byte("nNUL"), []byte("n\x00UL"), -1),
		"P136 through a symlink":    rootfs(t).add(link("way", s.dir), nil).file("way/new", 0o644, text).bytes(),
		"P136 through a chain":      rootfs(t).add(link("a", "b"), nil).add(link("b", up+s.outside("")), nil).file("a/new", 0o644, text).bytes(),
		"P136 over a symlink":       rootfs(t).add(link("x", filepath.Join(s.dir, "file")), nil).file("x", 0o644, text).bytes(),
		"P136 directory over one":   rootfs(t).add(link("x", s.dir), nil).dir("x").file("x/new", 0o644, text).bytes(),
		"P137 link to outside":      rootfs(t).add(hard("x", "/"+s.outside("file")), nil).bytes(),
		"P137 link that climbs":     rootfs(t).add(hard("x", up+s.outside("file")), nil).bytes(),
		"P137 link by a symlink":    rootfs(t).add(link("way", s.dir), nil).add(hard("x", "way/file"), nil).bytes(),
		"P137 link to a symlink":    rootfs(t).add(link("way", filepath.Join(s.dir, "file")), nil).add(hard("x", "way"), nil).bytes(),
		"P137 link to nothing":      rootfs(t).add(hard("x", "nothing"), nil).bytes(),
		"P063 dev is a symlink":     rootfs(t).add(link("dev", s.dir), nil).bytes(),
		"P064 proc is a symlink":    rootfs(t).add(link("proc", s.dir), nil).bytes(),
		"P064 sys is a file":        rootfs(t).file("sys", 0o644, text).bytes(),
		"P063 tmp is a symlink":     rootfs(t).add(link("tmp", s.dir), nil).bytes(),
		"P135 owner out of range":   rootfs(t).add(tar.Header{Name: "x", Typeflag: tar.TypeReg, Uid: 70000}, nil).bytes(),
		"P141 truncated":            rootfs(t).file("x", 0o644, make([]byte, 8192)).bytes()[:4096],
		"P141 garbage":              bytes.Repeat([]byte("garbage "), 4096),
		"P141 unknown compression":  append([]byte("BZh91AY&SY"), make([]byte, 4096)...),
		"P141 empty":                {},
		"P139 whiteout of a parent": rootfs(t).file("usr/.wh...", 0, nil).bytes(),
	}
}

// brokenLayouts are OCI layouts that contradict themselves or lead elsewhere.
func brokenLayouts(t *testing.T, port int) map[string][]byte {
	t.Helper()
	layer := rootfs(t).file("x", 0o644, []byte("x")).bytes()
	of := func(m object) object { return m["layers"].([]any)[0].(object) }
	with := func(l layout) []byte { l.layer = layer; return l.bytes(t) }
	return map[string][]byte{
		"P141 wrong size":         with(layout{manifest: func(m object) { of(m)["size"] = 1 }}),
		"P141 wrong digest":       with(layout{manifest: func(m object) { of(m)["digest"] = "sha256:" + strings.Repeat("0", 64) }}),
		"P141 changed content":    with(layout{blobs: func(b blobs) { spoil(b, layer) }}),
		"P141 wrong media type":   with(layout{manifest: func(m object) { of(m)["mediaType"] = "application/vnd.oci.image.layer.v1.tar+gzip" }}),
		"P141 unknown type":       with(layout{manifest: func(m object) { of(m)["mediaType"] = "application/x-unknown" }}),
		"P141 manifest and index": with(layout{manifest: func(m object) { m["manifests"] = []any{} }}),
		"P141 digest climbs":      with(layout{manifest: func(m object) { of(m)["digest"] = "sha256:../../../../etc/passwd" }}),
		"P141 unknown algorithm":  with(layout{manifest: func(m object) { of(m)["digest"] = "md5:" + strings.Repeat("0", 32) }}),
		"P141 negative size":      with(layout{manifest: func(m object) { of(m)["size"] = -1 }}),
		"P146 foreign layer": with(layout{manifest: func(m object) {
			of(m)["urls"] = []string{fmt.Sprintf("http://127.0.0.1:%d/layer", port)}
			of(m)["mediaType"] = "application/vnd.oci.image.layer.nondistributable.v1.tar"
			of(m)["digest"] = "sha256:" + strings.Repeat("1", 64)
		}}),
		"P141 blob is a symlink": with(layout{
			blobs: func(b blobs) { delete(b, digestOf(layer)) },
			extra: func(a *archive) {
				a.add(tar.Header{Name: "blobs/sha256/" + digestOf(layer), Linkname: "/etc/passwd", Typeflag: tar.TypeSymlink}, nil)
			},
		}),
	}
}

func digestOf(data []byte) string {
	return strings.TrimPrefix(blobs{}.put(data)["digest"].(string), "sha256:")
}

// spoil flips a byte of a blob and leaves its name.
func spoil(b blobs, data []byte) {
	changed := bytes.Clone(data)
	changed[len(changed)/2] ^= 1
	b[digestOf(data)] = changed
}

//caisson:host no kernel is asked
func TestHostileArchivesAreRefused(t *testing.T) {
	s := newSentinel(t)
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	asked := make(chan struct{}, 100)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			asked <- struct{}{}
			_ = c.Close()
		}
	}()
	archives := hostile(t, s)
	for name, data := range brokenLayouts(t, l.Addr().(*net.TCPAddr).Port) {
		archives[name] = data
	}
	withProber(t)
	before, images := kept(t), daemon.Run(t, "image", "ls", "-o", "json").Stdout
	tree := s.state(t)
	for name, data := range archives {
		t.Run(name, func(t *testing.T) {
			id, what, _ := strings.Cut(name, " ")
			held(t, id, "import: "+what)
			r := daemon.TryWith(string(data), "image", "import", "-o", "json", "--name", "hostile", "-")
			if r.Code != 125 || !strings.Contains(r.Stdout, `"SBX-20`) {
				t.Errorf("exit code %d: %s%s", r.Code, r.Stdout, r.Stderr)
			}
			if after := s.state(t); after != tree {
				t.Errorf("the host's tree is\n%s, was\n%s", after, tree)
			}
		})
	}
	if after := kept(t); !slices.Equal(after, before) {
		t.Errorf("refused imports left\n%q\nbefore there was\n%q", after, before)
	}
	if after := daemon.Run(t, "image", "ls", "-o", "json").Stdout; after != images {
		t.Errorf("images %s, before %s", after, images)
	}
	if len(asked) > 0 {
		t.Errorf("%d connections were made to fetch a layer", len(asked))
	}
}

// kept lists what the daemon keeps of images: blobs, snapshots, and whatever
// is on its way.
func kept(t *testing.T) []string {
	t.Helper()
	var found []string
	for _, pattern := range []string{
		"containerd/*content*/blobs/*/*", "containerd/*content*/ingest/*", "containerd/*overlayfs*/snapshots/*", "spool/*",
	} {
		names, err := filepath.Glob(filepath.Join(daemon.Root, pattern))
		must(t, err)
		found = append(found, names...)
	}
	if len(found) < 3 {
		t.Fatalf("the daemon keeps only %q", found)
	}
	return found
}

// What no image may bring is left out, and nowhere in the daemon's directories
// is there a device, a set-user-id file or a capability.
func TestImagesBringNoRights(t *testing.T) {
	held(t, "P139", "import: devices, set-id, attributes")
	a := rootfs(t).
		add(tar.Header{Name: "null", Typeflag: tar.TypeChar, Mode: 0o666, Devmajor: 1, Devminor: 3}, nil).
		add(tar.Header{Name: "usr/disk", Typeflag: tar.TypeBlock, Mode: 0o666, Devmajor: 8}, nil).
		add(tar.Header{Name: "whiteout", Typeflag: tar.TypeChar}, nil).
		add(tar.Header{Name: "pipe", Typeflag: tar.TypeFifo, Mode: 0o666}, nil).
		file("su", 0o4755, []byte("#!/bin/sh\n")).file("wall", 0o2755, []byte("#!/bin/sh\n")).
		add(tar.Header{Name: "cap", Typeflag: tar.TypeReg, Mode: 0o755, PAXRecords: map[string]string{
			"SCHILY.xattr.security.capability": "\x01\x00\x00\x02\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"}}, []byte("x")).
		add(tar.Header{Name: "lower", Typeflag: tar.TypeDir, Mode: 0o755, PAXRecords: map[string]string{
			"SCHILY.xattr.trusted.overlay.redirect": "/../../etc", "SCHILY.xattr.trusted.overlay.opaque": "y"}}, nil).
		add(tar.Header{Name: "dev/", Typeflag: tar.TypeDir, Mode: 0o755}, nil).
		add(tar.Header{Name: "dev/null", Linkname: "/etc/shadow", Typeflag: tar.TypeSymlink}, nil)
	if r := daemon.TryWith(string(a.bytes()), "image", "import", "--name", "stripped", "-"); r.Code != 0 {
		t.Fatal(r.Stderr)
	}
	defer daemon.Run(t, "image", "rm", "stripped")
	daemon.Try("run", "--image", "stripped", "--", "/none") // unpacks it
	var seen int
	must(t, filepath.WalkDir(filepath.Join(daemon.Root, "containerd"), func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil // containerd moves its own files
		}
		if strings.HasSuffix(path, "/su") || strings.HasSuffix(path, "/lower") {
			seen++
		}
		info, err := e.Info()
		if err != nil {
			return nil
		}
		if info.Mode()&(os.ModeDevice|os.ModeNamedPipe|os.ModeSetuid|os.ModeSetgid) != 0 {
			t.Errorf("%s is %v", path, info.Mode())
		}
		for _, name := range []string{"security.capability", "trusted.overlay.redirect", "trusted.overlay.opaque", "trusted.overlay.metacopy"} {
			if _, err := unix.Lgetxattr(path, name, nil); err == nil {
				t.Errorf("%s has %s", path, name)
			}
		}
		return nil
	}))
	if seen < 2 {
		t.Error("the unpacked image was not found")
	}
}

// Labels and annotations that engines act on stay in the image's documents.
//
//caisson:host the daemon's own affair, the same on every kernel
func TestImageLabelsReachNoEngine(t *testing.T) {
	held(t, "P143", "import: labels of engines")
	held(t, "P145", "import: hooks and devices by annotation")
	keys := []string{"containerd.io/restart.loguri", "containerd.io/gc.root", "io.containerd.escape", "org.opencontainers.runc.escape", "run.oci.hooks.stderr",
		"dev.gvisor.flag.debug", "cdi.k8s.io/escape", "org.systemd.property.ExecStopPost"}
	labels := object{}
	for _, k := range keys {
		labels[k] = "escape?" + k
	}
	data := layout{
		config:   object{"Labels": labels, "Volumes": object{"/etc": object{}}, "Cmd": []string{proberPath}, "hooks": object{}},
		layer:    proberArchive(t),
		manifest: func(m object) { m["annotations"] = labels; m["layers"].([]any)[0].(object)["annotations"] = labels },
		index:    func(i object) { i["annotations"] = labels; i["manifests"].([]any)[0].(object)["annotations"] = labels },
	}.bytes(t)
	if r := daemon.TryWith(string(data), "image", "import", "--name", "labelled", "-"); r.Code != 0 {
		t.Fatal(r.Stderr)
	}
	defer daemon.Run(t, "image", "rm", "labelled")
	t.Run("running", func(t *testing.T) {
		d := detached(t, "--image", "labelled", "--", proberPath, "bomb", "mlock")
		spec := daemon.Run(t, "inspect", "--all", d.ID).Stdout
		store, err := os.ReadFile(filepath.Join(daemon.Root, "containerd/io.containerd.metadata.v1.bolt/meta.db"))
		must(t, err)
		if !bytes.Contains(store, []byte(d.ID)) {
			t.Error("the sandbox is not in the engine's store: nothing was looked at")
		}
		for _, k := range keys {
			// The engine has some of these keys of its own: it is the value that tells.
			if strings.Contains(spec, k) || bytes.Contains(store, []byte("escape?"+k)) {
				t.Errorf("label %q reached the specification or the engine's store", k)
			}
		}
		if strings.Contains(spec, `"hooks"`) || strings.Contains(spec, "escape?") || !strings.Contains(spec, `"seccomp"`) {
			t.Errorf("the specification: %s", spec)
		}
	})
}

func TestImageNames(t *testing.T) {
	held(t, "P146", "import: names")
	data := string(rootfs(t).bytes())
	for _, name := range []string{"../../x", "/x", "a/../b", "a//b", ".", "..", "a b", "a\nb", "A", "-x", "x@sha256:00", strings.Repeat("x", 300), "a:../b", "%2e%2e/x"} {
		if r := daemon.TryWith(data, "image", "import", "--name="+name, "-"); r.Code == 0 {
			t.Errorf("name %q was taken", name)
			daemon.Try("image", "rm", name)
		}
	}
}
