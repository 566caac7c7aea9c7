package filter

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/image"
	"github.com/caisson-run/caisson/rootfs/image/internal/flow"
)

const opArchive = "image.archive"

// The documents that say what an archive is.
const (
	layoutFile = "oci-layout" // https://github.com/opencontainers/image-spec/blob/v1.1.1/image-layout.md
	indexFile  = "index.json"
	dockerFile = "manifest.json" // what docker save writes
)

// maxFiles bounds what is remembered of an archive's own table of contents.
// A layout has a few files per layer.
const maxFiles = 16384

// archive is a spooled tar and where its files are. It holds no layer in
// memory and opens nothing outside of the spool.
type archive struct {
	f       *os.File
	limits  Limits
	files   map[string]section
	links   map[string]string // symlinks: old versions of docker save share layers by them
	twice   map[string]bool
	crowded bool // there is more than files and links hold
	system  string
}

type section struct{ off, size int64 }

// systemDirs are at the top of a root file system and never of an image
// archive.
var systemDirs = []string{"bin", "etc", "lib", "sbin", "usr"}

// readArchive reads the table of contents of f, a tar.
func readArchive(f *os.File, l Limits) (*archive, error) {
	a := &archive{f: f, limits: l, files: map[string]section{}, links: map[string]string{}, twice: map[string]bool{}}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, sbxerr.Wrap(sbxerr.StateDir, opArchive, err)
	}
	tr := tar.NewReader(f)
	var end int64 // of the last file's content
	for n := int64(0); ; n++ {
		hdr, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return a, a.checkEnd(end)
		}
		if err != nil && (hdr == nil || !errors.Is(err, tar.ErrInsecurePath)) {
			return nil, sbxerr.New(sbxerr.ImageFormat, opArchive, "read the archive after entry %d: %w", n, err)
		}
		if n >= l.Entries {
			return nil, sbxerr.New(sbxerr.ImageTooBig, opArchive, "the archive has more than %d entries", l.Entries)
		}
		off, err := f.Seek(0, io.SeekCurrent) // archive/tar reads no further than it must
		if err != nil {
			return nil, sbxerr.Wrap(sbxerr.StateDir, opArchive, err)
		}
		if end = off; hdr.Typeflag == tar.TypeReg && !sparse(hdr) {
			end += (hdr.Size + 511) / 512 * 512
		}
		a.add(hdr, off)
	}
}

// add remembers one entry of the table of contents.
func (a *archive) add(hdr *tar.Header, off int64) {
	name := trimName(hdr.Name, hdr.Typeflag == tar.TypeDir)
	if first, _, _ := strings.Cut(name, "/"); slices.Contains(systemDirs, first) {
		a.system = first
	}
	document := slices.Contains([]string{layoutFile, indexFile, dockerFile}, name)
	if !document && len(a.files)+len(a.links) >= maxFiles {
		a.crowded = true
		return
	}
	_, isFile := a.files[name]
	_, isLink := a.links[name]
	switch {
	case hdr.Typeflag == tar.TypeDir: // may be there any number of times
	case isFile || isLink:
		a.twice[name] = true
	case hdr.Typeflag == tar.TypeReg && !sparse(hdr):
		a.files[strings.Clone(name)] = section{off, hdr.Size}
	case hdr.Typeflag == tar.TypeSymlink:
		a.links[strings.Clone(name)] = strings.Clone(hdr.Linkname)
	}
}

// sparse reports whether hdr's content is not in one piece in the archive.
func sparse(hdr *tar.Header) bool {
	if hdr.Typeflag == tar.TypeGNUSparse {
		return true
	}
	for key := range hdr.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return true
		}
	}
	return false
}

