package bundle

import (
	"archive/tar"
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
)

// Bundle is one that was verified.
type Bundle struct {
	Manifest Manifest
	Signed   bool // by the key that was given
	file     io.ReaderAt
	at       []int64 // where each part begins
}

// Read verifies all of a bundle. With a key it must be signed by that; a nil key takes
// every signature for none.
func Read(f io.ReaderAt, size int64, key ed25519.PublicKey) (*Bundle, error) {
	b := &Bundle{file: f}
	manifest, signature, err := b.find(size)
	if err != nil {
		return nil, err
	}
	if key != nil {
		if !ed25519.Verify(key, manifest, signature) {
			return nil, refused("it is not signed by this key")
		}
		b.Signed = true
	}
	decoder := json.NewDecoder(bytes.NewReader(manifest))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&b.Manifest); err != nil {
		return nil, refused("read the manifest: %w", err)
	}
	if err := b.Manifest.check(); err != nil {
		return nil, err
	}
	if len(b.at) != len(b.Manifest.Parts) {
		return nil, refused("it holds %d parts, and its manifest lists %d", len(b.at), len(b.Manifest.Parts))
	}
	return b, b.same(size, manifest, signature)
}

// find reads the documents, and where the parts are.
func (b *Bundle) find(size int64) (manifest, signature []byte, err error) {
	in := io.NewSectionReader(b.file, 0, size)
	t := tar.NewReader(in)
	for n := 0; ; n++ {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, nil, refused("read its entry %d: %w", n, err)
		}
		switch {
		case n == 0 && h.Name == manifestName && h.Size <= maxManifest:
			manifest, err = io.ReadAll(t)
		case n == 1 && h.Name == signatureName && h.Size <= ed25519.SignatureSize:
			signature, err = io.ReadAll(t)
		case n > 1 && n < maxParts+2 && h.Name == partName(n-2):
			var at int64
			at, err = in.Seek(0, io.SeekCurrent) // archive/tar reads no further than the header
			b.at = append(b.at, at)
		default:
			return nil, nil, refused("its entry %d is %q: it is no bundle", n, h.Name)
		}
		if err != nil {
			return nil, nil, refused("read %s: %w", h.Name, err)
		}
	}
	if manifest == nil || signature == nil {
		return nil, nil, refused("it has no manifest or no place for a signature")
	}
	return manifest, signature, nil
}

// same compares the file with what Write makes of its content.
func (b *Bundle) same(size int64, manifest, signature []byte) error {
	is, want := sha256.New(), sha256.New()
	if _, err := io.Copy(is, io.NewSectionReader(b.file, 0, size)); err != nil {
		return refused("read it: %w", err)
	}
	err := write(want, manifest, signature, b.Manifest.Parts, func(i int) (io.ReadCloser, error) { return io.NopCloser(b.Open(i)), nil })
	if err != nil {
		return refused("%w", err)
	}
	if !bytes.Equal(is.Sum(nil), want.Sum(nil)) {
		return refused("it holds bytes that are not part of it")
	}
	return nil
}

// Open returns the content of part i.
func (b *Bundle) Open(i int) io.Reader {
	return io.NewSectionReader(b.file, b.at[i], b.Manifest.Parts[i].Size)
}
