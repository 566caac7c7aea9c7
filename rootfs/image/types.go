package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// Sink stores images. It gets clean content only.
type Sink interface {
	// Blob stores what write writes and returns its descriptor. When write
	// fails, nothing is stored and the error is returned, wrapped or not.
	Blob(ctx context.Context, mediaType string, write func(io.Writer) error) (ocispec.Descriptor, error)
	// Unpack begins to unpack the last of layers on those below it, which Blob stored and
	// Unpack was called with before. It may fail: Commit unpacks all that is not.
	Unpack(ctx context.Context, layers []ocispec.Descriptor)
	// Commit names the image whose manifest desc is. All that the manifest
	// refers to has been stored by Blob before. An older image of that name is
	// replaced. The labels are the sink's to keep with the name; their keys
	// are the Label constants of this package, never anything of an archive.
	Commit(ctx context.Context, name string, manifest ocispec.Descriptor, labels map[string]string) error
	// Forget lets go of blobs that Blob stored, because there will be no image
	// of them. What nothing else needs is gone when it returns.
	Forget(ctx context.Context, blobs []ocispec.Descriptor) error
}

// ErrStoreAgain tells that a Sink held a copy of a blob, which is gone now: it was
// damaged, or nothing needed it. The same image is to be stored again.
var ErrStoreAgain = errors.New("the stored copy is gone")

// The labels that come with an image's name. Values are ours and shorter than
// 4096 bytes, containerd's limit for one label.
const (
	LabelKind       = "caisson.image.kind"       // one of the kinds
	LabelSource     = "caisson.image.source"     // digest of what it was made from, when that has one
	LabelRepository = "caisson.image.repository" // HOST/PATH in its registry
	LabelVerified   = "caisson.image.verified"   // the rule that it was verified by; absent: none
	LabelTarget     = "caisson.image.target"     // digest that its name led to in its registry
	LabelReport     = "caisson.image.report"     // the Report as JSON
)

// SnapshotLabel is the label of a configuration whose one layer has the changes to an image, as an
// archive of a snapshot has it.
const SnapshotLabel = "caisson.snapshot.version"

// The kinds of images, by what they were made from.
const (
	KindOCILayout     = "oci-layout"
	KindDockerArchive = "docker-archive"
	KindRootFS        = "rootfs"
	KindFromHost      = "from-host"
	KindEmbedded      = "embedded"
	KindRegistry      = "registry"
	KindBuild         = "build"
	KindBuildCache    = "build-cache" // the state after a step of a build
)

// Limits bounds what one import or build may hold. Every field is required:
// zero is an error and never means unlimited.
type Limits struct {
	Bytes         int64 // of the archive, of its layers when expanded, and of the image that is written; each by itself
	Entries       int64 // of all layers together, directories that are only implied by a name included
	NameBytes     int64 // of the last components of all names together, which is what the filter remembers
	Layers        int   // at most 127
	DocumentBytes int64 // of each JSON document
	Ratio         int64 // expanded : compressed, looked at once 64 MiB are expanded
}

// DefaultLimits returns limits that large, honest images stay within.
func DefaultLimits() Limits {
	return Limits{
		Bytes:         8 << 30,
		Entries:       400_000,
		NameBytes:     64 << 20,
		Layers:        maxLayers,
		DocumentBytes: 4 << 20,
		Ratio:         200,
	}
}

const maxLayers = 127

// The longest path, in bytes, and the largest id that a sandbox's block of host ids can hold.
const (
	MaxPath = 4095 // PATH_MAX less the final NUL (limits.h)
	MaxID   = 65535
)

// FewerLayers is a remedy: no setting allows more layers.
const FewerLayers = "build the image with fewer RUN, COPY and ADD instructions, for each adds a layer"

// specialDirs are not the image's.
var specialDirs = []string{"dev", "proc", "sys"}