// checkEnd makes sure that the archive has an end mark, which is how one is
// told that was cut off between two entries, and nothing after it.
func (a *archive) checkEnd(end int64) error {
	pos, err := a.f.Seek(0, io.SeekCurrent)
	if err != nil {
		return sbxerr.Wrap(sbxerr.StateDir, opArchive, err)
	}
	block := make([]byte, 512)
	if pos < end+512 {
		return sbxerr.New(sbxerr.ImageFormat, opArchive, "the archive is cut off: it has no end mark")
	}
	if _, err := a.f.ReadAt(block, pos-512); err != nil {
		return sbxerr.Wrap(sbxerr.StateDir, opArchive, err)
	}
	if !bytes.Equal(block, make([]byte, 512)) {
		return sbxerr.New(sbxerr.ImageFormat, opArchive, "the archive is cut off: it has no end mark")
	}
	return flow.Coded(sbxerr.ImageFormat, opArchive, zeros(a.f))
}

// kind tells what the archive is by the documents at its top.
func (a *archive) kind() (string, error) {
	_, layout := a.files[layoutFile]
	_, docker := a.files[dockerFile]
	switch {
	case !layout && !docker:
		return image.KindRootFS, nil
	case a.system != "":
		return "", sbxerr.New(sbxerr.ImageFormat, opArchive, "the archive is ambiguous: it holds the documents of an image and the directory %q of a root file system", a.system)
	case a.crowded:
		return "", sbxerr.New(sbxerr.ImageTooBig, opArchive, "the archive holds more than %d files beside its layers", maxFiles)
	case layout:
		return image.KindOCILayout, nil
	}
	return image.KindDockerArchive, nil
}

// whole returns all of the archive's bytes.
func (a *archive) whole() (section, error) {
	fi, err := a.f.Stat()
	if err != nil {
		return section{}, sbxerr.Wrap(sbxerr.StateDir, opArchive, err)
	}
	return section{0, fi.Size()}, nil
}

// find returns where the file called name is. A symlink is followed once, and
// only to a file of the archive.
func (a *archive) find(name string) (section, error) {
	to := name
	if target, ok := a.links[name]; ok {
		if path.IsAbs(target) {
			return section{}, sbxerr.New(sbxerr.ImageFormat, opArchive, "%s is a symlink to %s, outside of the archive", flow.Quote(name), flow.Quote(target))
		}
		to = path.Join(path.Dir(name), target)
	}
	if a.twice[name] || a.twice[to] {
		return section{}, sbxerr.New(sbxerr.ImageFormat, opArchive, "the archive holds %s twice", flow.Quote(to))
	}
	s, ok := a.files[to]
	if !ok {
		return section{}, sbxerr.New(sbxerr.ImageFormat, opArchive, "the archive holds no file %s", flow.Quote(name))
	}
	return s, nil
}

// open reads a section of the spool from its beginning.
func (a *archive) open(s section) io.Reader {
	return flow.CodedReader{R: io.NewSectionReader(a.f, s.off, s.size), Code: sbxerr.StateDir, Op: opArchive}
}

// opener returns how a section is opened.
func (a *archive) opener(s section) opener {
	return func(context.Context) (io.ReadCloser, error) { return io.NopCloser(a.open(s)), nil }
}

// read returns the content of a small section.
func (a *archive) read(s section) ([]byte, error) {
	if s.size > a.limits.DocumentBytes {
		return nil, sbxerr.New(sbxerr.ImageTooBig, opArchive, "the document has %d bytes: at most %d", s.size, a.limits.DocumentBytes)
	}
	return io.ReadAll(a.open(s))
}

// document decodes the JSON file called name into v and returns its bytes.
func (a *archive) document(name string, v any) ([]byte, error) {
	s, err := a.find(name)
	if err != nil {
		return nil, err
	}
	data, err := a.read(s)
	if err == nil {
		err = decodeJSON(data, v)
	}
	if err != nil {
		return nil, flow.Coded(sbxerr.ImageFormat, opArchive, fmt.Errorf("document %s: %w", flow.Quote(name), err))
	}
	return data, nil
}
