package runtime

import (
	"context"

	"github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/caisson-run/caisson/rootfs/image"
)

// Engine makes containers out of finished specs. runtime/ctrd implements it
// with containerd.
type Engine interface {
	// Create makes a container and its first process, which waits for Start,
	// and returns the process's ID on the host.
	Create(ctx context.Context, c Container) (pid int, err error)
	Start(ctx context.Context, id string) error
	// Delete kills and removes the container. Absent is success.
	Delete(ctx context.Context, id string) error
	// Containers lists the IDs of all containers of this daemon.
	Containers(ctx context.Context) ([]string, error)
}

// Container is what an engine makes.
type Container struct {
	ID     string
	Spec   *specs.Spec
	Labels map[string]string
	// Group lets containers of the same group share what serves them outside, so
	// that each costs less memory. They end together when that is killed. Empty is
	// a container by itself.
	Group string
}

// ImageStore keeps images and unpacks them.
type ImageStore interface {
	image.Sink
	ListImages(ctx context.Context) ([]StoredImage, error)
	GetImage(ctx context.Context, ref string) (StoredImage, error)
	RemoveImage(ctx context.Context, name string) error
	// Layers returns the image's unpacked directories, the topmost first, and
	// keeps them until ReleaseView.
	Layers(ctx context.Context, img StoredImage) ([]string, error)
	// Unpacked returns what the image of a chain ID takes on the disk, in bytes.
	Unpacked(ctx context.Context, chainID string) (int64, error)
	// Views lists the chain IDs that Layers keeps.
	Views(ctx context.Context) ([]string, error)
	ReleaseView(ctx context.Context, chainID string) error
	// SweepImages removes what imports that were killed left.
	SweepImages(ctx context.Context) error
}

// StoredImage is an image as its store knows it.
type StoredImage struct {
	Image
	ChainID string
	Config  v1.Image
	Labels  map[string]string
	Layers  []string // digests
}
