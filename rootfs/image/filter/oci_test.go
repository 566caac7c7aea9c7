package filter

import (
	"archive/tar"
	"bytes"
	"fmt"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/caisson-run/caisson/api/sbxerr"
)

var here = &ocispec.Platform{OS: "linux", Architecture: goruntime.GOARCH}

func elsewhere() *ocispec.Platform { return &ocispec.Platform{OS: "linux", Architecture: "pdp11"} }

// stray is a descriptor of something that the archive does not hold.
func stray(mediaType string) ocispec.Descriptor {
	return ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromString("absent"), Size: 6}
}

// TestLayoutRefusals tampers with an honest layout, one thing at a time.
func TestLayoutRefusals(t *testing.T) {
	layer := tarOf(t, file("a", "text"))
	cases := map[string]struct {
		says string
		data func(t *testing.T, l *layout) files
	}{
		"layout version": {"layout's version", func(t *testing.T, l *layout) files {
			l.files.set(t, "oci-layout", []byte(`{"imageLayoutVersion":"2.0.0"}`))
			return l.seal(t)
		}},
		"layout without version": {"layout's version", func(t *testing.T, l *layout) files {
			l.files.set(t, "oci-layout", []byte(`{}`))
			return l.seal(t)
		}},
		"no index": {`no file "index.json"`, func(t *testing.T, l *layout) files { return l.files }},
		"index of schema 1": {"schema version", func(t *testing.T, l *layout) files {
			l.index.SchemaVersion = 1
			return l.seal(t)
		}},
		"index calls itself a manifest": {"calls itself", func(t *testing.T, l *layout) files {
			l.index.MediaType = ocispec.MediaTypeImageManifest
			return l.seal(t)
		}},
		"index with layers": {"an index with the fields of a manifest", func(t *testing.T, l *layout) files {
			f := l.seal(t)
			return alter(t, f, "index.json", `"layers":[]`)
		}},
		"index with a configuration": {"an index with the fields of a manifest", func(t *testing.T, l *layout) files {
			return alter(t, l.seal(t), "index.json", `"config":{}`)
		}},
		"index with fsLayers": {"an index with the fields of a manifest", func(t *testing.T, l *layout) files {
			return alter(t, l.seal(t), "index.json", `"fsLayers":[]`)
		}},
		"manifest with manifests": {"a manifest with the fields of an index", func(t *testing.T, l *layout) files {
			return l.rawManifest(t, `"manifests":[]`)
		}},
		"manifest with fsLayers": {"a manifest with the fields of an index", func(t *testing.T, l *layout) files {
			return l.rawManifest(t, `"fsLayers":[{"blobSum":"x"}]`)
		}},
		"manifest with two configurations": {`the key "config" twice`, func(t *testing.T, l *layout) files {
			return l.rawManifest(t, `"config":{}`)
		}},
		"manifest with two spellings": {`the key "LAYERS" twice`, func(t *testing.T, l *layout) files {
			return l.rawManifest(t, `"LAYERS":[]`)
		}},
		"manifest without configuration": {"without a configuration", func(t *testing.T, l *layout) files {
			return l.listing(t, ocispec.MediaTypeImageManifest, `{"schemaVersion":2,"layers":[]}`)
		}},
		"manifest of schema 1": {"schema version", func(t *testing.T, l *layout) files {
			l.manifest.SchemaVersion = 1
			return l.seal(t)
		}},
		"manifest called an index": {"calls itself", func(t *testing.T, l *layout) files {
			f := l.seal(t)
			l.index.Manifests[0].MediaType = ocispec.MediaTypeImageIndex
			f.set(t, "index.json", encode(t, l.index))
			return f
		}},
		"unknown media type": {"neither a manifest nor an index", func(t *testing.T, l *layout) files {
			f := l.seal(t)
			l.index.Manifests[0].MediaType = "application/json"
			f.set(t, "index.json", encode(t, l.index))
			return f
		}},
		"docker's type inside OCI's": {"calls itself", func(t *testing.T, l *layout) files {
			f := l.seal(t)
			l.index.Manifests[0].MediaType = dockerManifest
			f.set(t, "index.json", encode(t, l.index))
			return f
		}},
		"manifest's size": {"stated are", func(t *testing.T, l *layout) files {
			f := l.seal(t)
			l.index.Manifests[0].Size--
			f.set(t, "index.json", encode(t, l.index))
			return f
		}},
		"manifest's content": {"content's digest is", func(t *testing.T, l *layout) files {
			f := l.seal(t)
			name := blobPath(l.index.Manifests[0].Digest)
			i := slices.IndexFunc(f, func(e ent) bool { return e.Name == name })
			f[i].text = strings.Replace(f[i].text, ":2,", ":3,", 1)
			return f
		}},
		"manifest is absent": {"no file", func(t *testing.T, l *layout) files {
			l.index.Manifests = []ocispec.Descriptor{stray(ocispec.MediaTypeImageManifest)}
			return l.seal(t)
		}},
		"digest climbs out": {"invalid", func(t *testing.T, l *layout) files {
			d := stray(ocispec.MediaTypeImageManifest)
			d.Digest = "sha256:../../../etc/passwd"
			l.index.Manifests = []ocispec.Descriptor{d}
			return l.seal(t)
		}},
		"digest of another algorithm": {"unsupported digest", func(t *testing.T, l *layout) files {
			d := stray(ocispec.MediaTypeImageManifest)
			d.Digest = digest.Digest("sha384:" + strings.Repeat("0", 96))
			l.index.Manifests = []ocispec.Descriptor{d}
			return l.seal(t)
		}},
		"other platform": {"holds no image for linux/" + goruntime.GOARCH, func(t *testing.T, l *layout) files {
			f := l.seal(t)
			l.index.Manifests[0].Platform = elsewhere()
			f.set(t, "index.json", encode(t, l.index))
			return f
		}},
		"other platform in the configuration": {`"linux/pdp11"`, func(t *testing.T, l *layout) files {
			l.config.Architecture = "pdp11"
			return l.seal(t)
		}},
		"platforms disagree": {"the image is for linux/pdp11", func(t *testing.T, l *layout) files {
			l.config.Architecture = "pdp11"
			f := l.seal(t)
			l.index.Manifests[0].Platform = here
			f.set(t, "index.json", encode(t, l.index))
			return f
		}},
		"windows": {"holds no image", func(t *testing.T, l *layout) files {
			l.config.OS = "windows"
			return l.seal(t)
		}},
		"an artifact": {`"application/vnd.example+json"`, func(t *testing.T, l *layout) files {
			l.manifest.Config = l.files.blob("application/vnd.example+json", []byte(`{}`))
			return l.seal(t)
		}},
		"two images": {"holds 2 images", func(t *testing.T, l *layout) files {
			f := l.seal(t)
			l.manifest.Annotations = map[string]string{"other": "image"}
			l.index.Manifests = append(l.index.Manifests, f.blob(ocispec.MediaTypeImageManifest, encode(t, l.manifest)))
			f.set(t, "index.json", encode(t, l.index))
			return f
		}},
		"layer's media type": {"only plain, gzip and zstd", func(t *testing.T, l *layout) files {
			l.manifest.Layers[0].MediaType = "application/vnd.oci.image.layer.v1.tar+xz"
			return l.seal(t)
		}},
		"foreign layer": {"only plain, gzip and zstd", func(t *testing.T, l *layout) files {
			l.manifest.Layers[0].MediaType = "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip"
			return l.seal(t)
		}},
		"non-distributable layer": {"only plain, gzip and zstd", func(t *testing.T, l *layout) files {
			l.manifest.Layers[0].MediaType = "application/vnd.oci.image.layer.nondistributable.v1.tar"
			return l.seal(t)
		}},
		"layer with a URL": {"nothing is fetched", func(t *testing.T, l *layout) files {
			l.manifest.Layers[0].URLs = []string{"http://169.254.169.254/latest"}
			return l.seal(t)
		}},
		"configuration with a URL": {"nothing is fetched", func(t *testing.T, l *layout) files {
			l.manifest.Config = l.files.blob(ocispec.MediaTypeImageConfig, encode(t, l.config))
			l.manifest.Config.URLs = []string{"file:///etc/shadow"}
			return l.seal(t)
		}},
		"layer is absent": {"no file", func(t *testing.T, l *layout) files {
			l.manifest.Layers[0] = stray(ocispec.MediaTypeImageLayer)
			return l.seal(t)
		}},
		"layer's size": {"stated are", func(t *testing.T, l *layout) files {
			l.manifest.Layers[0].Size++
			return l.seal(t)
		}},
		"layer's digest": {"content's digest is", func(t *testing.T, l *layout) files {
			l.files.set(t, blobPath(l.manifest.Layers[0].Digest), bytes.Replace(layer, []byte("text"), []byte("evil"), 1))
			return l.seal(t)
		}},
		"layer's diff ID": {"content's digest is", func(t *testing.T, l *layout) files {
			l.config.RootFS.DiffIDs[0] = digest.FromString("other")
			return l.seal(t)
		}},
		"layer is cut off": {"stated are", func(t *testing.T, l *layout) files {
			l.files.set(t, blobPath(l.manifest.Layers[0].Digest), layer[:700])
			return l.seal(t)
		}},
		"plain called gzip": {"compression is none, its media type says gzip", func(t *testing.T, l *layout) files {
			l.manifest.Layers[0].MediaType = ocispec.MediaTypeImageLayerGzip
			return l.seal(t)
		}},
		"gzip called plain": {"compression is gzip, its media type says none", func(t *testing.T, l *layout) files {
			l.manifest.Layers[0] = l.files.blob(ocispec.MediaTypeImageLayer, gz(t, layer))
			return l.seal(t)
		}},
		"packed layer's digest": {"content's digest is", func(t *testing.T, l *layout) files {
			// The same content, and the same size, under another gzip header.
			packed := gz(t, layer)
			l.manifest.Layers[0] = l.files.blob(ocispec.MediaTypeImageLayerGzip, packed)
			other := slices.Clone(packed)
			other[9] ^= 1 // the operating system: RFC 1952, 2.3
			l.files.set(t, blobPath(l.manifest.Layers[0].Digest), other)
			return l.seal(t)
		}},
		"xz called gzip": {"compression xz is not supported", func(t *testing.T, l *layout) files {
			l.manifest.Layers[0] = l.files.blob(ocispec.MediaTypeImageLayerGzip, []byte("\xfd7zXZ\x00 and so on"))
			return l.seal(t)
		}},
		"layers and diff IDs": {"lists 2 layers, the manifest 1", func(t *testing.T, l *layout) files {
			l.config.RootFS.DiffIDs = append(l.config.RootFS.DiffIDs, l.config.RootFS.DiffIDs[0])
			return l.seal(t)
		}},
		"diff ID that is none": {"digest", func(t *testing.T, l *layout) files {
			l.config.RootFS.DiffIDs[0] = "sha256:x"
			return l.seal(t)
		}},
		"root file system's type": {`must be "layers"`, func(t *testing.T, l *layout) files {
			l.config.RootFS.Type = "magic"
			return l.seal(t)
		}},
		"blob twice": {"twice", func(t *testing.T, l *layout) files {
			f := l.seal(t)
			return append(f, file(blobPath(l.manifest.Layers[0].Digest), "other"))
		}},
		"index twice": {"twice", func(t *testing.T, l *layout) files {
			return append(l.seal(t), file("./index.json", "{}"))
		}},
		"root file system beside": {"ambiguous", func(t *testing.T, l *layout) files {
			return append(l.seal(t), file("etc/passwd", ""))
		}},
		"other image in manifest.json": {"ambiguous", func(t *testing.T, l *layout) files {
			return append(l.seal(t), file("manifest.json", fmt.Sprintf(`[{"Config":"blobs/sha256/%s","Layers":[]}]`, digest.FromString("other").Encoded())))
		}},
		"bad manifest.json": {"manifest.json", func(t *testing.T, l *layout) files {
			return append(l.seal(t), file("manifest.json", "null and void"))
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			l := newLayout(t, plainLayer(layer))
			_, _, err := do(t, tarOf(t, tc.data(t, l)...), options(t))
			if sbxerr.Of(err) != sbxerr.ImageFormat || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %v, want it to say %q", err, tc.says)
			}
		})
	}
	if _, _, err := do(t, tarOf(t, newLayout(t, plainLayer(layer)).seal(t)...), options(t)); err != nil {
		t.Errorf("with nothing changed: %v", err)
	}
}

