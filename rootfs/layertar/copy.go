package layertar

import (
	"archive/tar"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// Copy says which files of one tree are put where in another one.
type Copy struct {
	From     *os.Root
	Sources  []string // names or patterns (path.Match); a leading slash is the tree's own
	Into     *os.Root // the image so far
	Dest     string   // absolute; with a slash at the end it is a directory
	UID, GID int      // owner of all that is copied
	Mode     int64    // of all that is copied; below 0: as it is
}

// item is one source and its name in the image.
type item struct {
	from, to string
	there    bool // the image has a directory of that name, which stays as it is
}

// Write writes a layer with the files.
func (c Copy) Write(w io.Writer) error { return c.write(w, func(*tar.Header) {}) }

// Digest tells copies apart by all but the times of the files.
func (c Copy) Digest() (digest.Digest, error) {
	sum := sha256.New()
	err := c.write(sum, func(h *tar.Header) { h.ModTime = time.Unix(0, 0) })
	return digest.NewDigest(digest.SHA256, sum), err
}

func (c Copy) write(out io.Writer, adapt func(*tar.Header)) error {
	items, err := c.plan()
	if err != nil {
		return err
	}
	w := writer{from: c.From, tar: tar.NewWriter(out), links: map[inode]string{}, adapt: func(h *tar.Header) {
		h.Uid, h.Gid = c.UID, c.GID
		if c.Mode >= 0 && h.Typeflag != tar.TypeSymlink {
			h.Mode = c.Mode
		}
		adapt(h)
	}}
	for _, i := range items {
		if err := w.tree(i); err != nil {
			return err
		}
	}
	return w.tar.Close()
}

// tree writes a file, or a folder with all that it holds.
func (w *writer) tree(i item) error {
	return fs.WalkDir(w.from.FS(), i.from, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		as := path.Join(i.to, strings.TrimPrefix(strings.TrimPrefix(name, i.from), "/"))
		if i.from == "." {
			as = path.Join(i.to, name)
		}
		if as == "." || name == i.from && i.there {
			return nil
		}
		return w.entry(name, as, info)
	})
}

// plan finds the sources, and the name that each gets.
func (c Copy) plan() ([]item, error) {
	sources, err := c.find()
	if err != nil {
		return nil, err
	}
	dest, isDir, err := resolve(c.Into, c.Dest)
	if err != nil {
		return nil, err
	}
	asDir := isDir || strings.HasSuffix(c.Dest, "/")
	if len(sources) > 1 && !asDir {
		return nil, sbxerr.New(sbxerr.Config, "layertar.copy", "%d sources need a directory: end %q with a slash", len(sources), c.Dest)
	}
	var items []item
	for _, s := range sources {
		info, err := c.From.Lstat(s)
		if err != nil {
			return nil, err
		}
		switch {
		case info.IsDir():
			items = append(items, item{s, dest, isDir})
		case asDir:
			items = append(items, item{from: s, to: path.Join(dest, path.Base(s))})
		default:
			items = append(items, item{from: s, to: dest})
		}
	}
	return items, nil
}

// find returns the names that the sources mean.
func (c Copy) find() ([]string, error) {
	var found []string
	for _, s := range c.Sources {
		name := path.Clean("/" + s)[1:] // a name above the tree is one in it
		if name == "" {
			name = "."
		}
		matches := []string{name}
		if strings.ContainsAny(name, `*?[\`) {
			var err error
			if matches, err = fs.Glob(c.From.FS(), name); err != nil {
				return nil, sbxerr.New(sbxerr.Config, "layertar.copy", "pattern %q: %w", s, err)
			}
		} else if _, err := c.From.Lstat(name); errors.Is(err, fs.ErrNotExist) {
			matches = nil
		} else if err != nil {
			return nil, sbxerr.New(sbxerr.Config, "layertar.copy", "source %q: %w", s, err)
		}
		if len(matches) == 0 {
			return nil, sbxerr.WithRemedy(sbxerr.Config, "layertar.copy", fmt.Errorf("there is no %q", s), "look at the context's files and at its .dockerignore")
		}
		found = append(found, matches...)
	}
	return found, nil
}

// maxLinks is the kernel's bound on links in one path (path_resolution(7)).
const maxLinks = 40

// resolve returns the name, below the root, at which a path of the image leads, and
// whether a directory is there. Links lead on inside the image only.
func resolve(image *os.Root, name string) (resolved string, isDir bool, err error) {
	at, rest, links := ".", strings.Split(name, "/"), 0
	isDir = true
	for len(rest) > 0 {
		part := rest[0]
		rest = rest[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			at = path.Dir(at)
			continue
		}
		next := path.Join(at, part)
		info, err := image.Lstat(next)
		if errors.Is(err, fs.ErrNotExist) {
			return path.Join(append([]string{next}, rest...)...), false, nil
		}
		if err != nil {
			return "", false, sbxerr.New(sbxerr.Config, "layertar.copy", "find %q in the image: %w", name, err)
		}
		isDir = info.IsDir()
		if info.Mode()&fs.ModeSymlink == 0 {
			at = next
			continue
		}
		if links++; links > maxLinks {
			return "", false, sbxerr.New(sbxerr.Config, "layertar.copy", "%q leads through more than %d links", name, maxLinks)
		}
		target, err := image.Readlink(next)
		if err != nil {
			return "", false, err
		}
		if path.IsAbs(target) {
			at = "."
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return at, isDir, nil
}

// Directory writes a layer with one directory, unless the image has it.
func Directory(image *os.Root, name string, w io.Writer) error {
	at, isDir, err := resolve(image, name)
	if err != nil {
		return err
	}
	tw := tar.NewWriter(w)
	if !isDir {
		if err := tw.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: at + "/", Mode: 0o755, Format: tar.FormatPAX}); err != nil {
			return err
		}
	}
	return tw.Close()
}

// Has reports whether the image has a directory of that name.
func Has(image *os.Root, name string) (bool, error) {
	_, isDir, err := resolve(image, name)
	return isDir, err
}
