package ctrd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/containerd/containerd/v2/pkg/namespaces"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime/images"
)

// TestLostFiles: layers from which files were deleted are unpacked again, by the Engine
// that used them before and by one that did not.
func TestLostFiles(t *testing.T) {
	s := supervise(t)
	e := connect(t, s)
	put(t, e, "three", nil, layer(t, "low", "1"), layer(t, "bin/middle", "2"), layer(t, "high", "3"))
	img, err := e.GetImage(t.Context(), "three")
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"high", "bin/middle", "low"} // the topmost first
	defer collecting(t, e)()
	for _, lost := range [][]string{{"low"}, {"bin/middle"}, {"high"}, {"low", "high"}, names} {
		for _, known := range []bool{true, false} {
			t.Run(fmt.Sprintf("%q, known %v", lost, known), func(t *testing.T) {
				dirs := layersOf(t, e, img, names)
				for i, name := range names {
					if slices.Contains(lost, name) {
						if err := os.Remove(filepath.Join(dirs[i], name)); err != nil {
							t.Fatal(err)
						}
					}
				}
				if !known {
					clear(e.views) // as after a restart
				}
				layersOf(t, e, img, names)
			})
		}
	}
	dirs := layersOf(t, e, img, names)
	path := filepath.Join(s.cfg.serverRoot(), "io.containerd.content.v1.content/blobs/sha256", img.Layers[0][len("sha256:"):])
	if err := errors.Join(os.Remove(filepath.Join(dirs[2], "low")), os.WriteFile(path, []byte("garbled"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Layers(t.Context(), img); !errors.Is(err, sbxerr.ImageDamaged) {
		t.Errorf("a lost file of a layer whose stored copy is damaged: %v", err)
	}
}

// collecting has the server collect garbage again and again, as it does after removals, until
// stop is called.
func collecting(t *testing.T, e *Engine) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(namespaces.WithNamespace(t.Context(), e.cfg.Namespace))
	done := make(chan error, 1)
	go func() {
		var err error
		for err == nil && ctx.Err() == nil {
			err = e.collect(ctx)
		}
		done <- err
	}()
	return func() {
		cancel()
		if err := <-done; err != nil && ctx.Err() == nil {
			t.Error(err)
		}
	}
}

// layersOf returns the layers of an image, which hold the files.
func layersOf(t *testing.T, e *Engine, img images.Stored, names []string) []string {
	t.Helper()
	dirs, err := e.Layers(t.Context(), img)
	if err != nil || len(dirs) != len(names) {
		t.Fatalf("layers: %q, %v", dirs, err)
	}
	for i, name := range names {
		if _, err := os.Stat(filepath.Join(dirs[i], name)); err != nil {
			t.Error(err)
		}
	}
	return dirs
}

// TestKeptLayers: a change that takes nothing away leaves the layer to its sandboxes.
func TestKeptLayers(t *testing.T) {
	e := connect(t, supervise(t))
	put(t, e, "one", nil, layer(t, "a", "1"))
	img, err := e.GetImage(t.Context(), "one")
	if err != nil {
		t.Fatal(err)
	}
	dir := layersOf(t, e, img, []string{"a"})[0]
	if err := os.WriteFile(filepath.Join(dir, "added"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if again := layersOf(t, e, img, []string{"a"})[0]; again != dir {
		t.Errorf("the layer moved from %q to %q", dir, again)
	}
}

func TestCounts(t *testing.T) {
	counts := []layerCount{{12, 340}, {0, 0}}
	got, err := parseCounts(formatCounts(counts), 2)
	if err != nil || !slices.Equal(got, counts) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, value := range []string{"", "1/2", "1/2,3", "1/2,3/4,5/6", "a/b,c/d"} {
		if got, err := parseCounts(value, 2); err == nil {
			t.Errorf("%q gave %+v", value, got)
		}
	}
}

// BenchmarkUnchanged is what each creation spends on an image with the most stamps.
func BenchmarkUnchanged(b *testing.B) {
	var dirs []string
	for range 20 {
		dir := b.TempDir()
		for i := range 10 {
			if err := os.Mkdir(filepath.Join(dir, fmt.Sprint(i)), 0o755); err != nil {
				b.Fatal(err)
			}
		}
		dirs = append(dirs, dir)
	}
	_, stamps, lost := countLayers(dirs)
	if lost != nil || len(stamps) != len(dirs)+maxStamps {
		b.Fatal(len(stamps), lost)
	}
	for b.Loop() {
		if !unchanged(stamps) {
			b.Fatal("they changed")
		}
	}
}
