package filter

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/caisson-run/caisson/rootfs/image"
)

// memSink keeps everything, and fails at the n-th call when told so.
type memSink struct {
	blobs  map[digest.Digest][]byte
	names  map[string]ocispec.Descriptor
	labels map[string]map[string]string
	calls  int
	failAt int
	fail   error
}

func newMemSink() *memSink {
	return &memSink{blobs: map[digest.Digest][]byte{}, names: map[string]ocispec.Descriptor{}, labels: map[string]map[string]string{}}
}

func (s *memSink) call() error {
	if s.calls++; s.calls == s.failAt {
		return s.fail
	}
	return nil
}

func (s *memSink) Blob(_ context.Context, mediaType string, write func(io.Writer) error) (ocispec.Descriptor, error) {
	if err := s.call(); err != nil {
		return ocispec.Descriptor{}, err
	}
	var buf bytes.Buffer
	if err := write(&buf); err != nil {
		return ocispec.Descriptor{}, fmt.Errorf("a wrapping sink: %w", err)
	}
	d := ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(buf.Bytes()), Size: int64(buf.Len())}
	s.blobs[d.Digest] = buf.Bytes()
	return d, nil
}

func (s *memSink) Unpack(context.Context, []ocispec.Descriptor) {}

func (s *memSink) Commit(_ context.Context, name string, d ocispec.Descriptor, labels map[string]string) error {
	if err := s.call(); err != nil {
		return err
	}
	s.names[name], s.labels[name] = d, labels
	return nil
}

func (s *memSink) Forget(ctx context.Context, blobs []ocispec.Descriptor) error {
	for _, d := range blobs {
		delete(s.blobs, d.Digest)
	}
	return ctx.Err()
}

// image returns what was committed as name.
func (s *memSink) image(t testing.TB, name string) (m ocispec.Manifest, c ocispec.Image, layers [][]byte) {
	t.Helper()
	d, ok := s.names[name]
	if !ok {
		t.Fatalf("no image %q in %v", name, s.names)
	}
	decode(t, s.blobs[d.Digest], &m)
	decode(t, s.blobs[m.Config.Digest], &c)
	for i, l := range m.Layers {
		if l.Digest != c.RootFS.DiffIDs[i] {
			t.Errorf("layer %d: digest %s, diff id %s", i, l.Digest, c.RootFS.DiffIDs[i])
		}
		layers = append(layers, s.blobs[l.Digest])
	}
	return m, c, layers
}

func decode(t testing.TB, data []byte, v any) {
	t.Helper()
	if err := json.Unmarshal(data, v); err != nil {
		t.Fatalf("decode %q: %v", data, err)
	}
}

func encode(t testing.TB, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// ent is a tar entry; text is a file's content.
type ent struct {
	tar.Header
	text string
}

func file(name, text string) ent {
	return ent{tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644}, text}
}

func dir(name string) ent {
	return ent{tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o755}, ""}
}

func symlink(name, target string) ent {
	return ent{tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777}, ""}
}

func hardlink(name, target string) ent {
	return ent{tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: target, Mode: 0o644}, ""}
}

func typed(name string, flag byte) ent {
	return ent{tar.Header{Typeflag: flag, Name: name, Mode: 0o644}, ""}
}

func (e ent) with(change func(*tar.Header)) ent {
	change(&e.Header)
	return e
}

