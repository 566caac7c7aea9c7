package ctrd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/content"
	ctrimages "github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/pkg/rootfs"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/image"
)

// uploadLabel marks the lease that keeps a blob between Blob and Commit.
const uploadLabel = "caisson.upload"

// uploadExpiry ends such a lease when nobody else does: the import failed, or its
// daemon died and none came back.
const uploadExpiry = time.Hour

// uploadChunk is what goes to the store at a time: every write is a round trip.
const uploadChunk = 1 << 20

// Blob stores what write writes and returns its descriptor. Nothing stays of it
// when write fails. It is kept for an hour; Commit keeps it for good, Forget lets
// go of it.
func (e *Engine) Blob(ctx context.Context, mediaType string, write func(io.Writer) error) (ocispec.Descriptor, error) {
	var desc ocispec.Descriptor
	began := false
	err := e.callUnbounded(ctx, "ctrd.blob", "store a blob of type", mediaType, func(ctx context.Context) error {
		if began {
			// write has been used up: what it read cannot be had again.
			return fmt.Errorf("store again: %w", errors.ErrUnsupported)
		}
		var err error
		desc, err = e.upload(ctx, mediaType, func(w io.Writer) error { began = true; return write(w) })
		return err
	})
	return desc, err
}

func (e *Engine) upload(ctx context.Context, mediaType string, write func(io.Writer) error) (_ ocispec.Descriptor, err error) {
	lease, err := e.client.LeasesService().Create(ctx, leases.WithRandomID(),
		leases.WithLabel(uploadLabel, "true"), leases.WithExpiration(uploadExpiry))
	if err != nil {
		return ocispec.Descriptor{}, fmt.Errorf("create lease: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.dropLease(ctx, lease.ID))
		}
	}()
	desc, err := e.ingest(leases.WithLease(ctx, lease.ID), mediaType, lease.ID, write)
	if errdefs.IsAlreadyExists(err) {
		err = e.storedAlready(ctx, lease, desc.Digest)
	}
	if err != nil {
		return desc, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.uploads[desc.Digest] = append(e.uploads[desc.Digest], lease.ID)
	return desc, nil
}

// ingest copies what write writes to the content store under the digest that the store
// finds it to have, which it returns also if that is stored already.
func (e *Engine) ingest(ctx context.Context, mediaType, ref string, write func(io.Writer) error) (ocispec.Descriptor, error) {
	store := e.client.ContentStore()
	w, err := store.Writer(ctx, content.WithRef(ref))
	if err != nil {
		return ocispec.Descriptor{}, fmt.Errorf("open writer: %w", err)
	}
	defer w.Close()
	n := &counter{w: w}
	buffered := bufio.NewWriterSize(n, uploadChunk)
	if err := errors.Join(write(buffered), buffered.Flush()); err != nil {
		return ocispec.Descriptor{}, errors.Join(err, store.Abort(context.WithoutCancel(ctx), ref))
	}
	desc := ocispec.Descriptor{MediaType: mediaType, Digest: w.Digest(), Size: n.n}
	if err := w.Commit(ctx, desc.Size, desc.Digest); err != nil {
		return desc, fmt.Errorf("commit %s: %w", desc.Digest, err)
	}
	return desc, nil
}

// keep adds a blob that was stored before to lease, which the store does only for
// new ones. That it is still there must be asked afterwards: until it is in the
// lease, the garbage collector may take it. It is to be stored again then.
func (e *Engine) keep(ctx context.Context, lease leases.Lease, d digest.Digest) error {
	if err := e.client.LeasesService().AddResource(ctx, lease, leases.Resource{ID: d.String(), Type: "content"}); err != nil {
		return fmt.Errorf("keep %s: %w", d, err)
	}
	_, err := e.client.ContentStore().Info(ctx, d)
	switch {
	case errdefs.IsNotFound(err):
		return sbxerr.New(sbxerr.ImageDamaged, "ctrd.blob", "%w: %v", image.ErrStoreAgain, err)
	case err != nil:
		return fmt.Errorf("keep %s: %w", d, err)
	}
	return nil
}

// counter counts the bytes that pass.
type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, noRoom("ctrd.blob", err)
}

