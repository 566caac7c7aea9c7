package imageservice

import (
	"context"
	"io"
	"sync"
	"testing"

	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/api/sbxerr/errtest"
	"github.com/caisson-run/caisson/runtime/images"
	"github.com/caisson-run/caisson/runtime/peer"
)

// sizedStore stores layers of 60 bytes, and has the images that it is told.
type sizedStore struct {
	images.Store
	there []images.Stored
}

func (s *sizedStore) Blob(context.Context, string, func(io.Writer) error) (v1.Descriptor, error) {
	return v1.Descriptor{Size: 60}, nil
}
func (s *sizedStore) Forget(context.Context, []v1.Descriptor) error { return nil }
func (s *sizedStore) ListImages(context.Context) ([]images.Stored, error) {
	return s.there, nil
}
func (s *sizedStore) GetImage(context.Context, string) (images.Stored, error) {
	return images.Stored{}, sbxerr.New(sbxerr.ImageNotFound, "op", "no image")
}
func (s *sizedStore) Commit(context.Context, string, v1.Descriptor, map[string]string) error {
	return nil
}

// TestQuotaAtCommit: a layer that is stored again counts once, and what others stored meanwhile
// counts too.
func TestQuotaAtCommit(t *testing.T) {
	quota := peer.DefaultQuota()
	quota.ImageBytes = 100
	grant, err := peers(t, quota).Grant(peer.User(1000, 1000, nil, 1))
	if err != nil {
		t.Fatal(err)
	}
	store := &sizedStore{}
	sink := &ownedSink{Store: store, grant: grant, names: &sync.Mutex{}, named: true}
	layer := func() {
		t.Helper()
		if _, err := sink.Blob(t.Context(), v1.MediaTypeImageLayer, nil); err != nil {
			t.Fatal(err)
		}
	}
	layer()
	if err := sink.Forget(t.Context(), nil); err != nil { // its copy was damaged
		t.Fatal(err)
	}
	layer()
	if err := sink.Commit(t.Context(), "app", v1.Descriptor{}, nil); err != nil {
		t.Errorf("a layer that is stored again: %v", err)
	}
	layer()
	store.there = []images.Stored{{Image: images.Image{Name: "other", Owner: 1000, SizeBytes: 50}}}
	errtest.Want(t, sink.Commit(t.Context(), "app", v1.Descriptor{}, nil), sbxerr.ImageTooBig, "50 bytes are left for these 60")
}
