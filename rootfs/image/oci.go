package image

import (
	"encoding/json"
	"errors"
	"fmt"
	goruntime "runtime"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/caisson-run/caisson/api/sbxerr"
)

const opLayout = "image.layout"

// Docker's names for the same documents:
// https://github.com/distribution/distribution/blob/v2.8.3/docs/spec/manifest-v2-2.md
const (
	dockerManifest     = "application/vnd.docker.distribution.manifest.v2+json"
	dockerManifestList = "application/vnd.docker.distribution.manifest.list.v2+json"
	dockerConfig       = "application/vnd.docker.container.image.v1+json"
	dockerLayer        = "application/vnd.docker.image.rootfs.diff.tar"
	dockerLayerGzip    = "application/vnd.docker.image.rootfs.diff.tar.gzip"
	dockerLayerZstd    = "application/vnd.docker.image.rootfs.diff.tar.zstd"
)

var (
	manifestTypes = []string{ocispec.MediaTypeImageManifest, dockerManifest}
	indexTypes    = []string{ocispec.MediaTypeImageIndex, dockerManifestList}
	configTypes   = []string{ocispec.MediaTypeImageConfig, dockerConfig}
)

// layerTypes has no foreign and no non-distributable layers: their content is
// somewhere else, and nothing is fetched (CVE-2020-15157).
var layerTypes = map[string]compression{
	ocispec.MediaTypeImageLayer: plain, ocispec.MediaTypeImageLayerGzip: gzipped, ocispec.MediaTypeImageLayerZstd: zstandard,
	dockerLayer: plain, dockerLayerGzip: gzipped, dockerLayerZstd: zstandard,
}

// Bounds of the search for a platform's image.
const (
	maxIndexDepth  = 4
	maxDescriptors = 1024
	maxListed      = 8 // in messages
)

// ociDocument is a manifest or an index. It has the fields of both, so that one
// which is both at once can be told (GHSA-5j5w-g665-5m35).
type ociDocument struct {
	specs.Versioned
	MediaType string               `json:"mediaType"`
	Config    *ocispec.Descriptor  `json:"config"`
	Layers    []ocispec.Descriptor `json:"layers"`
	Manifests []ocispec.Descriptor `json:"manifests"`
	FSLayers  json.RawMessage      `json:"fsLayers"` // of Docker's schema 1
}

// check reports why d is not of the media type that its descriptor states.
func (d *ociDocument) check(mediaType string) error {
	isIndex := slices.Contains(indexTypes, mediaType)
	var errs []error
	if d.SchemaVersion != 2 {
		errs = append(errs, fmt.Errorf("its schema version is %d: must be 2", d.SchemaVersion))
	}
	if d.MediaType != "" && d.MediaType != mediaType {
		errs = append(errs, fmt.Errorf("it calls itself %s, its descriptor says %s", quote(d.MediaType), mediaType))
	}
	if isIndex && (d.Config != nil || d.Layers != nil || d.FSLayers != nil) {
		errs = append(errs, errors.New("it is an index with the fields of a manifest"))
	}
	if !isIndex && (d.Manifests != nil || d.FSLayers != nil) {
		errs = append(errs, errors.New("it is a manifest with the fields of an index or of another schema"))
	}
	if !isIndex && d.Config == nil {
		errs = append(errs, errors.New("it is a manifest without a configuration"))
	}
	return errors.Join(errs...)
}

// blob returns where the blob of d is, once its size agrees.
func (a *archive) blob(d ocispec.Descriptor) (section, error) {
	if err := checkDigest(d.Digest); err != nil {
		return section{}, sbxerr.Wrap(sbxerr.ImageFormat, opLayout, err)
	}
	if len(d.URLs) > 0 {
		return section{}, sbxerr.New(sbxerr.ImageFormat, opLayout, "the content of %s is elsewhere (%s): nothing is fetched", d.Digest, quote(d.URLs[0]))
	}
	s, err := a.find(blobPath(d.Digest))
	if err != nil {
		return section{}, err
	}
	if s.size != d.Size {
		return section{}, sbxerr.New(sbxerr.ImageFormat, opLayout, "%s has %d bytes, stated are %d", d.Digest, s.size, d.Size)
	}
	return s, nil
}

