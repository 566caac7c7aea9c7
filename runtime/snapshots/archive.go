package snapshots

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	goruntime "runtime"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/disk"
	"github.com/caisson-run/caisson/rootfs/image"
	"github.com/caisson-run/caisson/rootfs/layertar"
	"github.com/caisson-run/caisson/rootfs/mount"
	"github.com/caisson-run/caisson/runtime/failpoint"
	"github.com/caisson-run/caisson/runtime/plan"
)

// The archive of a snapshot is an OCI image layout. Its one layer has the changes to the image whose
// digest is the annotation of the base. The configuration has the environment, and these labels.
const (
	labelVersion  = image.SnapshotLabel // of the format; also an annotation of the manifest
	labelSnapshot = "caisson.snapshot"  // archived, as JSON

	archiveVersion = "1"
)

// archived is what an archive says of a snapshot.
type archived struct {
	Name string `json:"name"`
	plan.Snapshot
}

const opExport = "snapshots.export"

// Export writes a snapshot as an archive.
func (s *Service) Export(ctx context.Context, ref string, w io.Writer) error {
	defer s.fleet.Busy()()
	info, err := s.Inspect(ctx, ref)
	if err != nil {
		return err
	}
	layer, most, err := s.images.Spool()
	if err != nil {
		return err
	}
	defer layer.Close() // it was only read, and has no name
	sum := sha256.New()
	size := &sized{ctx: ctx, w: io.MultiWriter(layer, sum), most: most}
	if err := errors.Join(s.writeLayer(info, size), failpoint.At("snapshot/exported")); err != nil {
		return err
	}
	if _, err := layer.Seek(0, io.SeekStart); err != nil {
		return sbxerr.Wrap(sbxerr.StateDir, opExport, err)
	}
	of := v1.Descriptor{MediaType: v1.MediaTypeImageLayer, Digest: digest.NewDigest(digest.SHA256, sum), Size: size.n}
	return writeArchive(info, of, layer, w)
}

// writeLayer writes what the sandbox wrote.
func (s *Service) writeLayer(info Info, w io.Writer) error {
	root, err := disk.OpenSaved(s.store.File(info.Key))
	if err != nil {
		return err
	}
	defer root.Close() // it was only read
	parts, closeAll, err := partsOf(fmt.Sprintf("/proc/self/fd/%d", root.Fd()), info.WritableRoot)
	if err != nil {
		return err
	}
	defer closeAll()
	err = layertar.Parts(parts, info.IDBase, w)
	if !coded(err) {
		err = sbxerr.Wrap(sbxerr.StateDir, opExport, err)
	}
	return err
}

// partsOf opens what is exported of a disk: /workspace, and what was written to the root.
func partsOf(dir string, root bool) (parts []layertar.Part, closeAll func(), err error) {
	names := map[string]string{"workspace": filepath.Join(dir, plan.DiskWorkspace)}
	if root {
		names[""] = mount.UpperDir(dir)
	}
	closeAll = func() {
		for _, p := range parts {
			p.Root.Close() // nothing is written by it
		}
	}
	for _, at := range []string{"", "workspace"} {
		if names[at] == "" {
			continue
		}
		opened, err := os.OpenRoot(names[at])
		if err != nil {
			closeAll()
			return nil, nil, sbxerr.Wrap(sbxerr.Disk, "snapshots.open", err)
		}
		parts = append(parts, layertar.Part{Root: opened, At: at})
	}
	return parts, closeAll, nil
}

// sized bounds what is written, and ends with a call.
type sized struct {
	ctx     context.Context
	w       io.Writer
	n, most int64
}

// Write implements io.Writer.
func (s *sized) Write(p []byte) (int, error) {
	if s.ctx.Err() != nil {
		return 0, sbxerr.Wrap(sbxerr.Canceled, opExport, context.Cause(s.ctx))
	}
	if s.n += int64(len(p)); s.n > s.most {
		return 0, sbxerr.New(sbxerr.ImageTooBig, opExport, "the files of the snapshot have more than the %d bytes of images.max_bytes", s.most)
	}
	return s.w.Write(p)
}

// writeArchive writes the layout.
func writeArchive(info Info, layer v1.Descriptor, content io.Reader, to io.Writer) error {
	config, err := configOf(info, layer.Digest)
	if err != nil {
		return sbxerr.Wrap(sbxerr.Internal, opExport, err)
	}
	w := layout{tar.NewWriter(to), info.CreatedAt}
	if err := errors.Join(w.text("oci-layout", v1.ImageLayout{Version: v1.ImageLayoutVersion}), w.put(blob(layer), layer.Size, content)); err != nil {
		return err
	}
	manifest := v1.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageManifest, Layers: []v1.Descriptor{layer},
		Annotations: map[string]string{labelVersion: archiveVersion, v1.AnnotationBaseImageDigest: info.ImageDigest, v1.AnnotationBaseImageName: info.Image},
	}
	if manifest.Config, err = w.document(v1.MediaTypeImageConfig, config); err != nil {
		return err
	}
	of, err := w.document(v1.MediaTypeImageManifest, manifest)
	if err != nil {
		return err
	}
	of.Platform = &config.Platform
	if err := w.text("index.json", v1.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageIndex, Manifests: []v1.Descriptor{of}}); err != nil {
		return err
	}
	return w.tar.Close()
}

// configOf says what the snapshot is of, but not which sandbox.
func configOf(info Info, layer digest.Digest) (v1.Image, error) {
	said := archived{info.Name, info.Snapshot}
	env := said.Request.Env
	said.Request.Env, said.SandboxID, said.IDBase, said.DiskSince, said.Unnamed = nil, "", 0, time.Time{}, false
	data, err := json.Marshal(said)
	return v1.Image{
		Created: &info.CreatedAt, Platform: v1.Platform{OS: "linux", Architecture: goruntime.GOARCH},
		Config: v1.ImageConfig{Env: env, Labels: map[string]string{labelVersion: archiveVersion, labelSnapshot: string(data)}},
		RootFS: v1.RootFS{Type: "layers", DiffIDs: []digest.Digest{layer}},
	}, err
}

// layout writes the files of an OCI image layout.
type layout struct {
	tar *tar.Writer
	at  time.Time
}

func blob(d v1.Descriptor) string {
	return "blobs/" + d.Digest.Algorithm().String() + "/" + d.Digest.Encoded()
}

func (l layout) put(name string, size int64, content io.Reader) error {
	err := l.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o644, ModTime: l.at.Truncate(time.Second)})
	if err == nil {
		_, err = io.Copy(l.tar, content)
	}
	return err
}

func (l layout) text(name string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return sbxerr.Wrap(sbxerr.Internal, opExport, err)
	}
	return l.put(name, int64(len(data)), bytes.NewReader(data))
}

// document writes a blob.
func (l layout) document(mediaType string, v any) (v1.Descriptor, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return v1.Descriptor{}, sbxerr.Wrap(sbxerr.Internal, opExport, err)
	}
	d := v1.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(data), Size: int64(len(data))}
	return d, l.put(blob(d), d.Size, bytes.NewReader(data))
}
