package imageservice

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"sync"
	"time"

	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/base"
	"github.com/caisson-run/caisson/rootfs/image"
	"github.com/caisson-run/caisson/rootfs/imagework"
	"github.com/caisson-run/caisson/runtime/images"
	"github.com/caisson-run/caisson/runtime/peer"
)

// Import reads an image archive under a name, or under that which the
// archive states where name is empty. The image belongs to the caller.
func (s *Service) Import(ctx context.Context, name string, r io.Reader, progress func(string)) (images.Imported, error) {
	defer s.fleet.Busy()()
	g, err := s.grant(ctx, peer.Grant.CheckImages)
	if err != nil {
		return images.Imported{}, err
	}
	done, err := s.imports.begin(ctx, g)
	if err != nil {
		return images.Imported{}, err
	}
	defer done()
	limits, err := s.importLimits(ctx, g)
	if err != nil {
		return images.Imported{}, err
	}
	sink := &ownedSink{Store: s.store, grant: g, names: &s.naming, named: name != ""}
	result, err := image.Import(ctx, r, image.Options{
		Name: name, SpoolDir: s.options.Spool, Limits: limits, Progress: progress, Received: s.imports.work,
	}, sink, imagework.Archive(s.options.Program, name, s.options.Spool))
	return s.imported(ctx, sink, result, withinQuota(err, g, limits, s.settings().Limits))
}

// importLimits are the limits of the next import: no more bytes than the caller's
// quota leaves.
func (s *Service) importLimits(ctx context.Context, g peer.Grant) (image.Limits, error) {
	limits := s.settings().Limits
	left, err := quotaLeft(ctx, s.store, g)
	if err == nil && left <= 0 {
		err = quotaError(g, errors.New("nothing is left"))
	}
	limits.Bytes = min(limits.Bytes, left)
	return limits, err
}

// quotaLeft is how many bytes of images the caller may still store.
func quotaLeft(ctx context.Context, store images.Store, g peer.Grant) (int64, error) {
	list, err := store.ListImages(ctx)
	left := g.ImageBytes()
	for _, i := range list {
		if i.Owner == g.Owner().UID {
			left -= quotaBytes(i)
		}
	}
	return left, err
}

// quotaBytes is what i takes of its owner's quota. The state after a step of a build shares all
// but its latest layer with the one before.
func quotaBytes(i images.Stored) int64 {
	if i.Source == image.KindBuildCache && len(i.LayerBytes) > 0 {
		return i.LayerBytes[len(i.LayerBytes)-1]
	}
	return i.SizeBytes
}

// withinQuota says of an image that is too big where the quota made the limit.
func withinQuota(err error, g peer.Grant, used, most image.Limits) error {
	if used.Bytes == most.Bytes || !errors.Is(err, sbxerr.ImageTooBig) || errors.Is(err, errOverQuota) {
		return err
	}
	return quotaError(g, err)
}

// errOverQuota marks the errors of quotaError, so that none is wrapped in another.
var errOverQuota = errors.New("the quota of images is used up")

func quotaError(g peer.Grant, err error) error {
	return sbxerr.WithRemedy(sbxerr.ImageTooBig, "images.import", fmt.Errorf("%w: the images of %s may have %d bytes together: %w", errOverQuota, g.Owner(), g.ImageBytes(), err),
		"remove images (caisson image rm), or ask for a larger quota.images in the entry of peers:")
}

const (
	importsAtOnce  = 2                // that are being filtered and stored
	importPatience = 30 * time.Second // of an import that waits for others
)

// imports bounds the imports: each user but root sends one archive at a time, and
// importsAtOnce are worked on. A sender that is slow holds up nobody else: the work
// begins when all of the archive is there.
type imports struct {
	mu      sync.Mutex
	senders map[uint32]chan struct{}
	working chan struct{}
	sparing int
	usual   int // percent, while sparing
}

func newImports() *imports {
	return &imports{senders: map[uint32]chan struct{}{}, working: make(chan struct{}, importsAtOnce)}
}

// begin waits for the caller's own import to end.
func (i *imports) begin(ctx context.Context, g peer.Grant) (done func(), err error) {
	if g.IsRoot() {
		return func() {}, nil
	}
	i.mu.Lock()
	slot := i.senders[g.Owner().UID]
	if slot == nil {
		slot = make(chan struct{}, 1)
		i.senders[g.Owner().UID] = slot
	}
	i.mu.Unlock()
	return take(ctx, slot, "another import of the same user is under way")
}

