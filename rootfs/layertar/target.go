package layertar

import (
	"archive/tar"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// Owner is the user and group of files.
type Owner struct{ UID, GID int }

// item is an entry of the layer that is planned.
type item struct {
	header tar.Header
	mode   fs.FileMode // type alone
	from   content     // of a file
	linkTo *item       // of a hard link in an archive
	dead   bool        // another item took its name
}

// target is the image with what the planned layer adds.
type target struct {
	image lookup
	made  map[string]*item
	items []*item // in the order in which they are written
}

func newTarget(image *os.Root) *target {
	return &target{image: lookupIn(image), made: map[string]*item{}}
}

// lookup is the lookup of the image with what the layer adds.
func (t *target) lookup(name string) (node, error) {
	i, ok := t.made[name]
	if !ok {
		return t.image(name)
	}
	n := node{mode: i.mode}
	if n.isLink() {
		n.link = i.header.Linkname
	}
	return n, nil
}

// put adds an entry, or changes that of the same name. A directory keeps its place, which is
// before all that it holds.
func (t *target) put(i *item) {
	name := strings.TrimSuffix(i.header.Name, "/")
	if old := t.made[name]; old != nil {
		if old.mode.IsDir() && i.mode.IsDir() {
			old.header = i.header
			return
		}
		old.dead = true
	}
	t.made[name] = i
	t.items = append(t.items, i)
}

// directory adds a directory.
func (t *target) directory(h tar.Header) {
	h.Typeflag, h.Name = tar.TypeDir, strings.TrimSuffix(h.Name, "/")+"/"
	t.put(&item{header: h, mode: fs.ModeDir})
}

// makeDirs makes the directory of a name that follow returned, and its parents, as far as
// they are missing.
func (t *target) makeDirs(name string, mode int64, owner Owner) error {
	if name == "." {
		return nil
	}
	n, err := t.lookup(name)
	switch {
	case err != nil:
		return err
	case n.isDir():
		return nil
	case !n.absent:
		return refuse("%q is no directory, and something is to be put into it", "/"+name)
	}
	if err := t.makeDirs(path.Dir(name), mode, owner); err != nil {
		return err
	}
	t.directory(tar.Header{Name: name, Mode: mode, Uid: owner.UID, Gid: owner.GID})
	return nil
}

// makePath is makeDirs for any path of the image. It returns the directory's name.
func (t *target) makePath(name string, mode int64, owner Owner) (string, error) {
	at, _, err := follow(t.lookup, name)
	if err != nil {
		return "", err
	}
	return at, t.makeDirs(at, mode, owner)
}

// mayBeDir refuses a directory in the place of something else.
func mayBeDir(name string, n node) error {
	if n.absent || n.isDir() {
		return nil
	}
	return sbxerr.WithRemedy(sbxerr.Config, "layertar.copy", fmt.Errorf("%q of the image is a file, and a directory of the source would replace it", "/"+name),
		"choose another destination, or remove the file with RUN before")
}

// mayBeFile refuses a file or a link in the place of a directory.
func mayBeFile(name string, n node) error {
	if !n.isDir() {
		return nil
	}
	return sbxerr.WithRemedy(sbxerr.Config, "layertar.copy", fmt.Errorf("%q of the image is a directory, and a file or link of the source would replace it with all that it holds", "/"+name),
		"choose another destination, or remove the directory with RUN before")
}

// Directory plans a layer with one directory and the parents that it lacks, unless the
// image has it.
func Directory(image *os.Root, name string, owner Owner) (Layer, error) {
	t := newTarget(image)
	if _, err := t.makePath(name, 0o755, owner); err != nil {
		return Layer{}, err
	}
	return t.layer()
}

// layer ends the plan. A name that marks a whiteout would remove something of the image.
func (t *target) layer() (Layer, error) {
	for _, i := range t.items {
		if strings.Contains("/"+i.header.Name, "/"+whiteoutPrefix) {
			return Layer{}, refuse("%q has a name that means the removal of a file in a layer: rename it", "/"+i.header.Name)
		}
	}
	return Layer{items: t.items}, nil
}