// tarOf writes entries as archive/tar does, without judging them.
func tarOf(t testing.TB, entries ...ent) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, e := range entries {
		e.Size = int64(len(e.text))
		if err := w.WriteHeader(&e.Header); err != nil {
			t.Fatalf("write %q: %v", e.Name, err)
		}
		if _, err := io.WriteString(w, e.text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// list reads a tar to its end.
func list(t testing.TB, data []byte) []ent {
	t.Helper()
	r := tar.NewReader(bytes.NewReader(data))
	var out []ent
	for {
		h, err := r.Next()
		if err == io.EOF {
			return out
		}
		if err != nil {
			t.Fatalf("read the tar: %v", err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, ent{*h, string(text)})
	}
}

func names(entries []ent) []string {
	out := []string{}
	for _, e := range entries {
		out = append(out, e.Name)
	}
	return out
}

// smallLimits are enough for every honest fixture.
func smallLimits() Limits {
	return Limits{Bytes: 4 << 20, Entries: 1000, NameBytes: 64 << 10, Layers: 10, DocumentBytes: 64 << 10, Ratio: 200}
}

// filterAll passes layers through f.
func filterAll(f *Filter, layers ...[]byte) ([][]byte, error) {
	var out [][]byte
	for _, l := range layers {
		var buf bytes.Buffer
		if err := f.Layer(bytes.NewReader(l), &buf); err != nil {
			return out, err
		}
		out = append(out, buf.Bytes())
	}
	return out, nil
}

// violations says what in the layers breaks the promise of Filter. It shares
// nothing with the rules.
func violations(t testing.TB, layers [][]byte) []string {
	t.Helper()
	var bad []string
	below := map[string]bool{}
	for i, l := range layers {
		v := layerOracle{below: below, have: map[string]byte{}, first: i == 0}
		for _, e := range list(t, l) {
			for _, what := range v.entry(e) {
				bad = append(bad, fmt.Sprintf("layer %d, %q: %s", i+1, e.Name, what))
			}
		}
		for name := range v.have {
			below[name] = true
			for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
				if _, opaque := v.have[path.Join(dir, opaqueName)]; opaque && strings.HasPrefix(path.Base(name), ".wh.") && path.Base(name) != opaqueName {
					bad = append(bad, fmt.Sprintf("layer %d: the whiteout %q is inside the opaque %q", i+1, name, dir))
				}
			}
		}
	}
	return bad
}

type layerOracle struct {
	below map[string]bool // names of all lower layers, hidden ones included
	have  map[string]byte // of this layer
	first bool
}

func (o *layerOracle) entry(e ent) []string {
	var bad []string
	say := func(wrong bool, what string) {
		if wrong {
			bad = append(bad, what)
		}
	}
	name := e.Name
	if e.Typeflag == tar.TypeDir {
		name = strings.TrimSuffix(name, "/")
	}
	say(path.Join("/", name) != "/"+name || name == "", "the name is not clean")
	say(strings.ContainsRune(name+e.Linkname, 0), "the name is no text")
	say(len(name) > 4095 || len(e.Linkname) > 4095, "the name is too long")
	for _, c := range strings.Split(name, "/") {
		say(len(c) > 255 || c == ".." || c == "." || c == "", "a component is bad")
	}
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		say(o.have[dir] != tar.TypeDir, "the parent "+dir+" does not come before it as a directory")
	}
	before, twice := o.have[name]
	say(twice && (before != tar.TypeDir || e.Typeflag != tar.TypeDir), "it is there twice")
	bad = append(bad, o.inode(name, e)...)
	o.have[name] = e.Typeflag
	return bad
}

func (o *layerOracle) inode(name string, e ent) []string {
	var bad []string
	say := func(wrong bool, what string) {
		if wrong {
			bad = append(bad, what)
		}
	}
	switch e.Typeflag {
	case tar.TypeReg, tar.TypeDir, tar.TypeSymlink:
	case tar.TypeLink:
		say(o.have[e.Linkname] != tar.TypeReg && o.have[e.Linkname] != tar.TypeLink, "the link's target is no earlier file")
		say(strings.HasPrefix(path.Base(e.Linkname), ".wh."), "the link's target is a whiteout")
	default:
		say(true, "the type is "+string(e.Typeflag))
	}
	say(e.Mode&^0o1777 != 0 || e.Mode&0o1000 != 0 && e.Typeflag != tar.TypeDir, fmt.Sprintf("the mode is %o", e.Mode))
	say(e.Uid < 0 || e.Uid > 65535 || e.Gid < 0 || e.Gid > 65535, "the owner does not map")
	say(e.Uname != "" || e.Gname != "" || e.Devmajor != 0 || e.Devminor != 0, "there is a name or number too many")
	say(e.ModTime.Unix() < 0 || e.ModTime.Unix() > 1<<32 || e.ModTime.Nanosecond() != 0, "the time is odd")
	for key := range e.PAXRecords {
		say(key != "path" && key != "linkpath" && key != "size", "there is a record "+key)
	}
	first, _, inside := strings.Cut(name, "/")
	special := slices.Contains([]string{"dev", "proc", "sys"}, first)
	say(special && (inside || e.Typeflag != tar.TypeDir), "it is inside a special directory, or one that is none")
	say(slices.Contains([]string{"tmp", "run", "home", "etc", "var", "var/tmp", "workspace"}, name) && e.Typeflag != tar.TypeDir, "a mount point is no directory")
	parts := strings.Split(name, "/")
	for i, c := range parts {
		if !strings.HasPrefix(c, ".wh.") {
			continue
		}
		say(o.first, "there is a whiteout in the lowest layer")
		say(i != len(parts)-1 || e.Typeflag != tar.TypeReg || e.Size != 0, "the whiteout has no proper form")
		say(name == opaqueName, "the root of the layer is opaque")
		if c != opaqueName {
			hidden := path.Join(path.Dir(name), c[len(".wh."):])
			say(!o.below[hidden], "the whiteout hides nothing")
			_, both := o.have[hidden]
			say(both, "the layer holds what it hides")
		}
	}
	return bad
}

func gz(t testing.TB, data []byte) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := gzip.NewWriter(&buf)
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func zst(t testing.TB, data []byte) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return w.EncodeAll(data, nil)
}