// work waits until an archive that was received may be worked on.
func (i *imports) work(ctx context.Context) (func(), error) {
	release, err := take(ctx, i.working, fmt.Sprintf("%d other imports are under way", importsAtOnce))
	if err != nil {
		return nil, err
	}
	i.spare(1)
	return func() {
		i.spare(-1)
		release()
	}, nil
}

// sparing is how much the heap may grow, in percent, before Go looks for what is free while
// an archive is worked on. At the end the daemon gives back what it has.
const sparing = 25

func (i *imports) spare(change int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.sparing == 0 {
		i.usual = debug.SetGCPercent(sparing)
	}
	i.sparing += change
	if i.sparing == 0 {
		debug.SetGCPercent(i.usual)
	}
	if change < 0 {
		debug.FreeOSMemory()
	}
}

func take(ctx context.Context, slot chan struct{}, otherwise string) (done func(), err error) {
	patience := time.NewTimer(importPatience)
	defer patience.Stop()
	select {
	case slot <- struct{}{}:
		return func() { <-slot }, nil
	case <-ctx.Done():
		return nil, sbxerr.Wrap(sbxerr.Canceled, "images.import", context.Cause(ctx))
	case <-patience.C:
		return nil, sbxerr.WithRemedy(sbxerr.Busy, "images.import", errors.New(otherwise), "import again later")
	}
}

// ownedSink stores an image as one of the caller's.
type ownedSink struct {
	images.Store
	grant    peer.Grant
	names    *sync.Mutex // held from the check of a name until it is taken
	named    bool        // the caller chose the name; else the archive did
	replaced string      // digest of the image that had the name
	added    int64       // bytes of layers that were stored since the last Commit
}

func (s *ownedSink) key(name string) string { return images.Key(s.grant.Owner().UID, name) }

// Blob implements image.Sink.
func (s *ownedSink) Blob(ctx context.Context, mediaType string, write func(io.Writer) error) (v1.Descriptor, error) {
	d, err := s.Store.Blob(ctx, mediaType, write)
	if err == nil && mediaType == v1.MediaTypeImageLayer {
		s.added += d.Size
	}
	return d, err
}

// Forget implements image.Sink. Layers that are stored again count once.
func (s *ownedSink) Forget(ctx context.Context, blobs []v1.Descriptor) error {
	s.added = 0
	return s.Store.Forget(ctx, blobs)
}

// Commit implements image.Sink. What was stored counts now: others of the same user may have
// stored theirs since the work began.
func (s *ownedSink) Commit(ctx context.Context, name string, manifest v1.Descriptor, labels map[string]string) error {
	s.names.Lock()
	defer s.names.Unlock()
	if err := s.check(ctx, name, manifest.Digest.String()); err != nil {
		return err
	}
	if err := s.room(ctx); err != nil {
		return err
	}
	return s.Store.Commit(ctx, s.key(name), manifest, labels)
}

// room refuses layers that the caller's quota has no room for any more.
func (s *ownedSink) room(ctx context.Context) error {
	if s.added == 0 || s.grant.IsRoot() {
		return nil
	}
	left, err := quotaLeft(ctx, s.Store, s.grant)
	if err == nil && s.added > left {
		err = quotaError(s.grant, fmt.Errorf("%d bytes are left for these %d: others were stored meanwhile", max(0, left), s.added))
	}
	if err == nil {
		s.added = 0
	}
	return err
}

// check refuses a name that the caller may not take. A name out of an archive is
// hostile: it takes no other image's place.
func (s *ownedSink) check(ctx context.Context, name, digest string) error {
	if name == base.Name && (!s.named || !s.grant.IsRoot()) {
		return sbxerr.New(sbxerr.ImageExists, "images.import", "the name %q is that of the embedded image", name)
	}
	for _, key := range images.ScopeOf(s.grant).Keys(name) {
		old, err := s.GetImage(ctx, key)
		switch {
		case old.Name == "" && errors.Is(err, sbxerr.ImageNotFound), old.Digest == digest && key == s.key(name):
		case old.Name == "":
			return err
		case !s.named:
			return sbxerr.New(sbxerr.ImageExists, "images.import", "the archive calls its image %q, and there is another image of that name, %s", name, old.Digest)
		case key == s.key(name):
			s.replaced = old.Digest
		}
	}
	return nil
}
