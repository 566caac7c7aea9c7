package ctrd

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/core/content"
	ctrimages "github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/identity"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/image"
	"github.com/caisson-run/caisson/runtime/images"
)

// maxDocument bounds a manifest or configuration that is read into memory, in
// bytes. What the import lets through is smaller; a host's containerd may hold
// images that somebody else made.
const maxDocument = 8 << 20

// ListImages lists all images, by name. Of one that is damaged or foreign only the
// name, the digest and the labels are known; GetImage says why.
func (e *Engine) ListImages(ctx context.Context) ([]images.Stored, error) {
	list := []images.Stored{}
	err := e.call(ctx, "ctrd.images", "list images of", e.cfg.Namespace, func(ctx context.Context) error {
		records, err := e.client.ImageService().List(ctx)
		if err != nil {
			return err
		}
		list = list[:0]
		for _, r := range records {
			img, err := e.load(ctx, r)
			if err != nil && sbxerr.Of(err) == sbxerr.Unknown {
				return fmt.Errorf("load image %q: %w", r.Name, err)
			}
			list = append(list, img)
		}
		return nil
	})
	slices.SortFunc(list, func(a, b images.Stored) int { return cmp.Compare(a.Key(), b.Key()) })
	return list, err
}

// GetImage finds an image by name, by name@digest, which must agree, or by digest.
func (e *Engine) GetImage(ctx context.Context, ref string) (images.Stored, error) {
	const op = "ctrd.image"
	name, want, err := splitRef(ref)
	if err != nil {
		return images.Stored{}, sbxerr.Wrap(sbxerr.Config, op, err)
	}
	var img images.Stored
	err = e.call(ctx, op, "get image", ref, func(ctx context.Context) error {
		record, err := e.find(ctx, name, want)
		if err != nil {
			return err
		}
		img, err = e.load(ctx, record)
		return err
	})
	return img, err
}

// splitRef splits "name", "name@sha256:…" and "sha256:…".
func splitRef(ref string) (name string, want digest.Digest, err error) {
	name, pinned, isPinned := strings.Cut(ref, "@")
	if !isPinned && strings.HasPrefix(ref, "sha256:") {
		name, pinned, isPinned = "", ref, true
	}
	if isPinned {
		if want, err = digest.Parse(pinned); err != nil {
			return "", "", fmt.Errorf("parse image %q: %w", ref, err)
		}
	}
	if name == "" && want == "" {
		return "", "", fmt.Errorf("parse image %q: no name", ref)
	}
	return name, want, nil
}

// find returns the record that name and want describe. Of several names for one
// digest the first in order is taken.
func (e *Engine) find(ctx context.Context, name string, want digest.Digest) (ctrimages.Image, error) {
	const op = "ctrd.image"
	if name != "" {
		r, err := e.named(ctx, name)
		switch {
		case errdefs.IsNotFound(err):
			return r, sbxerr.New(sbxerr.ImageNotFound, op, "get image %q: no such name", name)
		case err == nil && want != "" && !isDigestOf(r, want):
			return r, sbxerr.New(sbxerr.ImageNotFound, op, "get image %q: its digest is %s, not %s", name, r.Target.Digest, want)
		}
		return r, err
	}
	list, err := e.client.ImageService().List(ctx, "target.digest=="+want.String())
	if err != nil {
		return ctrimages.Image{}, err
	}
	if len(list) == 0 {
		return ctrimages.Image{}, sbxerr.New(sbxerr.ImageNotFound, op, "get image %q: no image of that digest", want)
	}
	return slices.MinFunc(list, func(a, b ctrimages.Image) int { return cmp.Compare(a.Name, b.Name) }), nil
}

// isDigestOf reports whether d is r's own digest, or one that r had in its registry.
func isDigestOf(r ctrimages.Image, d digest.Digest) bool {
	return slices.Contains([]string{r.Target.Digest.String(), r.Labels[image.LabelTarget], r.Labels[image.LabelSource]}, d.String())
}

func (e *Engine) named(ctx context.Context, name string) (ctrimages.Image, error) {
	img, token, ok := e.names.get(name, time.Now())
	if ok {
		return img, nil
	}
	img, err := e.client.ImageService().Get(ctx, name)
	if err == nil {
		e.names.put(img, token, time.Now())
	}
	return img, err
}

