package imageservice

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/opencontainers/go-digest"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/image"
	"github.com/caisson-run/caisson/rootfs/imagework"
	"github.com/caisson-run/caisson/runtime/images"
	"github.com/caisson-run/caisson/runtime/peer"
)

// Spool makes a file that has no name, for an archive of at most so many bytes.
func (s *Service) Spool() (f *os.File, most int64, err error) {
	f, err = image.Spool(s.options.Spool)
	return f, s.settings().Limits.Bytes, err
}

// Changes reads an archive of changes to an image, with the filter and the limits of an import. find
// names the digest of that image by what the archive says. apply gets the image, and the changes as a
// tar, which it reads to its end.
func (s *Service) Changes(ctx context.Context, r io.Reader, find func(image.Config) (digest string, err error), apply func(images.Stored, io.Reader) error) error {
	defer s.fleet.Busy()()
	g, err := s.fleet.Grant(ctx)
	if err != nil {
		return err
	}
	done, err := s.imports.begin(ctx, g)
	if err != nil {
		return err
	}
	defer done()
	o := image.Options{SpoolDir: s.options.Spool, Limits: s.settings().Limits, Received: s.imports.work}
	return image.Changes(ctx, r, o, imagework.Changes(s.options.Program, s.options.Spool), func(head image.Head, feed image.Over) error {
		if head.Kind != image.KindOCILayout || head.Layers != 1 {
			return sbxerr.New(sbxerr.SnapshotArchive, "images.changes", "the archive is a %s of %d layers: a snapshot is an %s of one", head.Kind, head.Layers, image.KindOCILayout)
		}
		of, err := find(head.Config)
		if err != nil {
			return err
		}
		img, err := s.withDigest(ctx, g, of)
		if err != nil {
			return err
		}
		if err := s.see(ctx, img, feed); err != nil {
			return err
		}
		return takeChanges(ctx, feed, func(tar io.Reader) error { return apply(img, tar) })
	})
}

// withDigest is the image of a digest that g sees, its owner's before those of root.
func (s *Service) withDigest(ctx context.Context, g peer.Grant, of string) (images.Stored, error) {
	list, err := s.store.ListImages(ctx)
	if err != nil {
		return images.Stored{}, err
	}
	keys := images.ScopeOf(g).KeysOf(of, list)
	if len(keys) == 0 {
		return images.Stored{}, notWithDigest("images.changes", of)
	}
	return s.store.GetImage(ctx, keys[0])
}

// notWithDigest says that the image of a snapshot is not there.
func notWithDigest(op, digest string) error {
	return sbxerr.WithRemedy(sbxerr.ImageNotFound, op, fmt.Errorf("no image has the digest %s, of which the snapshot is", sbxerr.Clip(digest)),
		"bring the image first: caisson image save on the host of the snapshot, and caisson image import here")
}

// see shows the layers of an image to the filter.
func (s *Service) see(ctx context.Context, img images.Stored, feed image.Over) error {
	for i, d := range img.Layers {
		if diff := img.Config.RootFS.DiffIDs[i]; diff.String() != d {
			return sbxerr.New(sbxerr.ImageFormat, "images.changes", "image %q was not stored by caisson: import it", img.Name)
		}
		layer, err := s.store.OpenBlob(ctx, digest.Digest(d))
		if err == nil {
			err = errors.Join(feed.See(ctx, layer), layer.Close())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// takeChanges calls apply with the one layer of feed. What is wrong with the layer is known at its end.
func takeChanges(ctx context.Context, feed image.Feed, apply func(io.Reader) error) error {
	if err := feed.Next(ctx); err != nil {
		return err
	}
	r, w := io.Pipe()
	given := make(chan error, 1)
	go func() {
		err := feed.Layer(ctx, w)
		if err == nil {
			_, err = feed.Report(ctx)
		}
		given <- err
		w.CloseWithError(err)
	}()
	err := apply(r)
	r.CloseWithError(cmp.Or(err, errors.New("the changes were not read to their end")))
	if gave := <-given; err == nil {
		return gave
	}
	return err
}
