package filter

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/image"
	"github.com/caisson-run/caisson/rootfs/image/internal/flow"
)

const opDocker = "image.docker"

// dockerImage is one image of the manifest.json that docker save writes:
// https://github.com/moby/docker-image-spec/blob/v1.3.1/spec.md#combined-image-json--filesystem-changeset-format
type dockerImage struct {
	Config       string
	RepoTags     []string
	Layers       []string
	LayerSources map[string]ocispec.Descriptor // by diff ID; foreign ones are refused, the rest is not read
}

// dockerImages reads manifest.json.
func (a *archive) dockerImages() ([]dockerImage, error) {
	var images []dockerImage
	_, err := a.document(dockerFile, &images)
	return images, err
}

// docker reads the image of a docker-archive.
func (a *archive) docker() (source, error) {
	images, err := a.dockerImages()
	if err != nil {
		return source{}, err
	}
	if len(images) != 1 {
		return source{}, sbxerr.New(sbxerr.ImageFormat, opDocker, "the archive holds %d images: save exactly one", len(images))
	}
	img := images[0]
	if err := checkLayers(a.limits, len(img.Layers)); err != nil {
		return source{}, err
	}
	if err := img.check(); err != nil {
		return source{}, sbxerr.Wrap(sbxerr.ImageFormat, opDocker, err)
	}
	var config imageConfig
	data, err := a.document(img.Config, &config)
	if err != nil {
		return source{}, err
	}
	id := digest.FromBytes(data)
	if stated := statedDigest(img.Config); stated != "" && stated != id {
		return source{}, sbxerr.New(sbxerr.ImageFormat, opDocker, "the digest of the configuration %s is %s", flow.Quote(img.Config), id)
	}
	if err := config.check(len(img.Layers)); err != nil {
		return source{}, err
	}
	src := source{kind: image.KindDockerArchive, names: img.RepoTags, digest: id, config: config.Config}
	for i, name := range img.Layers {
		at, err := a.find(name)
		if err != nil {
			return source{}, err
		}
		src.layers = append(src.layers, sourceLayer{open: a.opener(at), diffID: config.RootFS.DiffIDs[i], packed: anyPacking})
	}
	return src, nil
}

// check reports what is wrong with the names of files that i holds.
func (i dockerImage) check() error {
	var errs []error
	for _, name := range append([]string{i.Config}, i.Layers...) {
		if name == "" || path.Clean("/"+name) != "/"+name {
			errs = append(errs, fmt.Errorf("%s is not the name of a file of the archive", flow.Quote(name)))
		}
	}
	for id, d := range i.LayerSources {
		if len(d.URLs) > 0 {
			errs = append(errs, fmt.Errorf("the content of layer %s is elsewhere (%s): nothing is fetched", flow.Quote(id), flow.Quote(d.URLs[0])))
		}
	}
	return errors.Join(errs...)
}

// statedDigest returns the digest that the name of a configuration is made of,
// empty if it is a plain name. Writers differ: <hex>.json, sha256:<hex>, and
// blobs/sha256/<hex>.
func statedDigest(name string) digest.Digest {
	base := strings.TrimSuffix(strings.TrimPrefix(path.Base(name), "sha256:"), ".json")
	d := digest.NewDigestFromEncoded(digest.SHA256, base)
	if d.Validate() != nil {
		return ""
	}
	return d
}

// agrees makes sure that the manifest.json which docker save puts beside an OCI
// layout speaks of the same image: else it depends on the reader what the
// archive is.
func (a *archive) agrees(config digest.Digest) error {
	if _, ok := a.files[dockerFile]; !ok {
		return nil
	}
	images, err := a.dockerImages()
	if err != nil {
		return err
	}
	for _, img := range images {
		if statedDigest(img.Config) == config {
			return nil
		}
	}
	return sbxerr.New(sbxerr.ImageFormat, opDocker, "the archive is ambiguous: %q does not list the image of %q, whose configuration is %s", dockerFile, indexFile, config)
}