// load reads what the store knows of r. The documents are immutable, so they are
// read once for each digest.
func (e *Engine) load(ctx context.Context, r ctrimages.Image) (images.Stored, error) {
	docs, err := e.documents(ctx, r.Target)
	owner, name := images.SplitKey(r.Name)
	return images.Stored{
		Image: images.Image{
			Name:      name,
			Owner:     owner,
			Digest:    r.Target.Digest.String(),
			SizeBytes: docs.size,
			CreatedAt: r.UpdatedAt, // of the name: the store keeps its first time as CreatedAt
			Source:    r.Labels[image.LabelKind],
			Damaged:   reason(err),

			Verified:     r.Labels[image.LabelVerified],
			TargetDigest: r.Labels[image.LabelTarget],
			SourceDigest: r.Labels[image.LabelSource],
		},
		ChainID: docs.chainID,
		Config:  docs.config,
		Builds:  docs.builds,
		Labels:  r.Labels,
		Layers:  docs.layers,

		LayerBytes: docs.layerBytes,
		Manifest:   r.Target,
	}, err
}

// documents is what an image's manifest and configuration say.
type documents struct {
	config  ocispec.Image
	builds  image.ForBuilds
	chainID string
	layers  []string

	layerBytes []int64
	size       int64 // of all blobs, as stored
}

func (e *Engine) documents(ctx context.Context, target ocispec.Descriptor) (documents, error) {
	e.mu.Lock()
	docs, known := e.docs[target.Digest]
	e.mu.Unlock()
	if known {
		return docs, nil
	}
	manifest, err := e.manifest(ctx, target)
	if err != nil {
		return documents{}, err
	}
	var doc image.Document
	if err := e.readJSON(ctx, manifest.Config, &doc); err != nil {
		return documents{}, err
	}
	docs.config, docs.builds = doc.Image(), doc.Config.ForBuilds
	if len(docs.config.RootFS.DiffIDs) != len(manifest.Layers) || len(manifest.Layers) == 0 {
		return documents{}, sbxerr.New(sbxerr.ImageFormat, "ctrd.image", "read image %s: %d layers and %d diff ids",
			target.Digest, len(manifest.Layers), len(docs.config.RootFS.DiffIDs))
	}
	docs.chainID = identity.ChainID(docs.config.RootFS.DiffIDs).String()
	docs.size = target.Size + manifest.Config.Size
	for _, l := range manifest.Layers {
		docs.size += l.Size
		docs.layers = append(docs.layers, l.Digest.String())
		docs.layerBytes = append(docs.layerBytes, l.Size)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.docs[target.Digest] = docs
	return docs, nil
}

// manifest reads the one manifest that target is. An index is refused: which of
// its images is meant is decided at import.
func (e *Engine) manifest(ctx context.Context, target ocispec.Descriptor) (ocispec.Manifest, error) {
	var m ocispec.Manifest
	if !ctrimages.IsManifestType(target.MediaType) {
		return m, sbxerr.New(sbxerr.ImageFormat, "ctrd.image", "read manifest %s: media type %q", target.Digest, target.MediaType)
	}
	return m, e.readJSON(ctx, target, &m)
}

// readJSON reads a blob whose digest is checked, for the store may have rotted.
func (e *Engine) readJSON(ctx context.Context, desc ocispec.Descriptor, into any) error {
	const op = "ctrd.image"
	if desc.Size > maxDocument {
		return sbxerr.New(sbxerr.ImageTooBig, op, "read document %s: %d bytes", desc.Digest, desc.Size)
	}
	desc.Data = nil // an inline copy is not what the digest was checked on
	data, err := content.ReadBlob(ctx, e.client.ContentStore(), desc)
	if err == nil && digest.FromBytes(data) != desc.Digest {
		err = fmt.Errorf("its digest is %s: %w", digest.FromBytes(data), errdefs.ErrDataLoss)
	}
	if err != nil {
		err = fmt.Errorf("read document %s: %w", desc.Digest, err)
	}
	if err != nil {
		return damaged(err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		return sbxerr.New(sbxerr.ImageFormat, op, "parse document %s: %w", desc.Digest, err)
	}
	return nil
}

// RemoveImages removes names, and at the end, at once, all that nothing else needs. Absent
// is success.
func (e *Engine) RemoveImages(ctx context.Context, names ...string) error {
	return e.call(ctx, "ctrd.remove_images", "remove images", sbxerr.ClipTo(strings.Join(names, ", "), 300), func(ctx context.Context) error {
		err := e.names.change(func() error {
			for _, name := range names {
				if err := e.client.ImageService().Delete(ctx, name); err != nil && !errdefs.IsNotFound(err) {
					return err
				}
			}
			return nil
		})
		return errors.Join(err, e.collect(ctx))
	})
}
