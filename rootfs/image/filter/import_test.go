package filter

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/image"
	"github.com/caisson-run/caisson/rootfs/image/internal/flow"
)

// do imports data and makes sure that the spool leaves nothing behind.
func do(t *testing.T, data []byte, o Options) (*memSink, Result, error) {
	t.Helper()
	sink := newMemSink()
	r, err := Import(t.Context(), bytes.NewReader(data), o, sink)
	left, dirErr := os.ReadDir(o.SpoolDir)
	if dirErr != nil || len(left) > 0 {
		t.Errorf("left in the spool: %v, err %v", left, dirErr)
	}
	if err != nil && len(sink.names) > 0 {
		t.Errorf("committed %v in spite of %v", sink.names, err)
	}
	return sink, r, err
}

func rootEntries() []ent {
	return []ent{dir("./etc"), file("./etc/passwd", "root:x:0:0::/:/bin/sh\n"), file("./bin/sh", "#!"), dir("./dev"), file("./dev/console", "")}
}

func TestImportKinds(t *testing.T) {
	one, two := tarOf(t, rootEntries()...), tarOf(t, file("etc/motd", "hi"), file("bin/.wh.sh", ""))
	twoLayers := func() files {
		return newLayout(t, packed{ocispec.MediaTypeImageLayerGzip, gz(t, one), one}, packed{ocispec.MediaTypeImageLayerZstd, zst(t, two), two}).seal(t)
	}
	dockerLayers := func() files { return dockerArchive(t, one, two) }
	both := func() files {
		l := newLayout(t, plainLayer(one), plainLayer(two))
		f := l.seal(t)
		f.add("manifest.json", encode(t, []map[string]any{{"Config": "blobs/sha256/" + l.manifest.Config.Digest.Encoded(), "RepoTags": []string{"other/name:1"}, "Layers": []string{}}}))
		return f
	}
	cases := map[string]struct {
		data         []byte
		kind, stated string
		layers       int
	}{
		"oci layout":        {tarOf(t, twoLayers()...), KindOCILayout, "example/app:1", 2},
		"oci layout, gzip":  {gz(t, tarOf(t, twoLayers()...)), KindOCILayout, "example/app:1", 2},
		"docker-archive":    {tarOf(t, dockerLayers()...), KindDockerArchive, "example/docker:1", 2},
		"docker and layout": {tarOf(t, both()...), KindOCILayout, "example/app:1", 2},
		"rootfs":            {one, KindRootFS, "", 1},
		"rootfs, gzip":      {gz(t, one), KindRootFS, "", 1},
		"rootfs, zstd":      {zst(t, one), KindRootFS, "", 1},
		"rootfs, 2 members": {append(gz(t, one[:700]), gz(t, one[700:])...), KindRootFS, "", 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := options(t)
			var lines []string
			o.Progress = func(s string) { lines = append(lines, s) }
			sink, r, err := do(t, tc.data, o)
			if err != nil {
				t.Fatal(err)
			}
			m, c, layers := sink.image(t, "test")
			if r.Name != "test" || r.Kind != tc.kind || len(layers) != tc.layers || r.Manifest.Digest != sink.names["test"].Digest {
				t.Errorf("result %+v with %d layers", r, len(layers))
			}
			if bad := violations(t, layers); bad != nil {
				t.Errorf("violations %q", bad)
			}
			if got := names(list(t, layers[0])); !slices.Equal(got, []string{"etc/", "etc/passwd", "bin/", "bin/sh", "dev/"}) {
				t.Errorf("first layer %q", got)
			}
			if !maps.Equal(r.Report.Stripped, map[string]int64{StripSpecial: 1}) {
				t.Errorf("report %+v", r.Report)
			}
			if m.MediaType != ocispec.MediaTypeImageManifest || m.Layers[0].MediaType != ocispec.MediaTypeImageLayer || c.OS != "linux" {
				t.Errorf("manifest %+v, config %+v", m, c)
			}
			checkLabels(t, sink.labels["test"], r)
			if len(lines) < 3 {
				t.Errorf("progress %q", lines)
			}
			o.Name = ""
			_, r, err = do(t, tc.data, o)
			if r.Name != tc.stated || (err == nil) != (tc.stated != "") {
				t.Errorf("its own name: %q, err %v", r.Name, err)
			}
		})
	}
}

