package ctrd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/identity"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/image"
	"github.com/caisson-run/caisson/runtime/images"
)

// damaged places err under the code of an image whose stored copy is not whole. What
// says nothing of the copy stays as it is.
func damaged(err error) error {
	if err == nil || sbxerr.Of(err) != sbxerr.Unknown {
		return err
	}
	err = native(err)
	if errdefs.IsUnavailable(err) || errdefs.IsCanceled(err) || errdefs.IsDeadlineExceeded(err) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return sbxerr.Wrap(sbxerr.ImageDamaged, "ctrd.image", err)
}

// verifyBlob reads a stored blob and fails if it is not what its digest says.
func (e *Engine) verifyBlob(ctx context.Context, d digest.Digest) error {
	ra, err := e.client.ContentStore().ReaderAt(ctx, ocispec.Descriptor{Digest: d})
	if err != nil {
		return fmt.Errorf("read blob %s: %w", d, err)
	}
	defer ra.Close()
	sum := d.Algorithm().Digester()
	if _, err := io.CopyBuffer(sum.Hash(), struct{ io.Reader }{content.NewReader(ra)}, make([]byte, uploadChunk)); err != nil {
		return fmt.Errorf("read blob %s: %w", d, err)
	}
	if sum.Digest() != d {
		return fmt.Errorf("read blob %s: its digest is %s: %w", d, sum.Digest(), errdefs.ErrDataLoss)
	}
	return nil
}

// dropBlob removes a damaged blob from the store, file included, so that it can be
// stored again. Images that refer to it stay as they are.
func (e *Engine) dropBlob(ctx context.Context, d digest.Digest) error {
	if err := e.client.ContentStore().Delete(ctx, d); err != nil && !errdefs.IsNotFound(err) {
		return err
	}
	return e.collect(ctx)
}

// collect has the server remove at once what nothing refers to.
func (e *Engine) collect(ctx context.Context) error {
	lease, err := e.client.LeasesService().Create(ctx, leases.WithRandomID(), leases.WithExpiration(uploadExpiry))
	if err != nil {
		return err
	}
	return e.dropLease(ctx, lease.ID, leases.SynchronousDelete)
}

// storedAlready keeps a blob that the store had before. One that has rotted is dropped,
// and is to be stored again.
func (e *Engine) storedAlready(ctx context.Context, lease leases.Lease, d digest.Digest) error {
	if err := e.keep(ctx, lease, d); err != nil {
		return err
	}
	rotten := damaged(e.verifyBlob(ctx, d))
	if !errors.Is(rotten, sbxerr.ImageDamaged) {
		return rotten
	}
	if err := e.dropBlob(ctx, d); err != nil {
		return errors.Join(rotten, err)
	}
	return sbxerr.New(sbxerr.ImageDamaged, "ctrd.blob", "%w: %v", image.ErrStoreAgain, rotten)
}

// whyUnread explains why an image cannot be unpacked or saved: a blob is damaged, or err.
func (e *Engine) whyUnread(ctx context.Context, img images.Stored, err error) error {
	for _, l := range img.Layers {
		d, parseErr := digest.Parse(l)
		if parseErr != nil {
			return err
		}
		if bad := damaged(e.verifyBlob(ctx, d)); errors.Is(bad, sbxerr.ImageDamaged) {
			return bad
		}
	}
	return err
}

// lostParent reports whether a view failed because a layer's directory is not there. The
// server has no other word for it.
func lostParent(err error) bool { return strings.Contains(err.Error(), "no such file or directory") }

// unpackLost unpacks an image again, from the layer on that has so many layers below.
// If a directory further down is not there either, one layer more is dropped each time. A
// lease keeps those below: without the ones above, nothing refers to them.
func (e *Engine) unpackLost(ctx context.Context, img images.Stored, below int) error {
	lease, err := e.client.LeasesService().Create(ctx, leases.WithRandomID(), leases.WithExpiration(uploadExpiry))
	if err != nil {
		return err
	}
	defer func() { _ = e.dropLease(ctx, lease.ID) }() // else it expires
	for diffs := img.Config.RootFS.DiffIDs; ; below-- {
		if below > 0 {
			kept := leases.Resource{ID: identity.ChainID(diffs[:below]).String(), Type: "snapshots/" + snapshotter}
			if err := e.client.LeasesService().AddResource(ctx, lease, kept); err != nil {
				return err
			}
		}
		if err := e.dropSnapshots(ctx, identity.ChainID(diffs[:below+1]).String()); err != nil {
			return err
		}
		_, err := e.view(ctx, img)
		if err == nil || below == 0 || !lostParent(err) {
			return err
		}
	}
}

// dropSnapshots removes a snapshot and all that is built upon it.
func (e *Engine) dropSnapshots(ctx context.Context, key string) error {
	sn := e.client.SnapshotService(snapshotter)
	var above []string
	err := sn.Walk(ctx, func(_ context.Context, info snapshots.Info) error {
		if info.Parent == key {
			above = append(above, info.Name)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, name := range above {
		if err := e.dropSnapshots(ctx, name); err != nil {
			return err
		}
	}
	if err := sn.Remove(ctx, key); err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("remove snapshot %q: %w", key, err)
	}
	return nil
}

// SweepImages removes what imports that were killed left: leases of the namespace that
// is the Engine's own, and all that nothing refers to without them.
func (e *Engine) SweepImages(ctx context.Context) error {
	return e.call(ctx, "ctrd.sweep", "end old imports of", e.cfg.Namespace, func(ctx context.Context) error {
		e.unpack.Lock() // those of an import that is unpacked are not old
		defer e.unpack.Unlock()
		if err := e.dropLeases(ctx, func(l leases.Lease) bool { return l.Labels[uploadLabel] == "" }); err != nil {
			return err
		}
		if err := e.touchSnapshots(ctx); err != nil {
			return err
		}
		return e.collect(ctx)
	})
}

// touchSnapshots makes the next collection look for directories that no snapshot has: it
// does so only after a snapshot was removed. A server that is killed while it makes a layer
// leaves such a directory.
func (e *Engine) touchSnapshots(ctx context.Context) error {
	const key = "caisson-sweep"
	sn := e.client.SnapshotService(snapshotter)
	if _, err := sn.Prepare(ctx, key, ""); err != nil && !errdefs.IsAlreadyExists(err) {
		return fmt.Errorf("sweep snapshots: %w", err)
	}
	if err := sn.Remove(ctx, key); err != nil && !errdefs.IsNotFound(err) { // a collection may take it
		return fmt.Errorf("sweep snapshots: %w", err)
	}
	return nil
}

// dropLeases ends the leases of which old says so. What they kept goes with the next
// collection.
func (e *Engine) dropLeases(ctx context.Context, old func(leases.Lease) bool) error {
	all, err := e.client.LeasesService().List(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, l := range all {
		if old(l) {
			errs = append(errs, e.dropLease(ctx, l.ID))
		}
	}
	return errors.Join(errs...)
}

// reason is what an error says, for a list of images.
func reason(err error) string {
	if err == nil {
		return ""
	}
	return strings.TrimSpace(err.Error())
}