// Unpack applies the last of layers to the overlay snapshotter, under the lease of its
// blob. What fails is left to Commit, which reports it.
func (e *Engine) Unpack(ctx context.Context, layers []ocispec.Descriptor) {
	top := layers[len(layers)-1]
	lease, ok := e.uploadOf(top.Digest)
	if !ok {
		return
	}
	var below []digest.Digest
	for _, l := range layers[:len(layers)-1] {
		below = append(below, l.Digest)
	}
	_ = e.callUnbounded(ctx, "ctrd.unpack", "unpack layer", top.Digest.String(), func(ctx context.Context) error {
		e.unpack.Lock()
		defer e.unpack.Unlock()
		_, err := rootfs.ApplyLayer(leases.WithLease(ctx, lease), rootfs.Layer{Diff: top, Blob: top}, below,
			e.client.SnapshotService(snapshotter), e.client.DiffService())
		return err
	})
}

// uploadOf returns the lease of one upload of d.
func (e *Engine) uploadOf(d digest.Digest) (string, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if ids := e.uploads[d]; len(ids) > 0 {
		return ids[0], true
	}
	return "", false
}

// OpenBlob opens a blob that is stored, for reading.
func (e *Engine) OpenBlob(ctx context.Context, d digest.Digest) (io.ReadCloser, error) {
	var blob io.ReadCloser
	err := e.callUnbounded(ctx, "ctrd.open_blob", "open blob", d.String(), func(ctx context.Context) error {
		r, err := e.client.ContentStore().ReaderAt(ctx, ocispec.Descriptor{Digest: d})
		if err != nil {
			return err
		}
		blob = struct {
			io.Reader
			io.Closer
		}{content.NewReader(r), r}
		return nil
	})
	return blob, err
}

// Commit names the image whose manifest desc is, in place of an older one of that
// name, and unpacks its layers, so that what cannot be unpacked is refused here and
// not at the first run. Everything the manifest refers to must be stored already.
func (e *Engine) Commit(ctx context.Context, name string, manifest ocispec.Descriptor, labels map[string]string) error {
	const op = "ctrd.commit"
	if err := checkImageName(name); err != nil {
		return sbxerr.Wrap(sbxerr.Config, op, err)
	}
	if err := checkImageLabels(labels); err != nil {
		return sbxerr.Wrap(sbxerr.Internal, op, err)
	}
	return e.callUnbounded(ctx, op, "commit image", name, func(ctx context.Context) error {
		m, err := e.manifest(ctx, manifest)
		if err != nil {
			return err
		}
		if err := e.link(ctx, manifest, m); err != nil {
			return err
		}
		if err := e.unpackImage(ctx, ctrimages.Image{Name: name, Target: manifest}); err != nil {
			return err
		}
		if err := e.putImage(ctx, ctrimages.Image{Name: name, Target: manifest, Labels: labels}); err != nil {
			return err
		}
		return e.releaseUploads(ctx, manifest, m)
	})
}

// link tells the garbage collector what the manifest refers to, and fails if any
// of it is absent.
func (e *Engine) link(ctx context.Context, manifest ocispec.Descriptor, m ocispec.Manifest) error {
	store := e.client.ContentStore()
	info := content.Info{Digest: manifest.Digest, Labels: map[string]string{"containerd.io/gc.ref.content.config": m.Config.Digest.String()}}
	for i, l := range m.Layers {
		info.Labels[fmt.Sprintf("containerd.io/gc.ref.content.l.%d", i)] = l.Digest.String()
	}
	for _, d := range append([]ocispec.Descriptor{m.Config}, m.Layers...) {
		if _, err := store.Info(ctx, d.Digest); err != nil {
			return fmt.Errorf("find blob %s: %w", d.Digest, err)
		}
	}
	var fields []string
	for k := range maps.Keys(info.Labels) {
		fields = append(fields, "labels."+k)
	}
	_, err := store.Update(ctx, info, fields...)
	return err
}

