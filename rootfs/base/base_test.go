package base

import (
	"archive/tar"
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	goruntime "runtime"
	"strings"
	"testing"
	"testing/fstest"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/image"
)

// keep is a sink that keeps the layer.
type keep struct {
	image.Sink
	layer bytes.Buffer
	name  string
	kind  string
}

func (k *keep) Blob(ctx context.Context, mediaType string, write func(io.Writer) error) (ocispec.Descriptor, error) {
	return k.Sink.Blob(ctx, mediaType, func(w io.Writer) error {
		if mediaType == ocispec.MediaTypeImageLayer {
			w = io.MultiWriter(w, &k.layer)
		}
		return write(w)
	})
}

func (k *keep) Commit(_ context.Context, name string, _ ocispec.Descriptor, labels map[string]string) error {
	k.name, k.kind = name, labels[image.LabelKind]
	return nil
}

// binaryFor makes the smallest ELF executable that the check takes, with one
// segment of type seg.
func binaryFor(t testing.TB, machine elf.Machine, seg elf.ProgType) []byte {
	t.Helper()
	h := elf.Header64{
		Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_EXEC), Machine: uint16(machine), Version: uint32(elf.EV_CURRENT),
		Phoff: 64, Ehsize: 64, Phentsize: 56, Phnum: 1, Shentsize: 64,
	}
	var buf bytes.Buffer
	for _, part := range []any{h, elf.Prog64{Type: uint32(seg)}} {
		if err := binary.Write(&buf, binary.LittleEndian, part); err != nil {
			t.Fatal(err)
		}
	}
	return buf.Bytes()
}

func assetsOf(busybox []byte, applets string) fstest.MapFS {
	return fstest.MapFS{"assets/busybox": {Data: busybox}, "assets/applets.txt": {Data: []byte(applets)}}
}

func honest(t testing.TB) fstest.MapFS {
	return assetsOf(binaryFor(t, machines[goruntime.GOARCH], elf.PT_LOAD), "[\n[[\nbusybox\ncat\nenv\nlinuxrc\nsh\n")
}

func TestBuild(t *testing.T) {
	k := &keep{Sink: image.Discard}
	r, err := build(t.Context(), honest(t), k)
	if err != nil {
		t.Fatal(err)
	}
	if k.name != Name || k.kind != image.KindEmbedded || r.Name != Name || len(r.Report.Stripped) > 0 {
		t.Errorf("committed %q of kind %q: %+v", k.name, k.kind, r)
	}
	tree := unpack(t, &k.layer)
	for name, want := range map[string]string{
		"bin/busybox": "file 755", "bin/sh": "link busybox", "bin/[[": "link busybox", "usr/bin": "link ../bin", "sbin": "link bin",
		"tmp": "dir 1777", "root": "dir 700", "etc/passwd": "file 644", "dev": "dir 755", "proc": "dir 555", "home": "dir 755", "workspace": "dir 755",
	} {
		if tree[name] != want {
			t.Errorf("%s is %q, want %q", name, tree[name], want)
		}
	}
	if _, ok := tree["bin/linuxrc"]; ok {
		t.Error("linuxrc is there")
	}
	for name, what := range tree {
		if target, ok := strings.CutPrefix(what, "link "); ok && !strings.HasPrefix(target, "/") && tree[path.Join(path.Dir(name), target)] == "" {
			t.Errorf("%s points to %s, which is not there", name, target)
		}
	}
}

// unpack says what a layer holds.
func unpack(t *testing.T, r io.Reader) map[string]string {
	t.Helper()
	tree := map[string]string{}
	tr := tar.NewReader(r)
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return tree
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Uid != 0 || h.Gid != 0 || h.ModTime.Unix() != 0 {
			t.Errorf("%s has owner %d:%d and time %s", h.Name, h.Uid, h.Gid, h.ModTime)
		}
		name := strings.TrimSuffix(h.Name, "/")
		if tree[name] != "" {
			t.Errorf("%s is there twice", name)
		}
		switch h.Typeflag {
		case tar.TypeDir:
			tree[name] = fmt.Sprintf("dir %o", h.Mode)
		case tar.TypeReg:
			tree[name] = fmt.Sprintf("file %o", h.Mode)
		case tar.TypeSymlink:
			tree[name] = "link " + h.Linkname
		}
	}
}

// The users resolve with the resolver that runs use.
func TestUsers(t *testing.T) {
	content := map[string]string{}
	for _, f := range texts {
		content[f.name] = f.content
	}
	for user, want := range map[string][2]uint32{"root": {0, 0}, "caisson": {1000, 1000}, "nobody": {65534, 65534}, config.User: {1000, 1000}, "1000": {1000, 1000}} {
		u, err := image.ResolveUser(user, strings.NewReader(content["etc/passwd"]), strings.NewReader(content["etc/group"]))
		if err != nil || u.UID != want[0] || u.GID != want[1] || u.GIDs != nil {
			t.Errorf("%s is %+v, err %v", user, u, err)
		}
	}
	for _, shell := range strings.Fields(content["etc/shells"]) {
		if !strings.HasPrefix(shell, "/bin/") {
			t.Errorf("shell %s", shell)
		}
	}
}