func checkLabels(t *testing.T, labels map[string]string, r Result) {
	t.Helper()
	var report Report
	decode(t, []byte(labels[image.LabelReport]), &report)
	if report.Entries != r.Report.Entries || labels[image.LabelKind] != r.Kind || labels[image.LabelSource] != r.Source.String() {
		t.Errorf("labels %v of %+v", labels, r)
	}
	for key := range labels {
		if !slices.Contains([]string{image.LabelKind, image.LabelReport, image.LabelSource}, key) {
			t.Errorf("label %q", key)
		}
	}
}

func TestImportIsReproducible(t *testing.T) {
	data := tarOf(t, newLayout(t, plainLayer(tarOf(t, rootEntries()...))).seal(t)...)
	_, a, err := do(t, data, options(t))
	_, b, err2 := do(t, gz(t, data), options(t))
	if err := errors.Join(err, err2); err != nil || a.Manifest.Digest != b.Manifest.Digest || a.Source != b.Source {
		t.Errorf("%+v and %+v, err %v", a, b, err)
	}
}

// TestNothingButTheKnownFieldsRemains imports an image.image that is full of what
// has run programs on hosts, and looks for any trace of it.
func TestNothingButTheKnownFieldsRemains(t *testing.T) {
	const evil = "binary:///evil"
	annotations := map[string]string{
		"containerd.io/restart.loguri": evil, "containerd.io/gc.root": evil, "io.containerd.image.name": "example/app:1",
		"org.opencontainers.runc.x": evil, "run.oci.hooks.stdout": evil, "dev.gvisor.spec.mount": evil, "cdi.k8s.io/x": evil,
	}
	l := newLayout(t, plainLayer(tarOf(t, rootEntries()...)))
	config := map[string]any{
		"architecture": l.config.Architecture, "os": "linux", "created": "2020-01-01T00:00:00Z", "author": evil,
		"config": map[string]any{
			"Labels": annotations, "Volumes": map[string]any{"/evil": map[string]any{}}, "ExposedPorts": map[string]any{"1/evil": map[string]any{}},
			"StopSignal": evil, "OnBuild": []string{"RUN true"}, "Healthcheck": map[string]any{"Test": []string{evil}}, "Shell": []string{"/bin/bash", "-c"},
			"Hostname": evil, "Env": []string{"A=1", "B=2", "A=3"}, "Entrypoint": []string{"/e"}, "Cmd": []string{"c"}, "WorkingDir": "/srv/", "User": "app:staff",
			"hooks": evil, "ArgsEscaped": true,
		},
		"rootfs":  map[string]any{"type": "layers", "diff_ids": l.config.RootFS.DiffIDs},
		"history": []map[string]any{{"created_by": evil}},
		"hooks":   map[string]any{"prestart": evil},
	}
	l.manifest.Config = l.files.blob(ocispec.MediaTypeImageConfig, encode(t, config))
	l.manifest.Config.Annotations = annotations
	l.manifest.Layers[0].Annotations = annotations
	l.manifest.Annotations = annotations
	d := l.files.blob(ocispec.MediaTypeImageManifest, encode(t, l.manifest))
	d.Annotations = annotations
	l.index.Manifests = []ocispec.Descriptor{d}
	l.index.Annotations = annotations
	data := tarOf(t, l.seal(t)...)
	if n := bytes.Count(data, []byte(evil)); n < 20 {
		t.Fatalf("the fixture holds it %d times", n)
	}
	sink, _, err := do(t, data, options(t))
	if err != nil {
		t.Fatal(err)
	}
	m, _, _ := sink.image(t, "test")
	for d, blob := range sink.blobs {
		if bytes.Contains(blob, []byte("evil")) || bytes.Contains(blob, []byte("annotations")) {
			t.Errorf("blob %s: %s", d, blob)
		}
	}
	if text := fmt.Sprint(sink.labels); strings.Contains(text, "evil") {
		t.Errorf("labels %s", text)
	}
	if m.Annotations != nil || m.Config.Annotations != nil {
		t.Errorf("manifest %+v", m)
	}
	want := Config{
		ImageConfig: ocispec.ImageConfig{Env: []string{"A=3", "B=2"}, Entrypoint: []string{"/e"}, Cmd: []string{"c"}, WorkingDir: "/srv", User: "app:staff"},
		ForBuilds:   image.ForBuilds{Shell: []string{"/bin/bash", "-c"}, OnBuild: []string{"RUN true"}},
	}
	var raw map[string]json.RawMessage
	decode(t, sink.blobs[m.Config.Digest], &raw)
	if keys := slices.Sorted(maps.Keys(raw)); !slices.Equal(keys, []string{"architecture", "config", "os", "rootfs"}) {
		t.Errorf("the configuration has %q", keys)
	}
	if got := string(raw["config"]); got != string(encode(t, want)) {
		t.Errorf("config %s", got)
	}
}