func blobPath(d digest.Digest) string {
	return "blobs/" + d.Algorithm().String() + "/" + d.Encoded()
}

// verifiedDocument decodes the blob of d, whose digest is verified first.
func (a *archive) verifiedDocument(d ocispec.Descriptor, v any) error {
	s, err := a.blob(d)
	if err != nil {
		return err
	}
	data, err := a.read(s)
	if err != nil {
		return err
	}
	if got := d.Digest.Algorithm().FromBytes(data); got != d.Digest {
		return sbxerr.New(sbxerr.ImageFormat, opLayout, "the content's digest is %s, stated is %s", got, d.Digest)
	}
	if err := decodeJSON(data, v); err != nil {
		return sbxerr.New(sbxerr.ImageFormat, opLayout, "document %s: %w", d.Digest, err)
	}
	return nil
}

// layout reads the image of this host's platform from an OCI layout.
func (a *archive) layout() (source, error) {
	var version ocispec.ImageLayout
	if _, err := a.document(layoutFile, &version); err != nil {
		return source{}, err
	}
	if version.Version != ocispec.ImageLayoutVersion {
		return source{}, sbxerr.New(sbxerr.ImageFormat, opLayout, "the layout's version is %s: must be %q", quote(version.Version), ocispec.ImageLayoutVersion)
	}
	var index ociDocument
	if _, err := a.document(indexFile, &index); err != nil {
		return source{}, err
	}
	if err := index.check(ocispec.MediaTypeImageIndex); err != nil {
		return source{}, sbxerr.New(sbxerr.ImageFormat, opLayout, "document %q: %w", indexFile, err)
	}
	s := search{archive: a, seen: map[digest.Digest]bool{}}
	if err := s.index(index.Manifests, nil, 1); err != nil {
		return source{}, err
	}
	if err := s.check(); err != nil {
		return source{}, err
	}
	return s.found.source(a)
}

// candidate is an image for this host's platform.
type candidate struct {
	desc     ocispec.Descriptor
	manifest ociDocument
	config   imageConfig
	names    []string
}

// search walks the indexes of a layout.
type search struct {
	archive *archive
	found   *candidate // the first one
	others  []string   // further ones, by digest: documents may be large
	skipped []string   // what is for other platforms, or no image
	seen    map[digest.Digest]bool
	visited int
}

// index looks at what one index lists. names are what the archive calls it.
func (s *search) index(list []ocispec.Descriptor, names []string, depth int) error {
	for _, d := range list {
		if s.visited++; s.visited > maxDescriptors {
			return sbxerr.New(sbxerr.ImageTooBig, opLayout, "the indexes list more than %d manifests", maxDescriptors)
		}
		if p := d.Platform; p != nil && !runsHere(p.OS, p.Architecture) {
			s.skipped = append(s.skipped, quote(p.OS+"/"+p.Architecture))
			continue
		}
		if err := s.visit(d, append(slices.Clip(names), statedNames(d)...), depth); err != nil {
			return err
		}
	}
	return nil
}

func (s *search) visit(d ocispec.Descriptor, names []string, depth int) error {
	switch {
	case slices.Contains(manifestTypes, d.MediaType):
		return s.manifest(d, names)
	case !slices.Contains(indexTypes, d.MediaType):
		return sbxerr.New(sbxerr.ImageFormat, opLayout, "%s has the media type %s, which is neither a manifest nor an index", d.Digest, quote(d.MediaType))
	case depth == maxIndexDepth:
		return sbxerr.New(sbxerr.ImageFormat, opLayout, "indexes are nested more than %d deep", maxIndexDepth)
	}
	if s.again(d) {
		return nil
	}
	var doc ociDocument
	if err := s.archive.verifiedDocument(d, &doc); err != nil {
		return err
	}
	if err := doc.check(d.MediaType); err != nil {
		return sbxerr.New(sbxerr.ImageFormat, opLayout, "document %s: %w", d.Digest, err)
	}
	return s.index(doc.Manifests, names, depth+1)
}