// alter adds a member to a JSON document.
func alter(t testing.TB, f files, name, member string) files {
	t.Helper()
	i := slices.IndexFunc(f, func(e ent) bool { return e.Name == name })
	f[i].text = strings.TrimSuffix(f[i].text, "}") + "," + member + "}"
	return f
}

// rawManifest seals l with a member added to its manifest.
func (l *layout) rawManifest(t testing.TB, member string) files {
	t.Helper()
	l.manifest.Config = l.files.blob(ocispec.MediaTypeImageConfig, encode(t, l.config))
	return l.listing(t, ocispec.MediaTypeImageManifest, strings.TrimSuffix(string(encode(t, l.manifest)), "}")+","+member+"}")
}

// listing seals l with an index that lists one document.
func (l *layout) listing(t testing.TB, mediaType, doc string) files {
	t.Helper()
	l.manifest.Config.Digest = "given"
	l.index.Manifests = []ocispec.Descriptor{l.files.blob(mediaType, []byte(doc))}
	return l.seal(t)
}

// nested puts the images of l into an index, n times.
func (l *layout) nested(t testing.TB, n int) {
	t.Helper()
	for range n {
		index := l.index
		d := l.files.blob(ocispec.MediaTypeImageIndex, encode(t, index))
		d.Annotations = map[string]string{"io.containerd.image.name": "example/nested:1"}
		l.index.Manifests = []ocispec.Descriptor{d}
	}
}