func TestDigestFollowsTheFiles(t *testing.T) {
	digestOf := func(files fs.FS) string {
		r, err := build(t.Context(), files, image.Discard)
		if err != nil {
			t.Fatal(err)
		}
		return r.Manifest.Digest.String()
	}
	one := digestOf(honest(t))
	if again := digestOf(honest(t)); again != one {
		t.Errorf("the same files make %s and %s", one, again)
	}
	other := honest(t)
	other["assets/busybox"].Data = append(other["assets/busybox"].Data, 0)
	shuffled := honest(t)
	shuffled["assets/applets.txt"].Data = []byte("sh\nenv\ncat\n[[\n[\ncat\n")
	if digestOf(other) == one || digestOf(shuffled) != one {
		t.Errorf("another busybox: %s; another order: %s; was %s", digestOf(other), digestOf(shuffled), one)
	}
}

func TestBadAssets(t *testing.T) {
	good := string(binaryFor(t, machines[goruntime.GOARCH], elf.PT_LOAD))
	other := elf.EM_SPARC
	cases := map[string]struct {
		files fs.FS
		says  []string
	}{
		"nothing":     {fstest.MapFS{}, []string{`without "busybox"`, `without "applets.txt"`}},
		"no list":     {fstest.MapFS{"assets/busybox": {Data: []byte(good)}}, []string{`without "applets.txt"`}},
		"unreadable":  {fstest.MapFS{"assets/busybox": {Mode: fs.ModeDir}, "assets/applets.txt": {}}, []string{"busybox"}},
		"script":      {assetsOf([]byte("#!/bin/sh\n"), "sh\n"), []string{"read the embedded busybox"}},
		"other host":  {assetsOf(binaryFor(t, other, elf.PT_LOAD), "sh\n"), []string{"is for EM_SPARC"}},
		"dynamic":     {assetsOf(binaryFor(t, machines[goruntime.GOARCH], elf.PT_INTERP), "sh\n"), []string{"not static"}},
		"both":        {assetsOf(binaryFor(t, other, elf.PT_INTERP), ""), []string{"not static", "is for EM_SPARC", `lacks "sh"`}},
		"no shell":    {assetsOf([]byte(good), "cat\n"), []string{`lacks "sh"`}},
		"empty list":  {assetsOf([]byte(good), ""), []string{`lacks "sh"`}},
		"path":        {assetsOf([]byte(good), "sh\n../../etc/passwd\n"), []string{`"../../etc/passwd"`}},
		"dots":        {assetsOf([]byte(good), "sh\n..\n"), []string{`".."`}},
		"usage text":  {assetsOf([]byte(good), "sh\nBusyBox v1.35.0 (Debian)\n"), []string{`"BusyBox v1.35.0 (Debian)"`}},
		"empty line":  {assetsOf([]byte(good), "sh\n\ncat\n"), []string{`""`}},
		"carriage":    {assetsOf([]byte(good), "sh\r\n"), []string{`"sh\r"`}},
		"list of dir": {fstest.MapFS{"assets/busybox": {Data: []byte(good)}, "assets/applets.txt": {Mode: fs.ModeDir}}, []string{"applets.txt"}},
	}
	for name, tc := range cases {
		k := &keep{Sink: image.Discard}
		_, err := build(t.Context(), tc.files, k)
		if sbxerr.Of(err) != sbxerr.Binary || k.name != "" {
			t.Errorf("%s: committed %q, err %v", name, k.name, err)
			continue
		}
		if !strings.Contains(sbxerr.RemedyOf(err), "make") {
			t.Errorf("%s: remedy %q", name, sbxerr.RemedyOf(err))
		}
		for _, want := range tc.says {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v does not say %q", name, err, want)
			}
		}
	}
}

func TestErrorsOfTheSinkAreReturned(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := build(ctx, honest(t), image.Discard); sbxerr.Of(err) != sbxerr.Canceled {
		t.Errorf("%v", err)
	}
}

// TestEmbedded looks at what this very build embeds. A build without the
// assets says so, which is all it can do.
func TestEmbedded(t *testing.T) {
	if _, err := fs.Stat(assets, "assets/README.md"); err != nil {
		t.Fatalf("the folder is not embedded: %v", err)
	}
	d, err := Digest(t.Context())
	if _, missing := fs.Stat(assets, "assets/busybox"); missing != nil {
		if sbxerr.Of(err) != sbxerr.Binary {
			t.Errorf("without busybox: %s, err %v", d, err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	k := &keep{Sink: image.Discard}
	r, err := Build(t.Context(), k)
	if err != nil || r.Manifest.Digest != d {
		t.Errorf("built %s, digest %s, err %v", r.Manifest.Digest, d, err)
	}
	tree := unpack(t, &k.layer)
	for _, applet := range []string{"sh", "ls", "cat", "env", "sleep", "id"} {
		if tree["bin/"+applet] != "link busybox" {
			t.Errorf("%s is %q", applet, tree["bin/"+applet])
		}
	}
}