// files is an archive in the making: names and contents, in order.
type files []ent

func (f *files) add(name string, content []byte) { *f = append(*f, file(name, string(content))) }

// set replaces the content of a file.
func (f files) set(t testing.TB, name string, content []byte) {
	t.Helper()
	i := slices.IndexFunc(f, func(e ent) bool { return e.Name == name })
	if i < 0 {
		t.Fatalf("no file %q in %q", name, names(f))
	}
	f[i].text = string(content)
}

func (f *files) blob(mediaType string, content []byte) ocispec.Descriptor {
	d := ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(content), Size: int64(len(content))}
	name := "blobs/sha256/" + d.Digest.Encoded()
	if !slices.ContainsFunc(*f, func(e ent) bool { return e.Name == name }) {
		f.add(name, content)
	}
	return d
}

// layout is an OCI layout whose parts a test may change before it is written.
type layout struct {
	files    files
	config   ocispec.Image
	manifest ocispec.Manifest
	index    ocispec.Index
}

type packed struct {
	mediaType string
	stored    []byte
	plain     []byte
}

func plainLayer(data []byte) packed { return packed{ocispec.MediaTypeImageLayer, data, data} }

// newLayout makes an honest layout with the given layers.
func newLayout(t testing.TB, layers ...packed) *layout {
	t.Helper()
	l := &layout{
		config: ocispec.Image{
			Platform: ocispec.Platform{Architecture: goruntime.GOARCH, OS: "linux"},
			Config:   ocispec.ImageConfig{Env: []string{"PATH=/bin"}, Cmd: []string{"/bin/sh"}},
			RootFS:   ocispec.RootFS{Type: "layers"},
		},
		manifest: ocispec.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest},
		index:    ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex},
	}
	l.files.add("oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`))
	for _, p := range layers {
		l.manifest.Layers = append(l.manifest.Layers, l.files.blob(p.mediaType, p.stored))
		l.config.RootFS.DiffIDs = append(l.config.RootFS.DiffIDs, digest.FromBytes(p.plain))
	}
	return l
}

// seal writes the documents, bottom up, unless they are given already.
func (l *layout) seal(t testing.TB) files {
	t.Helper()
	if l.manifest.Config.Digest == "" {
		l.manifest.Config = l.files.blob(ocispec.MediaTypeImageConfig, encode(t, l.config))
	}
	if l.index.Manifests == nil {
		d := l.files.blob(ocispec.MediaTypeImageManifest, encode(t, l.manifest))
		d.Annotations = map[string]string{ocispec.AnnotationRefName: "example/app:1"}
		l.index.Manifests = []ocispec.Descriptor{d}
	}
	l.files.add("index.json", encode(t, l.index))
	return l.files
}

