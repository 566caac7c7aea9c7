package ctrd

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/platforms"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/image"
)

func TestImages(t *testing.T) { testImages(t, connect(t, supervise(t))) }

//caisson:host containerd 1.7 is not built for the virtual machine
func TestImagesOn17(t *testing.T) {
	address, _ := server17(t)
	testImages(t, connectTo(t, EngineConfig{Address: address, Namespace: "ctrdtest", Runc: "/x", RuncRoot: "/x"}))
}

func testImages(t *testing.T, e *Engine) {
	ctx := t.Context()
	if list, err := e.ListImages(ctx); err != nil || len(list) != 0 {
		t.Fatalf("images of an empty store: %+v, %v", list, err)
	}
	labels := map[string]string{image.LabelKind: image.KindRootFS}
	one := put(t, e, "one", labels, layer(t, "a", "1"))
	two := put(t, e, "two:v1", labels, layer(t, "a", "1"), layer(t, "b", "2"))

	list, err := e.ListImages(ctx)
	if err != nil || len(list) != 2 || list[0].Name != "one" || list[1].Name != "two:v1" {
		t.Fatalf("images: %+v, %v", list, err)
	}
	for _, ref := range []string{"two:v1", "two:v1@" + two.String(), two.String()} {
		img, err := e.GetImage(ctx, ref)
		if err != nil {
			t.Fatal(err)
		}
		if img.Name != "two:v1" || img.Digest != two.String() || img.Source != image.KindRootFS || len(img.Layers) != 2 ||
			img.SizeBytes <= 2*1024 || img.CreatedAt.IsZero() || img.Config.Config.User != "1000" {
			t.Errorf("image %q is %+v", ref, img)
		}
	}
	for _, ref := range []string{"three", "one@" + two.String(), digest.FromString("x").String()} {
		if _, err := e.GetImage(ctx, ref); !errors.Is(err, sbxerr.ImageNotFound) {
			t.Errorf("get %q: %v, want %s", ref, err, sbxerr.ImageNotFound)
		}
	}
	testLayers(t, e, one, two)
	testReplace(t, e, labels, one)
}

