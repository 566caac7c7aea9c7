package ctrd

import (
	"bytes"
	"context"
	"io"
	"testing"

	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/caisson-run/caisson/runtime/images"
)

// snapshotNames lists the unpacked layers.
func snapshotNames(t *testing.T, e *Engine) (names []string) {
	t.Helper()
	ctx := namespaces.WithNamespace(t.Context(), e.cfg.Namespace)
	err := e.client.SnapshotService(snapshotter).Walk(ctx, func(_ context.Context, i snapshots.Info) error {
		names = append(names, i.Name)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// TestUnpackBeside: layers are unpacked before the image has a name, stay over a
// garbage collection, and go with an import that is given up.
func TestUnpackBeside(t *testing.T) {
	e := connect(t, supervise(t))
	before := len(snapshotNames(t, e))
	var stored []ocispec.Descriptor
	for _, data := range [][]byte{layer(t, "a", "1"), layer(t, "b", "2")} {
		d, err := e.Blob(t.Context(), ocispec.MediaTypeImageLayer, writer(data))
		if err != nil {
			t.Fatal(err)
		}
		stored = append(stored, d)
		e.Unpack(t.Context(), stored)
	}
	if n := len(snapshotNames(t, e)); n != before+2 {
		t.Fatalf("%d unpacked layers, want two more than %d", n, before)
	}
	collect(t, e)
	if n := len(snapshotNames(t, e)); n != before+2 {
		t.Errorf("%d unpacked layers after a collection, want two more than %d", n, before)
	}
	if err := e.Forget(t.Context(), stored); err != nil {
		t.Fatal(err)
	}
	await(t, "the removal of the unpacked layers", func() bool { collect(t, e); return len(snapshotNames(t, e)) == before })
	e.Unpack(t.Context(), stored) // which are gone: nothing happens
}

// TestOpenBlobAndExport: what was stored can be read, and saved.
func TestOpenBlobAndExport(t *testing.T) {
	e := connect(t, supervise(t))
	data := layer(t, "a", "1")
	put(t, e, "one", nil, data)
	r, err := e.OpenBlob(t.Context(), digest.FromBytes(data))
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(r)
	if r.Close(); err != nil || !bytes.Equal(got, data) {
		t.Errorf("read %d bytes of %d: %v", len(got), len(data), err)
	}
	if _, err := e.OpenBlob(t.Context(), digest.FromString("absent")); err == nil {
		t.Error("an absent blob was opened")
	}
	img, err := e.GetImage(t.Context(), "one")
	if err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	if err := e.Export(t.Context(), []images.Stored{img}, &archive); err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(archive.Bytes(), data[:512]) || !bytes.Contains(archive.Bytes(), []byte("manifest.json")) {
		t.Error("the archive lacks the layer or its list")
	}
}