// unpackImage applies the layers to the overlay snapshotter, those that are not
// there yet.
func (e *Engine) unpackImage(ctx context.Context, img ctrimages.Image) error {
	e.unpack.Lock()
	defer e.unpack.Unlock()
	if err := containerd.NewImage(e.client, img).Unpack(ctx, snapshotter); err != nil {
		return fmt.Errorf("unpack: %w", err)
	}
	return nil
}

func (e *Engine) putImage(ctx context.Context, img ctrimages.Image) error {
	svc := e.client.ImageService()
	return e.names.change(func() error {
		_, err := svc.Create(ctx, img)
		if errdefs.IsAlreadyExists(err) {
			_, err = svc.Update(ctx, img, "target", "labels")
		}
		return err
	})
}

// releaseUploads ends one upload of each blob: the image's name keeps them now.
func (e *Engine) releaseUploads(ctx context.Context, manifest ocispec.Descriptor, m ocispec.Manifest) error {
	var errs []error
	for _, d := range append([]ocispec.Descriptor{manifest, m.Config}, m.Layers...) {
		if id, ok := e.takeUpload(d.Digest); ok {
			errs = append(errs, e.dropLease(ctx, id))
		}
	}
	return errors.Join(errs...)
}

func (e *Engine) takeUpload(d digest.Digest) (string, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	ids := e.uploads[d]
	if len(ids) == 0 {
		return "", false
	}
	if e.uploads[d] = ids[1:]; len(ids) == 1 {
		delete(e.uploads, d)
	}
	return ids[0], true
}

// Forget ends one upload of each blob, and waits for the removal of what nothing
// else needs: of the blobs, and of what unpacking them began.
func (e *Engine) Forget(ctx context.Context, blobs []ocispec.Descriptor) error {
	var ids []string
	for _, d := range blobs {
		if id, ok := e.takeUpload(d.Digest); ok {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	return e.call(ctx, "ctrd.forget", "drop blobs of", e.cfg.Namespace, func(ctx context.Context) error {
		var errs []error
		for _, id := range ids[1:] {
			errs = append(errs, e.dropLease(ctx, id))
		}
		return errors.Join(append(errs, e.dropLease(ctx, ids[0], leases.SynchronousDelete))...)
	})
}

func (e *Engine) dropLease(ctx context.Context, id string, how ...leases.DeleteOpt) error {
	err := e.client.LeasesService().Delete(context.WithoutCancel(ctx), leases.Lease{ID: id}, how...)
	if errdefs.IsNotFound(err) {
		return nil
	}
	return err
}

// maxImageKey is an owner's number, a plus sign and a name.
const maxImageKey = 11 + 255

func checkImageName(name string) error {
	if name == "" || len(name) > maxImageKey {
		return fmt.Errorf("name image %.300q: not between 1 and %d bytes", name, maxImageKey)
	}
	allowed := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._:/-+", r)
	}
	if strings.ContainsFunc(name, func(r rune) bool { return !allowed(r) }) || strings.HasPrefix(name, "sha256:") {
		return fmt.Errorf("name image %q: only letters, digits and . _ : / - + are allowed, and not the form of a digest", name)
	}
	return nil
}

// checkImageLabels lets only labels of ours through: containerd and its plugins
// act on others (CVE-2026-53488).
func checkImageLabels(labels map[string]string) error {
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		if !strings.HasPrefix(k, "caisson.") {
			return fmt.Errorf("label image: key %q is not one of caisson's", k)
		}
	}
	return nil
}