// testLayers looks into the directories, which outlive the image until the view is
// released.
func testLayers(t *testing.T, e *Engine, one, two digest.Digest) {
	ctx := t.Context()
	for ref, want := range map[digest.Digest][]string{one: {"a"}, two: {"b", "a"}} {
		img, err := e.GetImage(ctx, ref.String())
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // made, then known
			dirs, err := e.Layers(ctx, img)
			if err != nil || len(dirs) != len(want) {
				t.Fatalf("layers of %s: %q, %v", img.Name, dirs, err)
			}
			for i, name := range want { // topmost first
				if _, err := os.Stat(filepath.Join(dirs[i], name)); err != nil {
					t.Error(err)
				}
			}
		}
	}
	img, err := e.GetImage(ctx, "two:v1")
	if err != nil {
		t.Fatal(err)
	}
	dirs, err := e.Layers(ctx, img)
	if err != nil {
		t.Fatal(err)
	}
	clear(e.views) // as after a restart: the view exists, this Engine does not know it
	if again, err := e.Layers(ctx, img); err != nil || !slices.Equal(again, dirs) {
		t.Errorf("layers after a restart: %q, %v, want %q", again, err, dirs)
	}
	for range 2 {
		if err := e.RemoveImages(ctx, "two:v1"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(dirs[0]); err != nil {
		t.Errorf("a layer went with its image in spite of the view: %v", err)
	}
	if views, err := e.Views(ctx); err != nil || len(views) != 2 || !slices.Contains(views, img.ChainID) {
		t.Errorf("views: %q, %v", views, err)
	}
	for range 2 {
		if err := e.ReleaseView(ctx, img.ChainID); err != nil {
			t.Fatal(err)
		}
	}
	await(t, "the removal of the released layer", func() bool { _, err := os.Stat(dirs[0]); return errors.Is(err, os.ErrNotExist) })
	if _, err := e.Layers(ctx, img); !errors.Is(err, sbxerr.ImageNotFound) {
		t.Errorf("layers of a removed image: %v", err)
	}
}

func testReplace(t *testing.T, e *Engine, labels map[string]string, old digest.Digest) {
	ctx := t.Context()
	img, err := e.GetImage(ctx, "one")
	if err != nil {
		t.Fatal(err)
	}
	if err := e.ReleaseView(ctx, img.ChainID); err != nil {
		t.Fatal(err)
	}
	fresh := put(t, e, "one", labels, layer(t, "c", "3"))
	if img, err := e.GetImage(ctx, "one"); err != nil || img.Digest != fresh.String() {
		t.Errorf("replaced image: %+v, %v", img, err)
	}
	if _, err := e.GetImage(ctx, old.String()); !errors.Is(err, sbxerr.ImageNotFound) {
		t.Errorf("the image before: %v", err)
	}
	if err := e.RemoveImages(ctx, "one"); err != nil {
		t.Fatal(err)
	}
	if left := blobs(t, e); len(left) > 0 || len(e.uploads) > 0 {
		t.Errorf("blobs left: %q, uploads %q", left, e.uploads)
	}
}

// What an import leaves when it fails half way is kept for a while, in case it goes
// on, and is gone as soon as a daemon starts again.
func TestUnfinishedImport(t *testing.T) {
	s := supervise(t)
	e := connect(t, s)
	data := layer(t, "x", "y")
	if _, err := e.Blob(t.Context(), ocispec.MediaTypeImageLayer, writer(data)); err != nil {
		t.Fatal(err)
	}
	collect(t, e)
	if got := blobs(t, e); len(got) != 1 {
		t.Errorf("blobs during an import: %q", got)
	}
	again := connect(t, s)
	collect(t, again)
	await(t, "the removal of the blob", func() bool { return len(blobs(t, again)) == 0 })
}

// Blobs that no image will have are gone at once, but for those that one has.
func TestForget(t *testing.T) {
	e := connect(t, supervise(t))
	shared := layer(t, "a", "1")
	put(t, e, "stays", nil, shared)
	before := blobs(t, e)
	var stored []ocispec.Descriptor
	for _, data := range [][]byte{shared, layer(t, "b", "2"), layer(t, "c", "3")} {
		desc, err := e.Blob(t.Context(), ocispec.MediaTypeImageLayer, writer(data))
		if err != nil {
			t.Fatal(err)
		}
		stored = append(stored, desc)
	}
	if n := len(blobs(t, e)); n != len(before)+2 {
		t.Errorf("%d blobs, want two more than %d", n, len(before))
	}
	if err := e.Forget(t.Context(), stored); err != nil {
		t.Fatal(err)
	}
	if left := blobs(t, e); !slices.Equal(left, before) || len(e.uploads) > 0 {
		t.Errorf("blobs %q, want %q; uploads %v", left, before, e.uploads)
	}
	if err := e.Forget(t.Context(), stored); err != nil {
		t.Errorf("once more: %v", err)
	}
}

// A blob that is stored already is kept for the import that stores it again, even
// if the image that it came with is removed in between.
func TestSharedBlob(t *testing.T) {
	e := connect(t, supervise(t))
	data := layer(t, "a", "1")
	put(t, e, "first", nil, data)
	desc, err := e.Blob(t.Context(), ocispec.MediaTypeImageLayer, writer(data))
	if err != nil {
		t.Fatal(err)
	}
	if err := e.RemoveImages(t.Context(), "first"); err != nil {
		t.Fatal(err)
	}
	if got := blobs(t, e); len(got) != 1 || got[0] != desc.Digest.String() {
		t.Errorf("blobs: %q, want %s", got, desc.Digest)
	}
}

// TestCollectedBlob has the store tell of a blob that the garbage collector takes
// before the lease holds it.
func TestCollectedBlob(t *testing.T) {
	e := connect(t, supervise(t))
	ctx := namespaces.WithNamespace(t.Context(), e.cfg.Namespace)
	lease, err := e.client.LeasesService().Create(ctx, leases.WithRandomID())
	if err != nil {
		t.Fatal(err)
	}
	there := blob(t, e, "text/plain", []byte("there"))
	if err := e.storedAlready(ctx, lease, there.Digest); err != nil {
		t.Errorf("a blob that is there: %v", err)
	}
	if err := e.storedAlready(ctx, lease, digest.FromString("collected")); !errors.Is(err, image.ErrStoreAgain) {
		t.Errorf("%v, want %v", err, image.ErrStoreAgain)
	}
}

func TestBlobFails(t *testing.T) {
	e := connect(t, supervise(t))
	broken := sbxerr.New(sbxerr.ImageTooBig, "test", "too big")
	_, err := e.Blob(t.Context(), ocispec.MediaTypeImageLayer, func(w io.Writer) error {
		_, err := w.Write([]byte("half of it"))
		return errors.Join(err, broken)
	})
	if !errors.Is(err, broken) || sbxerr.Of(err) != sbxerr.ImageTooBig {
		t.Errorf("blob: %v", err)
	}
	ctx := namespaces.WithNamespace(t.Context(), e.cfg.Namespace)
	if list, err := e.client.ContentStore().ListStatuses(ctx); err != nil || len(list) > 0 {
		t.Errorf("ingests left: %+v, %v", list, err)
	}
	if list, err := e.client.LeasesService().List(ctx); err != nil || len(list) > 0 {
		t.Errorf("leases left: %+v, %v", list, err)
	}
}

// One damaged image must not hide the others, nor resist its removal.
func TestDamagedImage(t *testing.T) {
	s := supervise(t)
	e := connect(t, s)
	put(t, e, "good", nil, layer(t, "a", "1"))
	bad := put(t, e, "bad", nil, layer(t, "b", "2"))
	path := filepath.Join(s.cfg.serverRoot(), "io.containerd.content.v1.content/blobs/sha256", bad.Encoded())
	for _, step := range []struct {
		what string
		harm func() error
	}{
		{"altered", func() error { return os.WriteFile(path, bytes.Repeat([]byte(" "), size(t, path)), 0o600) }},
		{"gone", func() error { return os.Remove(path) }},
	} {
		if err := step.harm(); err != nil {
			t.Fatal(err)
		}
		clear(e.docs) // as after a restart
		list, err := e.ListImages(t.Context())
		if err != nil || len(list) != 2 || list[0].Digest != bad.String() || list[0].ChainID != "" || list[1].ChainID == "" {
			t.Errorf("%s: images: %+v, %v", step.what, list, err)
		}
		if _, err := e.GetImage(t.Context(), "bad"); !errors.Is(err, sbxerr.ImageDamaged) || !strings.Contains(sbxerr.RemedyOf(err), "again") {
			t.Errorf("%s: %v", step.what, err)
		}
	}
	if err := e.RemoveImages(t.Context(), "bad"); err != nil {
		t.Error(err)
	}
}

func TestCommitRefuses(t *testing.T) {
	e := connect(t, supervise(t))
	whole := manifest(t, e, layer(t, "a", "1"))
	index := whole
	index.MediaType = ocispec.MediaTypeImageIndex
	absent := blob(t, e, ocispec.MediaTypeImageManifest, mustJSON(t, ocispec.Manifest{
		Config: ocispec.Descriptor{Digest: digest.FromString("none"), Size: 4},
	}))
	wrongDiff := manifestOf(t, e, []digest.Digest{digest.FromString("other")}, layer(t, "a", "1"))
	for _, tt := range []struct {
		what   string
		name   string
		desc   ocispec.Descriptor
		labels map[string]string
		want   sbxerr.Code
	}{
		{"no name", "", whole, nil, sbxerr.Config},
		{"label of another", "x", whole, map[string]string{"containerd.io/restart.loguri": "binary:///bin/sh"}, sbxerr.Internal},
		{"index", "x", index, nil, sbxerr.ImageFormat},
		{"absent config", "x", absent, nil, sbxerr.Engine},
		{"absent manifest", "x", ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Digest: digest.FromString("n"), Size: 3}, nil, sbxerr.ImageDamaged},
		{"huge manifest", "x", ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Digest: whole.Digest, Size: maxDocument + 1}, nil, sbxerr.ImageTooBig},
		{"wrong diff id", "x", wrongDiff, nil, sbxerr.Engine},
	} {
		if err := e.Commit(t.Context(), tt.name, tt.desc, tt.labels); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %s", tt.what, err, tt.want)
		}
	}
	if list, err := e.ListImages(t.Context()); err != nil || len(list) > 0 {
		t.Errorf("images: %+v, %v", list, err)
	}
}

