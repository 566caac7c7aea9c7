// Package bundle reads and writes bundles: images and files in one signed tar, which is
// carried to hosts without a network.
//
// A bundle is a tar of manifest.json, its signature, and the parts in the order of the
// manifest, and it is exactly what Write writes: one bit that differs anywhere is refused.
package bundle

import (
	"archive/tar"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"sync"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// The kinds of parts.
const (
	Image = "image" // what caisson image save writes
	File  = "file"  // such as one with profiles
)

const (
	version       = 1
	manifestName  = "manifest.json"
	signatureName = "manifest.sig"
	maxManifest   = 4 << 20
	maxParts      = 1024
)

// Part is one image or file.
type Part struct {
	Kind   string `json:"kind"`
	Name   string `json:"name"`             // of the image, or of the file in its directory
	Digest string `json:"digest,omitempty"` // of the image where it was saved
	Size   int64  `json:"size"`             // in bytes
	SHA256 string `json:"sha256"`           // in hex
}

// Manifest lists what a bundle holds.
type Manifest struct {
	Version int       `json:"version"`
	Created time.Time `json:"created"`
	Parts   []Part    `json:"parts"`
}

// Describe returns p with the size and digest of content.
func Describe(p Part, content io.Reader) (Part, error) {
	sum := sha256.New()
	n, err := io.Copy(sum, content)
	p.Size, p.SHA256 = n, hex.EncodeToString(sum.Sum(nil))
	return p, err
}

// Write writes a bundle. open returns the content of part i; Write closes it. A nil key
// leaves the bundle unsigned.
func Write(w io.Writer, parts []Part, key ed25519.PrivateKey, open func(i int) (io.ReadCloser, error)) error {
	m := Manifest{Version: version, Created: time.Now().UTC().Truncate(time.Second), Parts: parts}
	if err := m.check(); err != nil {
		return err
	}
	data, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return sbxerr.Wrap(sbxerr.Internal, "bundle.write", err)
	}
	signature := []byte{}
	if key != nil {
		signature = ed25519.Sign(key, data)
	}
	return write(w, data, signature, parts, open)
}

// write is the one form of a bundle.
func write(w io.Writer, manifest, signature []byte, parts []Part, open func(i int) (io.ReadCloser, error)) error {
	t := tar.NewWriter(w)
	for _, document := range []struct {
		name string
		data []byte
	}{{manifestName, manifest}, {signatureName, signature}} {
		if err := t.WriteHeader(header(document.name, int64(len(document.data)))); err != nil {
			return err
		}
		if _, err := t.Write(document.data); err != nil {
			return err
		}
	}
	for i, p := range parts {
		if err := writePart(t, i, p, open); err != nil {
			return fmt.Errorf("%s %q: %w", p.Kind, p.Name, err)
		}
	}
	return t.Close()
}

func writePart(t *tar.Writer, i int, p Part, open func(i int) (io.ReadCloser, error)) error {
	content, err := open(i)
	if err != nil {
		return err
	}
	if err := t.WriteHeader(header(partName(i), p.Size)); err != nil {
		return errors.Join(err, content.Close())
	}
	sum := sha256.New()
	_, err = io.CopyN(io.MultiWriter(t, sum), content, p.Size)
	if err = errors.Join(err, content.Close()); err != nil {
		return err
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != p.SHA256 {
		return refused("its digest is %s, the manifest says %s", got, p.SHA256)
	}
	return nil
}

func header(name string, size int64) *tar.Header {
	return &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o644, Format: tar.FormatPAX}
}

func partName(i int) string { return fmt.Sprintf("parts/%d", i) }

func refused(format string, args ...any) error {
	return sbxerr.New(sbxerr.Bundle, "bundle.read", format, args...)
}

// fileForm keeps names of files inside their directory. It is compiled when it is needed:
// that takes 0.2 ms, which each start of the program would pay.
var fileForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`) })

func (m Manifest) check() error {
	if m.Version != version {
		return refused("its version is %d: this program reads %d", m.Version, version)
	}
	if n := len(m.Parts); n == 0 || n > maxParts {
		return refused("it has %d parts: 1 to %d are possible", n, maxParts)
	}
	seen := map[[2]string]bool{}
	for _, p := range m.Parts {
		if p.Kind != Image && p.Kind != File || p.Size < 0 || p.Name == "" {
			return refused("the part %q is of kind %q, with %d bytes", sbxerr.Clip(p.Name), sbxerr.Clip(p.Kind), p.Size)
		}
		if p.Kind == File && !fileForm().MatchString(p.Name) {
			return refused("the file name %q: give letters, digits and . _ -", sbxerr.Clip(p.Name))
		}
		if id := [2]string{p.Kind, p.Name}; seen[id] {
			return refused("%s %q is there twice", p.Kind, sbxerr.Clip(p.Name))
		} else {
			seen[id] = true
		}
	}
	return nil
}
