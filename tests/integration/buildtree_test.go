package integration

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/tests/harness"
)

// imageTree is an image as a sandbox would see it, read from what image save writes: a line
// for each entry, by its name.
type imageTree map[string]string

// against says what the tree has and base has not, and the other way around.
func (i imageTree) against(base imageTree) string {
	var out strings.Builder
	all := maps.Clone(base)
	maps.Copy(all, i)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		line, ok := i[name]
		switch {
		case !ok:
			fmt.Fprintf(&out, "%s gone\n", show(name))
		case base[name] != line:
			fmt.Fprintf(&out, "%s %s\n", show(name), line)
		}
	}
	return out.String()
}

func show(name string) string {
	if quoted := fmt.Sprintf("%q", name); strings.Contains(quoted, `\`) {
		return quoted
	}
	return name
}

// treeOf reads an image.
func treeOf(t *testing.T, d *harness.Daemon, name string) imageTree {
	t.Helper()
	file := filepath.Join(t.TempDir(), "saved.tar")
	d.Run(t, "image", "save", "-f", file, name)
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	blobs := map[string][]byte{}
	each(t, data, func(h *tar.Header, content []byte) { blobs[h.Name] = content })
	var manifests []struct{ Layers []string }
	if err := json.Unmarshal(blobs["manifest.json"], &manifests); err != nil || len(manifests) != 1 {
		t.Fatalf("%d manifests: %v", len(manifests), err)
	}
	tree := imageTree{}
	for _, l := range manifests[0].Layers {
		each(t, blobs[l], tree.apply)
	}
	return tree
}

func each(t *testing.T, data []byte, visit func(*tar.Header, []byte)) {
	t.Helper()
	for r := tar.NewReader(bytes.NewReader(data)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		visit(h, content)
	}
}

// apply applies one entry of a layer (image-spec, layer.md).
func (i imageTree) apply(h *tar.Header, content []byte) {
	name := strings.TrimSuffix(h.Name, "/")
	dir, base := path.Split(name)
	switch {
	case base == ".wh..wh..opq":
		i.remove(strings.TrimSuffix(dir, "/"), false)
		return
	case strings.HasPrefix(base, ".wh."):
		i.remove(dir+strings.TrimPrefix(base, ".wh."), true)
		return
	}
	if h.Typeflag != tar.TypeDir {
		i.remove(name, true)
	}
	meta := fmt.Sprintf("%o %d:%d", h.Mode, h.Uid, h.Gid)
	switch h.Typeflag {
	case tar.TypeDir:
		i[name] = "dir " + meta
	case tar.TypeReg:
		text := fmt.Sprintf("%q", content)
		if len(text) > 80 {
			text = fmt.Sprintf("%d bytes", len(content))
		}
		i[name] = "file " + meta + " " + text
	case tar.TypeSymlink:
		i[name] = fmt.Sprintf("link %d:%d -> %s", h.Uid, h.Gid, show(h.Linkname))
	case tar.TypeLink:
		i[name] = "same as " + show(h.Linkname)
	default:
		i[name] = fmt.Sprintf("type %q", h.Typeflag)
	}
}

func (i imageTree) remove(name string, itself bool) {
	for _, have := range slices.Collect(maps.Keys(i)) {
		if itself && have == name || strings.HasPrefix(have, name+"/") {
			delete(i, have)
		}
	}
}