// --- making images -----------------------------------------------------------------

func layer(t *testing.T, name, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text))}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func put(t *testing.T, e *Engine, name string, labels map[string]string, layers ...[]byte) digest.Digest {
	t.Helper()
	desc := manifest(t, e, layers...)
	if err := e.Commit(t.Context(), name, desc, labels); err != nil {
		t.Fatal(err)
	}
	return desc.Digest
}

func manifest(t *testing.T, e *Engine, layers ...[]byte) ocispec.Descriptor {
	t.Helper()
	var diffs []digest.Digest
	for _, l := range layers {
		diffs = append(diffs, digest.FromBytes(l))
	}
	return manifestOf(t, e, diffs, layers...)
}

func manifestOf(t *testing.T, e *Engine, diffs []digest.Digest, layers ...[]byte) ocispec.Descriptor {
	t.Helper()
	m := ocispec.Manifest{MediaType: ocispec.MediaTypeImageManifest}
	m.SchemaVersion = 2
	for _, l := range layers {
		m.Layers = append(m.Layers, blob(t, e, ocispec.MediaTypeImageLayer, l))
	}
	config := ocispec.Image{
		Platform: platforms.DefaultSpec(),
		Config:   ocispec.ImageConfig{User: "1000"},
		RootFS:   ocispec.RootFS{Type: "layers", DiffIDs: diffs},
	}
	m.Config = blob(t, e, ocispec.MediaTypeImageConfig, mustJSON(t, config))
	return blob(t, e, ocispec.MediaTypeImageManifest, mustJSON(t, m))
}