func TestLayoutWithSHA512(t *testing.T) {
	l := newLayout(t, plainLayer(tarOf(t, file("a", ""))))
	l.manifest.Config = l.files.blob(ocispec.MediaTypeImageConfig, encode(t, l.config))
	doc := encode(t, l.manifest)
	d := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Digest: digest.SHA512.FromBytes(doc), Size: int64(len(doc))}
	l.files.add(blobPath(d.Digest), doc)
	l.index.Manifests = []ocispec.Descriptor{d}
	if _, r, err := do(t, tarOf(t, l.seal(t)...), options(t)); err != nil || r.Source != d.Digest {
		t.Errorf("result %+v, err %v", r, err)
	}
}

func TestLayoutChoosesThePlatform(t *testing.T) {
	l := newLayout(t, plainLayer(tarOf(t, file("a", ""))))
	l.manifest.Config = l.files.blob(ocispec.MediaTypeImageConfig, encode(t, l.config))
	ours := l.files.blob(ocispec.MediaTypeImageManifest, encode(t, l.manifest))
	ours.Platform = here
	absent := stray(ocispec.MediaTypeImageManifest) // save writes one platform's blobs and lists them all
	absent.Platform = elsewhere()
	attestation := stray(ocispec.MediaTypeImageManifest)
	attestation.Platform = &ocispec.Platform{OS: "unknown", Architecture: "unknown"}
	l.index.Manifests = []ocispec.Descriptor{absent, ours, attestation}
	l.nested(t, 2)
	o := options(t)
	o.Name = ""
	_, r, err := do(t, tarOf(t, l.seal(t)...), o)
	if err != nil || r.Source != ours.Digest || r.Name != "example/nested:1" {
		t.Errorf("result %+v, err %v", r, err)
	}
}

