package filter

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/image"
	"github.com/caisson-run/caisson/rootfs/image/internal/flow"
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
var layerTypes = map[string]flow.Packing{
	ocispec.MediaTypeImageLayer: flow.Plain, ocispec.MediaTypeImageLayerGzip: flow.Gzip, ocispec.MediaTypeImageLayerZstd: flow.Zstd,
	dockerLayer: flow.Plain, dockerLayerGzip: flow.Gzip, dockerLayerZstd: flow.Zstd,
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
		errs = append(errs, fmt.Errorf("it calls itself %s, its descriptor says %s", flow.Quote(d.MediaType), mediaType))
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
		return section{}, sbxerr.New(sbxerr.ImageFormat, opLayout, "the content of %s is elsewhere (%s): nothing is fetched", d.Digest, flow.Quote(d.URLs[0]))
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

// content returns the content of a document, as it is in the archive.
func (a *archive) content(d ocispec.Descriptor) ([]byte, error) {
	s, err := a.blob(d)
	if err != nil {
		return nil, err
	}
	return a.read(s)
}

// layer returns how the stored layer of d is opened.
func (a *archive) layer(d ocispec.Descriptor) (opener, error) {
	at, err := a.blob(d)
	return a.opener(at), err
}

// layout reads the image of this host's platform from an OCI layout.
func (a *archive) layout() (source, error) {
	var version ocispec.ImageLayout
	if _, err := a.document(layoutFile, &version); err != nil {
		return source{}, err
	}
	if version.Version != ocispec.ImageLayoutVersion {
		return source{}, sbxerr.New(sbxerr.ImageFormat, opLayout, "the layout's version is %s: must be %q", flow.Quote(version.Version), ocispec.ImageLayoutVersion)
	}
	var index ociDocument
	if _, err := a.document(indexFile, &index); err != nil {
		return source{}, err
	}
	if err := index.check(ocispec.MediaTypeImageIndex); err != nil {
		return source{}, sbxerr.New(sbxerr.ImageFormat, opLayout, "document %q: %w", indexFile, err)
	}
	s := search{content: a.content, seen: map[digest.Digest]bool{}}
	if err := s.index(index.Manifests, nil, 1); err != nil {
		return source{}, err
	}
	if err := s.check("the archive"); err != nil {
		return source{}, err
	}
	if err := a.agrees(s.found.manifest.Config.Digest); err != nil {
		return source{}, err
	}
	return s.found.source(image.KindOCILayout, a.limits, a.layer)
}

// statedNames returns the names that annotations give d. The standard annotation often
// holds a tag alone, which names nothing.
func statedNames(d ocispec.Descriptor) []string {
	var names []string
	if name := d.Annotations["io.containerd.image.name"]; name != "" && len(name) <= image.MaxName {
		names = append(names, name)
	}
	if name := d.Annotations[ocispec.AnnotationRefName]; len(name) <= image.MaxName && strings.ContainsAny(name, ":/") {
		names = append(names, name)
	}
	return names
}
