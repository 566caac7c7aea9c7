package images

import (
	"context"
	"encoding/json"
	"io"
	"time"

	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/image"
	"github.com/caisson-run/caisson/runtime/registry"
)

// Image is one image that sandboxes can be made of.
type Image struct {
	Name      string
	Owner     uint32 // uid of the user whose image it is
	Digest    string
	SizeBytes int64
	CreatedAt time.Time
	Source    string // "embedded", "oci-layout", "docker-archive", "rootfs", "from-host", "registry"
	Damaged   string // the fault of the stored copy; empty: none

	Verified     string // the rule that it was verified by when it was pulled; empty: none
	TargetDigest string // digest that its name led to in the registry; empty: it came from none
	SourceDigest string // of its manifest before the filter wrote it anew; empty: it had none
}

// Imported is an image that was made.
type Imported struct {
	Image    Image
	Report   Report
	Replaced string // digest of the image of the same name that it replaced; empty: none
	Present  bool   // the registry's image was there already
}

// PullRequest asks for an image of a registry.
type PullRequest struct {
	Name        string // HOST/PATH[:TAG][@DIGEST]
	Credentials registry.Credentials
}

// PullProgress is a step of a pull.
type PullProgress struct {
	Message string // a line; empty: Layers has changed
	Layers  []LayerProgress
}

// PruneRequest says which images are removed.
type PruneRequest struct {
	Unused bool          // all that nothing needs
	Until  time.Duration // of them only those that were stored so long ago; 0: any
	DryRun bool
}

// Pruned are images that were removed, or would be.
type Pruned struct {
	Images     []Image
	FreedBytes int64 // of layers that no other image has, as stored
}

// DiskUsage is the room that an image takes.
type DiskUsage struct {
	Image         Image
	SharedBytes   int64 // stored in layers that another image has, too
	UnpackedBytes int64 // of its unpacked layers, beside the stored ones
}

// LayerProgress is how far a layer is.
type LayerProgress struct {
	Digest   string
	Size     int64 // in bytes, as the registry has it
	Received int64
	State    string // "waiting", "fetching", "fetched", "stored", "present"
}

// Detail is all that is known of one image.
type Detail struct {
	Image
	ConfigJSON []byte
	Layers     []string
	Report     Report
}

// Report counts the changes of the import filter.
type Report struct {
	Entries  int64
	Bytes    int64
	Stripped map[string]int64 // kind: count
}

// FromHostRequest names the software of the host that an image is made of.
type FromHostRequest struct {
	Name     string
	Packages []string
	Paths    []string
}

// Stored is an image as its store knows it.
type Stored struct {
	Image
	ChainID string
	Config  v1.Image
	Builds  image.ForBuilds
	Labels  map[string]string
	Layers  []string // digests

	LayerBytes []int64 // as stored

	Manifest v1.Descriptor
}

// Store keeps images and unpacks them. runtime/ctrd implements it with containerd.
type Store interface {
	image.Sink
	// OpenBlob opens what Blob stored. The caller closes it.
	OpenBlob(ctx context.Context, d digest.Digest) (io.ReadCloser, error)
	// Export writes images as one tar, an OCI layout and a docker-archive.
	Export(ctx context.Context, list []Stored, w io.Writer) error
	ListImages(ctx context.Context) ([]Stored, error)
	GetImage(ctx context.Context, ref string) (Stored, error)
	// RemoveImages removes names, and waits until what nothing else needs is gone.
	RemoveImages(ctx context.Context, names ...string) error
	// Layers returns the image's unpacked directories, the topmost first, and
	// keeps them until ReleaseView.
	Layers(ctx context.Context, img Stored) ([]string, error)
	// Unpacked returns the size of the image of a chain ID on the disk, in bytes.
	Unpacked(ctx context.Context, chainID string) (int64, error)
	// Views lists the chain IDs that Layers keeps.
	Views(ctx context.Context) ([]string, error)
	ReleaseView(ctx context.Context, chainID string) error
	// SweepImages removes what imports that were killed left.
	SweepImages(ctx context.Context) error
}

// Report counts what the import filter changed in i. An image that somebody else stored
// has none.
func (i Stored) Report() (Report, error) {
	label := i.Labels[image.LabelReport]
	if label == "" {
		return Report{}, nil
	}
	var r image.Report
	err := json.Unmarshal([]byte(label), &r)
	return Report(r), sbxerr.Wrap(sbxerr.Internal, "images.report", err)
}
