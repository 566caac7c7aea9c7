// Package imagestest has a store of images for tests.
package imagestest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"sync"

	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime/images"
)

// Store is an images.Store in memory. Its fields may be set while nothing uses it.
type Store struct {
	mu     sync.Mutex
	Images []images.Stored
	Kept   []string         // chain IDs, from Layers to ReleaseView
	Fail   map[string]error // of ListImages "list", GetImage "get", SweepImages "sweep", and so on
}

// Hold has what asks for images wait until letGo is called.
func (s *Store) Hold() (letGo func()) {
	s.mu.Lock()
	return s.mu.Unlock
}

// Blob implements images.Store.
func (s *Store) Blob(_ context.Context, mediaType string, write func(io.Writer) error) (v1.Descriptor, error) {
	var b bytes.Buffer
	err := write(&b)
	return v1.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(b.Bytes()), Size: int64(b.Len())}, err
}

// Unpack implements images.Store.
func (s *Store) Unpack(context.Context, []v1.Descriptor) {}

// Commit implements images.Store.
func (s *Store) Commit(_ context.Context, key string, manifest v1.Descriptor, labels map[string]string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Images = slices.DeleteFunc(s.Images, func(img images.Stored) bool { return img.Key() == key })
	owner, name := images.SplitKey(key)
	s.Images = append(s.Images, images.Stored{Image: images.Image{Name: name, Owner: owner, Digest: manifest.Digest.String()}, Labels: labels, ChainID: "chain-" + key})
	return nil
}

// Unpacked implements images.Store.
func (s *Store) Unpacked(context.Context, string) (int64, error) {
	return 1 << 20, s.Fail["unpacked"]
}

// Forget implements images.Store.
func (s *Store) Forget(context.Context, []v1.Descriptor) error { return nil }

// OpenBlob implements images.Store.
func (s *Store) OpenBlob(context.Context, digest.Digest) (io.ReadCloser, error) {
	return nil, errors.ErrUnsupported
}

// Export implements images.Store.
func (s *Store) Export(context.Context, []images.Stored, io.Writer) error {
	return s.Fail["export"]
}

// ListImages implements images.Store.
func (s *Store) ListImages(context.Context) ([]images.Stored, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.Images), s.Fail["list"]
}

// GetImage implements images.Store.
func (s *Store) GetImage(_ context.Context, ref string) (images.Stored, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, img := range s.Images {
		if img.Key() == ref {
			return img, s.Fail["get"]
		}
	}
	return images.Stored{}, sbxerr.New(sbxerr.ImageNotFound, "imagestest.image", "no image %q", ref)
}

// RemoveImages implements images.Store.
func (s *Store) RemoveImages(_ context.Context, names ...string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Images = slices.DeleteFunc(s.Images, func(img images.Stored) bool { return slices.Contains(names, img.Key()) })
	return s.Fail["remove"]
}

// Layers implements images.Store.
func (s *Store) Layers(_ context.Context, img images.Stored) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.Kept, img.ChainID) {
		s.Kept = append(s.Kept, img.ChainID)
	}
	return img.Layers, s.Fail["layers"]
}

// SweepImages implements images.Store.
func (s *Store) SweepImages(context.Context) error { return s.Fail["sweep"] }

// Views implements images.Store.
func (s *Store) Views(context.Context) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.Kept), s.Fail["views"]
}

// ReleaseView implements images.Store.
func (s *Store) ReleaseView(_ context.Context, chainID string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Kept = slices.DeleteFunc(s.Kept, func(v string) bool { return v == chainID })
	return s.Fail["release"]
}