func blob(t *testing.T, e *Engine, mediaType string, data []byte) ocispec.Descriptor {
	t.Helper()
	desc, err := e.Blob(t.Context(), mediaType, writer(data))
	if err != nil {
		t.Fatal(err)
	}
	if desc.Digest != digest.FromBytes(data) || desc.Size != int64(len(data)) || desc.MediaType != mediaType {
		t.Errorf("descriptor is %+v", desc)
	}
	return desc
}

func writer(data []byte) func(io.Writer) error {
	return func(w io.Writer) error { _, err := w.Write(data); return err }
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func size(t *testing.T, path string) int {
	t.Helper()
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return int(st.Size())
}

// collect runs the garbage collector, which a synchronous removal waits for.
func collect(t *testing.T, e *Engine) {
	t.Helper()
	put(t, e, "collect", nil, layer(t, "gc", "gc"))
	if err := e.RemoveImages(t.Context(), "collect"); err != nil {
		t.Fatal(err)
	}
}

func blobs(t *testing.T, e *Engine) []string {
	t.Helper()
	list := []string{}
	ctx := namespaces.WithNamespace(t.Context(), e.cfg.Namespace)
	err := e.client.ContentStore().Walk(ctx, func(i content.Info) error {
		list = append(list, i.Digest.String())
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// --- pure parts --------------------------------------------------------------------

func TestLayerDirs(t *testing.T) {
	overlay := func(o ...string) []mount.Mount {
		return []mount.Mount{{Type: "overlay", Source: "overlay", Options: o}}
	}
	for _, tt := range []struct {
		what   string
		mounts []mount.Mount
		want   []string
	}{
		{"bind", []mount.Mount{{Type: "bind", Source: "/s/1/fs", Options: []string{"ro", "rbind"}}}, []string{"/s/1/fs"}},
		{"overlay", overlay("index=off", "lowerdir=/s/2/fs:/s/1/fs"), []string{"/s/2/fs", "/s/1/fs"}},
		{"none", nil, nil},
		{"two", append(overlay("lowerdir=/a"), overlay("lowerdir=/b")...), nil},
		{"no lowerdir", overlay("upperdir=/a"), nil},
		{"relative", overlay("lowerdir=/a:b"), nil},
		{"empty element", overlay("lowerdir=/a::/b"), nil},
		{"escaped colon", overlay(`lowerdir=/a\:b`), nil},
		{"another type", []mount.Mount{{Type: "erofs", Source: "/a"}}, nil},
		{"no source", []mount.Mount{{Type: "bind"}}, nil},
	} {
		got, err := layerDirs(tt.mounts)
		if !slices.Equal(got, tt.want) || (err == nil) != (tt.want != nil) {
			t.Errorf("%s: %q, %v, want %q", tt.what, got, err, tt.want)
		}
	}
}

func TestSplitRef(t *testing.T) {
	d := digest.FromString("x")
	for ref, want := range map[string]struct {
		name string
		d    digest.Digest
		ok   bool
	}{
		"base":                    {"base", "", true},
		"reg:5000/a/b:v1":         {"reg:5000/a/b:v1", "", true},
		"base@" + d.String():      {"base", d, true},
		d.String():                {"", d, true},
		"":                        {},
		"@":                       {},
		"base@sha256:12":          {},
		"base@":                   {},
		"sha256:zz":               {},
		"base@md5:" + d.Encoded(): {},
	} {
		name, got, err := splitRef(ref)
		if (err == nil) != want.ok || err == nil && (name != want.name || got != want.d) {
			t.Errorf("%q: %q, %q, %v", ref, name, got, err)
		}
	}
}

func TestCheckImageName(t *testing.T) {
	for name, ok := range map[string]bool{
		"base": true, "a/b:v1.2_x-y": true, "": false, "a b": false, "a\n": false, "a@b": false, "ü": false,
		strings.Repeat("a", 255): true, strings.Repeat("a", 267): false, "sha256:" + strings.Repeat("0", 64): false,
	} {
		if err := checkImageName(name); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
}
