package filter

import (
	"fmt"
	goruntime "runtime"
	"slices"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/image/internal/flow"
)

// candidate is an image for this host's platform.
type candidate struct {
	desc     ocispec.Descriptor
	manifest ociDocument
	config   imageConfig
	names    []string
}

// search walks the indexes of a layout or of a repository.
type search struct {
	content func(ocispec.Descriptor) ([]byte, error) // of a document, of the size that is stated
	first   bool                                     // the first image is taken; else a second one is an error
	found   *candidate                               // the first one
	others  []string                                 // further ones, by digest: documents may be large
	skipped []string                                 // what is for other platforms, or no image
	seen    map[digest.Digest]bool
	visited int
}

// index looks at what one index lists. names are what the archive calls it.
func (s *search) index(list []ocispec.Descriptor, names []string, depth int) error {
	for _, d := range list {
		if s.first && s.found != nil {
			return nil
		}
		if s.visited++; s.visited > maxDescriptors {
			return sbxerr.New(sbxerr.ImageTooBig, opLayout, "the indexes list more than %d manifests", maxDescriptors)
		}
		if p := d.Platform; p != nil && !runsHere(p.OS, p.Architecture) {
			s.skipped = append(s.skipped, flow.Quote(p.OS+"/"+p.Architecture))
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
		return sbxerr.New(sbxerr.ImageFormat, opLayout, "%s has the media type %s, which is neither a manifest nor an index", d.Digest, flow.Quote(d.MediaType))
	case depth == maxIndexDepth:
		return sbxerr.New(sbxerr.ImageFormat, opLayout, "indexes are nested more than %d deep", maxIndexDepth)
	}
	if s.again(d) {
		return nil
	}
	var doc ociDocument
	if err := s.document(d, &doc); err != nil {
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

// document decodes the blob of d, whose digest is verified first.
func (s *search) document(d ocispec.Descriptor, v any) error {
	if err := checkDigest(d.Digest); err != nil {
		return sbxerr.Wrap(sbxerr.ImageFormat, opLayout, err)
	}
	data, err := s.content(d)
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

func (s *search) manifest(d ocispec.Descriptor, names []string) error {
	if s.found != nil && s.found.desc.Digest == d.Digest {
		s.found.names = append(s.found.names, names...)
		return nil
	}
	if s.again(d) {
		return nil
	}
	c := &candidate{desc: d, names: names}
	if err := s.document(d, &c.manifest); err != nil {
		return err
	}
	if err := c.manifest.check(d.MediaType); err != nil {
		return sbxerr.New(sbxerr.ImageFormat, opLayout, "document %s: %w", d.Digest, err)
	}
	if t := c.manifest.Config.MediaType; !slices.Contains(configTypes, t) {
		s.skipped = append(s.skipped, flow.Quote(t)) // an artifact
		return nil
	}
	if err := s.document(*c.manifest.Config, &c.config); err != nil {
		return err
	}
	switch {
	case d.Platform == nil && !runsHere(c.config.OS, c.config.Architecture):
		s.skipped = append(s.skipped, flow.Quote(c.config.OS+"/"+c.config.Architecture))
	case s.found == nil:
		s.found = c
	default:
		s.others = append(s.others, d.Digest.String())
	}
	return nil
}

// check makes sure that exactly one image was found in where.
func (s *search) check(where string) error {
	if s.found == nil {
		return sbxerr.New(sbxerr.ImageFormat, opLayout, "%s holds no image for linux/%s; it holds %v", where, goruntime.GOARCH, s.skipped[:min(len(s.skipped), maxListed)])
	}
	if len(s.others) > 0 {
		return sbxerr.WithRemedy(sbxerr.ImageFormat, opLayout,
			fmt.Errorf("%s holds %d images for this platform, save one: %s and %v", where, len(s.others)+1, s.found.desc.Digest, s.others[:min(len(s.others), maxListed)]),
			"save each image to an archive of its own, or carry several in a bundle: caisson bundle create")
	}
	return nil
}

// source checks what the manifest lists; layers are verified as they are read.
func (c *candidate) source(kind string, l Limits, layer func(ocispec.Descriptor) (opener, error)) (source, error) {
	if err := checkLayers(l, len(c.manifest.Layers)); err != nil {
		return source{}, err
	}
	if err := c.config.check(len(c.manifest.Layers)); err != nil {
		return source{}, err
	}
	src := source{kind: kind, names: c.names, digest: c.desc.Digest, config: c.config.Config}
	for i, d := range c.manifest.Layers {
		packed, ok := layerTypes[d.MediaType]
		if !ok {
			return source{}, sbxerr.New(sbxerr.ImageFormat, opLayout, "layer %d (%s) has the media type %s: only plain, gzip and zstd layers are read", i+1, d.Digest, flow.Quote(d.MediaType))
		}
		open, err := layer(d)
		if err != nil {
			return source{}, err
		}
		src.layers = append(src.layers, sourceLayer{open: open, digest: d.Digest, diffID: c.config.RootFS.DiffIDs[i], packed: packed})
	}
	return src, nil
}