func TestImportRefusesNames(t *testing.T) {
	for _, name := range []string{"../x", "/x", "a/../b", "a//b", "A", "a:", "a@sha256:" + strings.Repeat("0", 64), "a b", "a\x00", "a/", ".a", "a:../b", "%2e%2e/a", strings.Repeat("a", 256), "a:" + strings.Repeat("t", 129)} {
		o := options(t)
		o.Name = name
		if _, _, err := do(t, tarOf(t, file("a", "")), o); sbxerr.Of(err) != sbxerr.Config {
			t.Errorf("%q: %v", name, err)
		}
		f := dockerArchive(t, tarOf(t, file("a", "")))
		var doc []map[string]any
		i := slices.IndexFunc(f, func(e ent) bool { return e.Name == "manifest.json" })
		decode(t, []byte(f[i].text), &doc)
		doc[0]["RepoTags"] = []string{name}
		f[i].text = string(encode(t, doc))
		o.Name = ""
		if _, _, err := do(t, tarOf(t, f...), o); sbxerr.Of(err) != sbxerr.Config {
			t.Errorf("stated %q: %v", name, err)
		}
	}
	for _, name := range []string{"a", "base", "python:3.12", "docker.io/library/python:3.12-slim", "localhost:5000/a/b_c", "10.0.0.1/x", "a__b/c--d:V1.2_3-x"} {
		if err := image.CheckName(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestImportSeveralNames(t *testing.T) {
	l := newLayout(t, plainLayer(tarOf(t, file("a", ""))))
	l.manifest.Config = l.files.blob(ocispec.MediaTypeImageConfig, encode(t, l.config))
	d := l.files.blob(ocispec.MediaTypeImageManifest, encode(t, l.manifest))
	for _, name := range []string{"example/a:1", "example/a:1", "latest", "example/b:1"} {
		d.Annotations = map[string]string{ocispec.AnnotationRefName: name}
		l.index.Manifests = append(l.index.Manifests, d)
	}
	data := tarOf(t, l.seal(t)...)
	o := options(t)
	o.Name = ""
	_, _, err := do(t, data, o)
	if sbxerr.Of(err) != sbxerr.Config || !strings.Contains(err.Error(), `["example/a:1" "example/b:1"]`) {
		t.Errorf("one image.image of two names: %v", err)
	}
	o.Name = "mine"
	if _, r, err := do(t, data, o); err != nil || r.Name != "mine" {
		t.Errorf("with a name: %+v, %v", r, err)
	}
}

func TestImportNeedsValidLimits(t *testing.T) {
	_, _, err := do(t, tarOf(t), Options{Name: "a", SpoolDir: t.TempDir()})
	if sbxerr.Of(err) != sbxerr.Limits {
		t.Fatalf("no limits: %v", err)
	}
	for _, what := range []string{"bytes", "entries", "name bytes", "layers", "document bytes", "ratio"} {
		if !strings.Contains(err.Error(), what+" is 0") {
			t.Errorf("%v does not name %q", err, what)
		}
	}
	l := DefaultLimits()
	if err := l.Validate(); err != nil {
		t.Errorf("the defaults: %v", err)
	}
	l.Layers = 128
	if sbxerr.Of(l.Validate()) != sbxerr.Limits {
		t.Error("128 layers are allowed")
	}
}

func TestImportUnreadable(t *testing.T) {
	plain := tarOf(t, rootEntries()...)
	zip := append([]byte("PK\x03\x04"), make([]byte, 600)...)
	cases := map[string]struct {
		data []byte
		says string
	}{
		"empty":               {nil, "no end mark"},
		"text":                {[]byte(strings.Repeat("this is no archive\n", 100)), "invalid tar header"},
		"xz":                  {[]byte("\xfd7zXZ\x00\x00\x04 and so on"), "compression xz is not supported"},
		"bzip2":               {[]byte("BZh91AY&SY"), "compression bzip2 is not supported"},
		"lz4":                 {[]byte("\x04\x22\x4d\x18xxxxx"), "compression lz4 is not supported"},
		"zip":                 {zip, "compression zip is not supported"},
		"gzip of xz":          {gz(t, []byte("\xfd7zXZ\x00\x00\x04 and so on")), "unexpected EOF"},
		"cut gzip":            {gz(t, plain)[:80], "unexpected EOF"},
		"cut gzip header":     {gz(t, plain)[:5], "open gzip"},
		"cut zstd":            {zst(t, plain)[:80], "unexpected EOF"},
		"corrupt gzip":        {corrupt(gz(t, plain)), "gzip"},
		"garbage after gzip":  {append(gz(t, plain), "garbage"...), "gzip"},
		"cut between":         {plain[:512], "no end mark"},
		"cut in content":      {plain[:512*2+10], "unexpected EOF"},
		"cut after content":   {tarOf(t, file("a", strings.Repeat("\x00", 512)))[:1024], "no end mark"},
		"data after the end":  {append(slices.Clone(plain), []byte("more")...), "after the end"},
		"data after a layout": {append(tarOf(t, newLayout(t, plainLayer(plain)).seal(t)...), "more"...), "after the end"},
		"two archives":        {append(slices.Clone(plain), plain...), "after the end"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, _, err := do(t, tc.data, options(t))
			if sbxerr.Of(err) != sbxerr.ImageFormat || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %v, want it to say %q", err, tc.says)
			}
		})
	}
}

func corrupt(data []byte) []byte {
	data = slices.Clone(data)
	data[len(data)-6] ^= 1 // in the checksum
	return data
}

func TestImportRefusesBadContent(t *testing.T) {
	// Each kind ends in the same filter.
	bad := tarOf(t, symlink("x", "/"), file("x/y", ""))
	l := newLayout(t, plainLayer(tarOf(t, file("a", ""))), plainLayer(bad))
	for name, data := range map[string][]byte{
		"rootfs": bad, "docker": tarOf(t, dockerArchive(t, tarOf(t, file("a", "")), bad)...), "layout": tarOf(t, l.seal(t)...),
	} {
		_, _, err := do(t, data, options(t))
		if sbxerr.Of(err) != sbxerr.ImageContent || !strings.Contains(err.Error(), `entry "x/y", rule parents`) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestImportLimits(t *testing.T) {
	big := tarOf(t, file("a", strings.Repeat("x", 100<<10)))
	cases := map[string]struct {
		data   []byte
		change func(*Limits)
	}{
		"archive":             {big, func(l *Limits) { l.Bytes = 50 << 10 }},
		"archive, packed":     {gz(t, big), func(l *Limits) { l.Bytes = 50 << 10 }},
		"layer, packed":       {tarOf(t, newLayout(t, packed{ocispec.MediaTypeImageLayerGzip, gz(t, big), big}).seal(t)...), func(l *Limits) { l.Bytes = 50 << 10 }},
		"layers":              {tarOf(t, newLayout(t, plainLayer(tarOf(t)), plainLayer(tarOf(t))).seal(t)...), func(l *Limits) { l.Layers = 1 }},
		"docker layers":       {tarOf(t, dockerArchive(t, tarOf(t), tarOf(t))...), func(l *Limits) { l.Layers = 1 }},
		"document":            {tarOf(t, newLayout(t, plainLayer(tarOf(t))).seal(t)...), func(l *Limits) { l.DocumentBytes = 300 }},
		"docker document":     {tarOf(t, dockerArchive(t, tarOf(t))...), func(l *Limits) { l.DocumentBytes = 100 }},
		"entries":             {tarOf(t, rootEntries()...), func(l *Limits) { l.Entries = 3 }},
		"entries of a layout": {tarOf(t, newLayout(t, plainLayer(tarOf(t))).seal(t)...), func(l *Limits) { l.Entries = 3 }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := options(t)
			if _, _, err := do(t, tc.data, o); err != nil {
				t.Fatalf("within the limits: %v", err)
			}
			tc.change(&o.Limits)
			_, _, err := do(t, tc.data, o)
			if sbxerr.Of(err) != sbxerr.ImageTooBig {
				t.Errorf("past the limit: %v", err)
			}
			if remedy := sbxerr.RemedyOf(err); strings.HasSuffix(name, "layers") && strings.Contains(remedy, "images.max") {
				t.Errorf("no setting allows more layers, but the remedy is %q", remedy)
			}
		})
	}
}

func TestTooManyFilesBesideTheLayers(t *testing.T) {
	var f files
	for i := range maxFiles + 1 {
		f.add(fmt.Sprintf("junk%d", i), nil)
	}
	f = append(f, newLayout(t, plainLayer(tarOf(t))).seal(t)...)
	o := options(t)
	o.Limits = DefaultLimits()
	if _, _, err := do(t, tarOf(t, f...), o); sbxerr.Of(err) != sbxerr.ImageTooBig {
		t.Errorf("%v", err)
	}
}

// zeroReader is an endless file of zeros.
type zeroReader struct{}

func (zeroReader) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// TestRatio: an archive of zeros is refused by a ratio that the operator can raise.
func TestRatio(t *testing.T) {
	const size = flow.RatioFrom * 3 / 2
	var buf bytes.Buffer
	w := gzWriter(t, &buf)
	tw := tar.NewWriter(w)
	if err := tw.WriteHeader(&tar.Header{Name: "zeros", Mode: 0o644, Size: size}); err != nil {
		t.Fatal(err)
	}
	_, err := io.CopyN(tw, zeroReader{}, size)
	if err := errors.Join(err, tw.Close(), w.Close()); err != nil {
		t.Fatal(err)
	}
	o := options(t)
	o.Limits = DefaultLimits()
	_, _, err = do(t, buf.Bytes(), o)
	if sbxerr.Of(err) != sbxerr.ImageTooBig || !strings.Contains(sbxerr.RemedyOf(err), "images.max_ratio") {
		t.Errorf("with the default: %v, remedy %q", err, sbxerr.RemedyOf(err))
	}
	o.Limits.Ratio = 2000
	if _, r, err := do(t, buf.Bytes(), o); err != nil || r.Report.Bytes != size {
		t.Errorf("with a greater ratio: %+v, %v", r.Report, err)
	}
}

func TestBombs(t *testing.T) {
	var buf bytes.Buffer
	w := gzWriter(t, &buf)
	if _, err := io.CopyN(w, zeroReader{}, flow.RatioFrom*3/2); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	bomb := buf.Bytes()
	o := options(t)
	o.Limits = DefaultLimits()
	_, _, err := do(t, bomb, o)
	if sbxerr.Of(err) != sbxerr.ImageTooBig || !strings.Contains(err.Error(), "200 times") {
		t.Errorf("packed as a whole: %v", err)
	}
	// The layer expands to zeros, which end a tar at once: its rest counts.
	plain := make([]byte, 1024)
	_, _, err = do(t, tarOf(t, newLayout(t, packed{ocispec.MediaTypeImageLayerGzip, bomb, plain}).seal(t)...), o)
	if sbxerr.Of(err) != sbxerr.ImageTooBig || !strings.Contains(err.Error(), "200 times") {
		t.Errorf("as a layer: %v", err)
	}
	// A window that would take all memory is refused, not allocated.
	window := []byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xa8, 0x01, 0x00, 0x00} // 2 GiB
	if _, _, err = do(t, window, o); sbxerr.Of(err) != sbxerr.ImageFormat || !strings.Contains(err.Error(), "window size") {
		t.Errorf("window: %v", err)
	}
}

func TestImportCanBeEnded(t *testing.T) {
	data := tarOf(t, rootEntries()...)
	why := errors.New("the caller hung up")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	_, err := Import(ctx, bytes.NewReader(data), options(t), newMemSink())
	if sbxerr.Of(err) != sbxerr.Canceled || !errors.Is(err, why) {
		t.Errorf("before: %v", err)
	}
	ctx, cancel = context.WithCancelCause(t.Context())
	o := options(t)
	o.Progress = func(line string) {
		if strings.HasPrefix(line, "filtering") {
			cancel(why)
		}
	}
	sink := newMemSink()
	if _, err := Import(ctx, bytes.NewReader(data), o, sink); sbxerr.Of(err) != sbxerr.Canceled || len(sink.names) > 0 {
		t.Errorf("while filtering: %v", err)
	}
	// Also while nothing is written, because all is left out.
	ctx, cancel = context.WithCancelCause(t.Context())
	data = tarOf(t, file("dev/x", strings.Repeat("x", 1<<20)), file("../x", ""))
	if _, err := Import(ctx, bytes.NewReader(data), o, newMemSink()); sbxerr.Of(err) != sbxerr.Canceled {
		t.Errorf("while leaving out: %v", err)
	}
	// And while the archive comes in.
	ctx, cancel = context.WithCancelCause(t.Context())
	endless := flow.ReadFunc(func(p []byte) (int, error) {
		cancel(why)
		return copy(p, data[:512]), nil
	})
	if _, err := Import(ctx, endless, o, newMemSink()); sbxerr.Of(err) != sbxerr.Canceled {
		t.Errorf("while receiving: %v", err)
	}
	late, stop := context.WithTimeout(t.Context(), 0)
	defer stop()
	if _, err := Import(late, bytes.NewReader(data), options(t), newMemSink()); sbxerr.Of(err) != sbxerr.Deadline {
		t.Errorf("late: %v", err)
	}
}

type failingReader struct{ err error }

func (f failingReader) Read([]byte) (int, error) { return 0, f.err }

func TestErrorsKeepTheirOrigin(t *testing.T) {
	data := tarOf(t, rootEntries()...)
	gone := errors.New("connection reset")
	o := options(t)
	_, err := Import(t.Context(), io.MultiReader(bytes.NewReader(data[:600]), failingReader{gone}), o, newMemSink())
	if sbxerr.Of(err) != sbxerr.APIBroken || !errors.Is(err, gone) {
		t.Errorf("reader: %v", err)
	}
	_, err = Import(t.Context(), failingReader{sbxerr.New(sbxerr.APIUsage, "test", "x")}, o, newMemSink())
	if sbxerr.Of(err) != sbxerr.APIUsage {
		t.Errorf("reader with a code: %v", err)
	}
	o.SpoolDir += "/absent"
	_, err = Import(t.Context(), bytes.NewReader(data), o, newMemSink())
	if sbxerr.Of(err) != sbxerr.StateDir {
		t.Errorf("spool: %v", err)
	}
	// A layer, the configuration, the manifest, the name.
	for n := 1; n <= 4; n++ {
		sink := newMemSink()
		sink.failAt, sink.fail = n, gone
		if _, err := Import(t.Context(), bytes.NewReader(data), options(t), sink); sbxerr.Of(err) != sbxerr.Engine || !errors.Is(err, gone) {
			t.Errorf("sink, call %d: %v", n, err)
		}
		if len(sink.blobs) > 0 {
			t.Errorf("sink, call %d: it still holds %d blobs of the failed image.image", n, len(sink.blobs))
		}
		sink = newMemSink()
		sink.failAt, sink.fail = n, sbxerr.New(sbxerr.EngineDown, "test", "x")
		if _, err := Import(t.Context(), bytes.NewReader(data), options(t), sink); sbxerr.Of(err) != sbxerr.EngineDown {
			t.Errorf("sink with a code, call %d: %v", n, err)
		}
	}
}

// lyingSink does not store what it is given.
type lyingSink struct {
	*memSink
	write func(io.Writer) io.Writer
	skip  bool
	size  int64 // added to the true one
}

func (s lyingSink) Blob(ctx context.Context, mediaType string, write func(io.Writer) error) (ocispec.Descriptor, error) {
	if s.skip {
		return ocispec.Descriptor{Digest: digest.FromString("x")}, nil
	}
	d, err := s.memSink.Blob(ctx, mediaType, func(w io.Writer) error { return write(s.write(w)) })
	d.Size += s.size
	return d, err
}

type lossyWriter struct{ w io.Writer }

func (l lossyWriter) Write(p []byte) (int, error) {
	_, err := l.w.Write(p[:len(p)/2])
	return len(p), err
}

type fullWriter struct{}

func (fullWriter) Write([]byte) (int, error) { return 0, errors.New("no space left") }

func TestTheSinkIsChecked(t *testing.T) {
	data := tarOf(t, rootEntries()...)
	for name, tc := range map[string]struct {
		sink Sink
		code sbxerr.Code
	}{
		"loses bytes":  {lyingSink{memSink: newMemSink(), write: func(w io.Writer) io.Writer { return lossyWriter{w} }}, sbxerr.Internal},
		"miscounts":    {lyingSink{memSink: newMemSink(), write: func(w io.Writer) io.Writer { return w }, size: 1}, sbxerr.Internal},
		"never writes": {lyingSink{memSink: newMemSink(), skip: true}, sbxerr.Internal},
		"is full":      {lyingSink{memSink: newMemSink(), write: func(io.Writer) io.Writer { return fullWriter{} }}, sbxerr.Engine},
	} {
		if _, err := Import(t.Context(), bytes.NewReader(data), options(t), tc.sink); sbxerr.Of(err) != tc.code {
			t.Errorf("a sink that %s: %v", name, err)
		}
	}
}