// Validate reports every field that is out of range.
func (l Limits) Validate() error {
	var errs []error
	check := func(name string, v, most int64) {
		if v < 1 || v > most {
			errs = append(errs, fmt.Errorf("%s is %d: must be 1 to %d", name, v, most))
		}
	}
	check("bytes", l.Bytes, 1<<50)
	check("entries", l.Entries, 1<<31)
	check("name bytes", l.NameBytes, 1<<40)
	check("layers", int64(l.Layers), maxLayers)
	check("document bytes", l.DocumentBytes, 64<<20)
	check("ratio", l.Ratio, 1<<20)
	return sbxerr.Wrap(sbxerr.Limits, "image.limits", errors.Join(errs...))
}

// Options says how to import an archive.
type Options struct {
	Name     string       // of the image; empty takes the one name that the archive states
	SpoolDir string       // an existing directory that only the daemon can write, with room for the archive
	Limits   Limits       // see DefaultLimits
	Progress func(string) // gets a line per step; nil gets none
	// Received is called when all of the archive is there, and waits until the work may
	// begin. What it returns is called when that is done. Nil does not wait.
	Received func(context.Context) (done func(), err error)
}

// Remote is the image of this host's platform in a registry.
type Remote struct {
	Target ocispec.Descriptor   `json:"target"` // that its name leads to
	Source ocispec.Descriptor   `json:"source"` // its own manifest: Target, or listed by it
	Layers []ocispec.Descriptor `json:"layers"` // as the registry has them, lowest first
}

// Digests of the layers in the registry.
func (r Remote) Digests() []digest.Digest {
	var list []digest.Digest
	for _, l := range r.Layers {
		list = append(list, l.Digest)
	}
	return list
}

// LabelLayer is the label with the chain ID of the registry's layers 0 to i.
func LabelLayer(i int) string { return fmt.Sprintf("caisson.image.layer.%d", i) }

// BuildOptions says what Build makes.
type BuildOptions struct {
	Name     string              // of the image
	Kind     string              // KindFromHost, KindEmbedded or KindRootFS
	Config   ocispec.ImageConfig // only Env, Entrypoint, Cmd, WorkingDir and User are kept
	Limits   Limits              // see DefaultLimits
	Progress func(string)        // gets a line per step; nil gets none
}

// Result is an image that was committed.
type Result struct {
	Name     string
	Kind     string
	Manifest ocispec.Descriptor
	Created  *time.Time        // when it was made; nil: not said
	Source   digest.Digest     // of the image's own manifest (oci-layout, registry) or configuration (docker-archive); else empty
	Target   digest.Digest     // that the name led to in the registry: an index or Source; else empty
	Labels   map[string]string // beside those that follow from the rest
	Builds   ForBuilds
	layers   []digest.Digest // as they were in the registry; else empty
	Report   Report
}

// ForBuilds is what a build that begins with the image takes from it. The configuration holds
// it as Docker's does.
type ForBuilds struct {
	Shell   []string `json:"Shell,omitempty"`   // runs commands that are no JSON array; empty: /bin/sh -c
	OnBuild []string `json:"OnBuild,omitempty"` // instructions
}

func (b ForBuilds) check() error {
	c := ocispec.ImageConfig{Entrypoint: b.Shell, Cmd: b.OnBuild}
	err := errors.Join(checkStrings("shell", b.Shell), checkStrings("onbuild", b.OnBuild), checkConfigSize(c))
	return sbxerr.Wrap(sbxerr.ImageContent, "image.config", err)
}

// Report says what the filter let through and what it took away.
type Report struct {
	Entries  int64            `json:"entries"` // written to the layers
	Bytes    int64            `json:"bytes"`   // content of the regular files among them
	Stripped map[string]int64 `json:"stripped,omitempty"`
}

// The keys of Report.Stripped.
const (
	StripDevice     = "device"     // a block or character device, left out (CVE-2026-96812)
	StripFIFO       = "fifo"       // a named pipe, left out
	StripSpecial    = "special"    // something inside /dev, /proc or /sys, left out
	StripWhiteout   = "whiteout"   // a whiteout that hides nothing, left out
	StripSetuid     = "setuid"     // the bit was cleared
	StripSetgid     = "setgid"     // the bit was cleared
	StripSticky     = "sticky"     // the bit was cleared, on something that is no directory
	StripCapability = "capability" // a security.capability attribute was removed
	StripXattr      = "xattr"      // another extended attribute was removed
)