func TestLayoutSearchIsBounded(t *testing.T) {
	deep := newLayout(t, plainLayer(tarOf(t)))
	deep.manifest.Config = deep.files.blob(ocispec.MediaTypeImageConfig, encode(t, deep.config))
	deep.index.Manifests = []ocispec.Descriptor{deep.files.blob(ocispec.MediaTypeImageManifest, encode(t, deep.manifest))}
	deep.nested(t, maxIndexDepth)
	if _, _, err := do(t, tarOf(t, deep.seal(t)...), options(t)); sbxerr.Of(err) != sbxerr.ImageFormat || !strings.Contains(err.Error(), "nested") {
		t.Errorf("deep: %v", err)
	}
	same := newLayout(t, plainLayer(tarOf(t)))
	same.manifest.Config = same.files.blob(ocispec.MediaTypeImageConfig, encode(t, same.config))
	same.index.Manifests = slices.Repeat([]ocispec.Descriptor{same.files.blob(ocispec.MediaTypeImageManifest, encode(t, same.manifest))}, 10)
	same.nested(t, 1)
	same.index.Manifests = slices.Repeat(same.index.Manifests, maxDescriptors/10)
	o := options(t)
	o.Limits.DocumentBytes = 4 << 20
	if _, _, err := do(t, tarOf(t, same.seal(t)...), o); err != nil {
		t.Errorf("one index many times, which is read once: %v", err)
	}
	wide := newLayout(t, plainLayer(tarOf(t)))
	other := stray(ocispec.MediaTypeImageManifest)
	other.Platform = elsewhere()
	wide.index.Manifests = slices.Repeat([]ocispec.Descriptor{other}, maxDescriptors+1)
	if _, _, err := do(t, tarOf(t, wide.seal(t)...), o); sbxerr.Of(err) != sbxerr.ImageTooBig {
		t.Errorf("wide: %v", err)
	}
}

