package escape

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	goruntime "runtime"
	"testing"
)

// archive is a tar that is put together entry by entry.
type archive struct {
	t   testing.TB
	buf *bytes.Buffer
	w   *tar.Writer
}

func newArchive(t testing.TB) *archive {
	buf := &bytes.Buffer{}
	return &archive{t, buf, tar.NewWriter(buf)}
}

func (a *archive) add(h tar.Header, content []byte) *archive {
	a.t.Helper()
	h.Size = int64(len(content))
	must(a.t, a.w.WriteHeader(&h))
	_, err := a.w.Write(content)
	must(a.t, err)
	return a
}

func (a *archive) file(name string, mode int64, content []byte) *archive {
	a.t.Helper()
	return a.add(tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: mode}, content)
}

func (a *archive) dir(name string) *archive {
	a.t.Helper()
	return a.add(tar.Header{Name: name + "/", Typeflag: tar.TypeDir, Mode: 0o755}, nil)
}

func (a *archive) bytes() []byte {
	a.t.Helper()
	must(a.t, a.w.Close())
	return a.buf.Bytes()
}

// rootfs begins an archive that is taken for a root file system.
func rootfs(t testing.TB) *archive { return newArchive(t).dir("bin").dir("etc").dir("usr") }

// object is a JSON document.
type object = map[string]any

// layout is an OCI image layout that tests break in one place.
type layout struct {
	config   object
	layer    []byte
	manifest func(object)     // changes the manifest before it is written
	index    func(object)     // the same of the index
	blobs    func(blobs)      // the same of what is stored
	extra    func(a *archive) // adds entries
}

type blobs map[string][]byte

func (b blobs) put(data []byte) object {
	sum := sha256.Sum256(data)
	digest := hex.EncodeToString(sum[:])
	b[digest] = data
	return object{"digest": "sha256:" + digest, "size": len(data)}
}

func (l layout) bytes(t testing.TB) []byte {
	t.Helper()
	b := blobs{}
	layer := b.put(l.layer)
	layer["mediaType"] = "application/vnd.oci.image.layer.v1.tar"
	if l.config == nil {
		l.config = object{}
	}
	config := b.put(marshal(t, object{
		"architecture": goruntime.GOARCH, "os": "linux", "config": l.config,
		"rootfs": object{"type": "layers", "diff_ids": []any{layer["digest"]}},
	}))
	config["mediaType"] = "application/vnd.oci.image.config.v1+json"
	manifest := object{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": config, "layers": []any{layer}}
	if l.manifest != nil {
		l.manifest(manifest)
	}
	described := b.put(marshal(t, manifest))
	described["mediaType"] = "application/vnd.oci.image.manifest.v1+json"
	index := object{"schemaVersion": 2, "manifests": []any{described}}
	if l.index != nil {
		l.index(index)
	}
	if l.blobs != nil {
		l.blobs(b)
	}
	a := newArchive(t)
	a.file("oci-layout", 0o644, []byte(`{"imageLayoutVersion":"1.0.0"}`))
	a.file("index.json", 0o644, marshal(t, index))
	for digest, data := range b {
		a.file("blobs/sha256/"+digest, 0o644, data)
	}
	if l.extra != nil {
		l.extra(a)
	}
	return a.bytes()
}

func marshal(t testing.TB, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	must(t, err)
	return data
}