// again reports whether d was visited before: indexes may list one document
// any number of times.
func (s *search) again(d ocispec.Descriptor) bool {
	before := s.seen[d.Digest]
	s.seen[d.Digest] = true
	return before
}

func (s *search) manifest(d ocispec.Descriptor, names []string) error {
	if s.found != nil && s.found.desc.Digest == d.Digest {
		s.found.names = append(s.found.names, names...)
		return nil
	}
	if s.again(d) {
		return nil
	}
	c := &candidate{desc: d, names: names}
	if err := s.archive.verifiedDocument(d, &c.manifest); err != nil {
		return err
	}
	if err := c.manifest.check(d.MediaType); err != nil {
		return sbxerr.New(sbxerr.ImageFormat, opLayout, "document %s: %w", d.Digest, err)
	}
	if t := c.manifest.Config.MediaType; !slices.Contains(configTypes, t) {
		s.skipped = append(s.skipped, quote(t)) // an artifact
		return nil
	}
	if err := s.archive.verifiedDocument(*c.manifest.Config, &c.config); err != nil {
		return err
	}
	switch {
	case d.Platform == nil && !runsHere(c.config.OS, c.config.Architecture):
		s.skipped = append(s.skipped, quote(c.config.OS+"/"+c.config.Architecture))
	case s.found == nil:
		s.found = c
	default:
		s.others = append(s.others, d.Digest.String())
	}
	return nil
}

// check makes sure that exactly one image was found.
func (s *search) check() error {
	if s.found == nil {
		return sbxerr.New(sbxerr.ImageFormat, opLayout, "the archive holds no image for linux/%s; it holds %v", goruntime.GOARCH, s.skipped[:min(len(s.skipped), maxListed)])
	}
	if len(s.others) > 0 {
		return sbxerr.New(sbxerr.ImageFormat, opLayout, "the archive holds %d images for this platform, save one: %s and %v", len(s.others)+1, s.found.desc.Digest, s.others[:min(len(s.others), maxListed)])
	}
	return nil
}

// source checks what the manifest lists; layers are verified as they are read.
func (c *candidate) source(a *archive) (source, error) {
	if err := a.limits.checkLayers(len(c.manifest.Layers)); err != nil {
		return source{}, err
	}
	if err := c.config.check(len(c.manifest.Layers)); err != nil {
		return source{}, err
	}
	if err := a.agrees(c.manifest.Config.Digest); err != nil {
		return source{}, err
	}
	src := source{kind: KindOCILayout, names: c.names, digest: c.desc.Digest, config: c.config.Config}
	for i, d := range c.manifest.Layers {
		packed, ok := layerTypes[d.MediaType]
		if !ok {
			return source{}, sbxerr.New(sbxerr.ImageFormat, opLayout, "layer %d (%s) has the media type %s: only plain, gzip and zstd layers are read", i+1, d.Digest, quote(d.MediaType))
		}
		at, err := a.blob(d)
		if err != nil {
			return source{}, err
		}
		src.layers = append(src.layers, sourceLayer{at: at, digest: d.Digest, diffID: c.config.RootFS.DiffIDs[i], packed: packed})
	}
	return src, nil
}

// statedNames returns the full names that annotations give d. The standard
// annotation often holds a tag alone, which names nothing.
func statedNames(d ocispec.Descriptor) []string {
	var names []string
	for _, key := range []string{"io.containerd.image.name", ocispec.AnnotationRefName} {
		if name := d.Annotations[key]; len(name) <= maxName && strings.ContainsAny(name, ":/") {
			names = append(names, name)
		}
	}
	return names
}
