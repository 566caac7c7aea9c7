package filter

import (
	"context"
	"errors"
	"fmt"
	"io"
	goruntime "runtime"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/image"
	"github.com/caisson-run/caisson/rootfs/image/internal/flow"
)

// source is an image inside an archive: all that is needed to write it anew.
// Everything in it that the archive only states is verified as it is read.
type source struct {
	kind   string
	names  []string      // what the archive calls it
	digest digest.Digest // of the document that stands for it; empty if there is none
	config Config
	layers []sourceLayer // lowest first
}

// opener opens a layer as it is stored. The caller closes it.
type opener func(context.Context) (io.ReadCloser, error)

// sourceLayer is a layer as the archive or the repository holds it.
type sourceLayer struct {
	open   opener
	digest digest.Digest // of the stored bytes; empty if not stated
	diffID digest.Digest // of the unpacked bytes; empty if not stated
	packed flow.Packing
}

// read calls fn with the unpacked layer, which fn must read to its end. fn
// fails if the layer is not what was stated.
func (l sourceLayer) read(r io.Reader, b *flow.Budget, fn func(io.Reader) error) error {
	stored, err := verified(r, l.digest)
	if err != nil {
		return err
	}
	return expand(stored, l.packed, b, func(r io.Reader) error {
		unpacked, err := verified(r, l.diffID)
		if err != nil {
			return err
		}
		return fn(unpacked)
	})
}

// source finds the image that the archive holds.
func (a *archive) source() (source, error) {
	kind, err := a.kind()
	if err != nil {
		return source{}, err
	}
	switch kind {
	case image.KindOCILayout:
		return a.layout()
	case image.KindDockerArchive:
		return a.docker()
	}
	all, err := a.whole()
	return source{kind: kind, layers: []sourceLayer{{open: a.opener(all), packed: flow.Plain}}}, err
}

// imageConfig is what is read of an image's configuration.
type imageConfig struct {
	Architecture string         `json:"architecture"`
	OS           string         `json:"os"`
	Config       Config         `json:"config"`
	RootFS       ocispec.RootFS `json:"rootfs"`
}

// runsHere reports whether a platform is this host's.
func runsHere(os, arch string) bool { return os == "linux" && arch == goruntime.GOARCH }

// check reports all that makes c unusable with n layers.
func (c *imageConfig) check(n int) error {
	var errs []error
	if !runsHere(c.OS, c.Architecture) {
		errs = append(errs, fmt.Errorf("the image is for %s/%s: this host is linux/%s", c.OS, c.Architecture, goruntime.GOARCH))
	}
	if c.RootFS.Type != "layers" {
		errs = append(errs, fmt.Errorf("the root file system's type is %s: must be \"layers\"", flow.Quote(c.RootFS.Type)))
	}
	if len(c.RootFS.DiffIDs) != n {
		errs = append(errs, fmt.Errorf("the configuration lists %d layers, the manifest %d", len(c.RootFS.DiffIDs), n))
	}
	for _, d := range c.RootFS.DiffIDs {
		errs = append(errs, checkDigest(d))
	}
	return sbxerr.Wrap(sbxerr.ImageFormat, "image.config", errors.Join(errs...))
}

// checkLayers bounds the number of layers.
func checkLayers(l Limits, n int) error {
	if n > l.Layers {
		return sbxerr.WithRemedy(sbxerr.ImageTooBig, "image.layers", fmt.Errorf("the image has %d layers: at most %d", n, l.Layers), image.FewerLayers)
	}
	return nil
}