// dockerArchive is an honest docker-archive, one layer in a folder of its own.
func dockerArchive(t testing.TB, layers ...[]byte) files {
	t.Helper()
	var f files
	config := map[string]any{"architecture": goruntime.GOARCH, "os": "linux", "config": map[string]any{"Cmd": []string{"/bin/sh"}}}
	var paths []string
	var ids []digest.Digest
	for i, l := range layers {
		name := fmt.Sprintf("layer%d/layer.tar", i)
		f.add(name, l)
		paths = append(paths, name)
		ids = append(ids, digest.FromBytes(l))
	}
	config["rootfs"] = map[string]any{"type": "layers", "diff_ids": ids}
	data := encode(t, config)
	name := digest.FromBytes(data).Encoded() + ".json"
	f.add(name, data)
	f.add("manifest.json", encode(t, []map[string]any{{"Config": name, "RepoTags": []string{"example/docker:1"}, "Layers": paths}}))
	return f
}

func options(t testing.TB) Options {
	t.Helper()
	return Options{Name: "test", SpoolDir: t.TempDir(), Limits: smallLimits()}
}

func gzWriter(t testing.TB, w io.Writer) io.WriteCloser {
	t.Helper()
	z, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

// Import does in one process what the daemon and this package's program do in two.
func Import(ctx context.Context, r io.Reader, o Options, sink Sink) (Result, error) {
	return image.Import(ctx, r, o, sink, func(ctx context.Context, packed *os.File, l Limits) (Head, image.Feed, error) {
		spool, err := image.Spool(o.SpoolDir)
		if err != nil {
			return Head{}, nil, err
		}
		src, err := Archive(ctx, packed, spool, l)
		if err != nil {
			return Head{}, nil, errors.Join(err, spool.Close())
		}
		return src.Head(), src, nil
	})
}

// Build makes an image of entries that pass the filter.
func Build(ctx context.Context, o BuildOptions, sink Sink, write func(*Writer) error) (Result, error) {
	return image.Build(ctx, o, sink, func(w io.Writer) (Report, error) {
		f := NewFilter(o.Limits)
		lw := f.layer(w, nil)
		if err := write(lw); err != nil {
			return Report{}, err
		}
		return f.Report(), lw.close()
	})
}

// The words of package image that tests use.
type (
	Options      = image.Options
	BuildOptions = image.BuildOptions
	Result       = image.Result
	Sink         = image.Sink
)

const (
	KindFromHost      = image.KindFromHost
	KindOCILayout     = image.KindOCILayout
	KindDockerArchive = image.KindDockerArchive
	KindRootFS        = image.KindRootFS
	StripDevice       = image.StripDevice
	StripFIFO         = image.StripFIFO
	StripSpecial      = image.StripSpecial
	StripWhiteout     = image.StripWhiteout
	StripSetuid       = image.StripSetuid
	StripSetgid       = image.StripSetgid
	StripSticky       = image.StripSticky
	StripCapability   = image.StripCapability
	StripXattr        = image.StripXattr
)

var (
	Discard       = image.Discard
	DefaultLimits = image.DefaultLimits
)

// watchHeap samples the heap until the returned function is called, which says
// by how much it grew at most.
func watchHeap(t testing.TB) func() uint64 {
	t.Helper()
	heap := func() uint64 {
		var m goruntime.MemStats
		goruntime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	goruntime.GC()
	before := heap()
	stop, done := make(chan struct{}), make(chan uint64)
	go func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		peak := before
		for {
			select {
			case <-stop:
				done <- max(peak, heap()) - before
				return
			case <-tick.C:
				peak = max(peak, heap())
			}
		}
	}()
	return func() uint64 {
		close(stop)
		return <-done
	}
}