// TestBlobsAreWholeFilesOfTheArchive holds the table of contents to what it
// says: a blob is one file, in one piece, inside the archive.
func TestBlobsAreWholeFilesOfTheArchive(t *testing.T) {
	layer := tarOf(t, file("a", ""))
	name := blobPath(digest.FromBytes(layer))
	replaced := func(by ent) []ent {
		f := newLayout(t, plainLayer(layer)).seal(t)
		i := slices.IndexFunc(f, func(e ent) bool { return e.Name == name })
		f[i] = by
		return f
	}
	for what, e := range map[string]ent{
		"directory":             dir(name),
		"hard link":             hardlink(name, "index.json"),
		"device":                typed(name, tar.TypeBlock),
		"absolute symlink":      symlink(name, "/etc/passwd"),
		"symlink to outside":    symlink(name, "../../../etc/passwd"),
		"symlink to itself":     symlink(name, name[strings.LastIndex(name, "/")+1:]),
		"symlink to a symlink":  symlink(name, "../../link"),
		"name that climbs":      file("x/../"+name, string(layer)),
		"symlink to two things": symlink(name, "../../two"),
	} {
		f := append(replaced(e), symlink("link", "index.json"), file("two", string(layer)), file("two", "2"))
		if _, _, err := do(t, tarOf(t, f...), options(t)); sbxerr.Of(err) != sbxerr.ImageFormat {
			t.Errorf("%s: %v", what, err)
		}
	}
	f := append(replaced(symlink(name, "../../one")), file("one", string(layer)))
	if _, _, err := do(t, tarOf(t, f...), options(t)); err != nil {
		t.Errorf("symlink to one file: %v", err)
	}
	if _, _, err := do(t, tarOf(t, append(f, symlink(name, "../../link"))...), options(t)); sbxerr.Of(err) != sbxerr.ImageFormat {
		t.Errorf("two symlinks: %v", err)
	}
	sparse := gnuSparse(t, "index.json", 100)
	data := append(sparse[:len(sparse)-1024], tarOf(t, file("oci-layout", `{"imageLayoutVersion":"1.0.0"}`))...)
	if _, _, err := do(t, data, options(t)); sbxerr.Of(err) != sbxerr.ImageFormat || !strings.Contains(err.Error(), "no file") {
		t.Errorf("sparse: %v", err)
	}
}
