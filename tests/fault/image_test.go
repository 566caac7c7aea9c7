package fault

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/tests/harness"
)

// store returns the directories of containerd for content and for snapshots.
func store(d *harness.Daemon) (blobs, snapshots string) {
	root := filepath.Join(d.Root, "containerd")
	return filepath.Join(root, "io.containerd.content.v1.content", "blobs", "sha256"),
		filepath.Join(root, "io.containerd.snapshotter.v1.overlayfs", "snapshots")
}

// folder is a root file system to import, of one file beside what a shell needs.
func folder(t *testing.T, mark string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "mark"), []byte(mark), 0o644); err != nil {
		t.Fatal(err)
	}
	shell, err := os.ReadFile("/bin/busybox")
	if err == nil {
		err = os.Mkdir(filepath.Join(dir, "bin"), 0o755)
	}
	for _, name := range []string{"sh", "cat", "true"} {
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "bin", name), shell, 0o755)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

type storedImage struct{ Name, Digest, Damaged string }

func imageNamed(t *testing.T, d *harness.Daemon, name string) storedImage {
	t.Helper()
	var list []storedImage
	d.Run(t, "image", "ls", "-o", "json").JSON(t, &list)
	for _, i := range list {
		if i.Name == name {
			return i
		}
	}
	t.Fatalf("no image %q in %+v", name, list)
	return storedImage{}
}

// A damaged image keeps no daemon from starting and disturbs no other. It is named, can
// be imported again and removed; the embedded one is made again.
func TestDamagedImages(t *testing.T) {
	damages := map[string]func(t *testing.T, d *harness.Daemon, digest string){
		"manifest gone": func(t *testing.T, d *harness.Daemon, digest string) {
			blobs, _ := store(d)
			if err := os.Remove(filepath.Join(blobs, digest)); err != nil {
				t.Error(err)
			}
		},
		"manifest garbled": func(t *testing.T, d *harness.Daemon, digest string) {
			blobs, _ := store(d)
			if err := os.WriteFile(filepath.Join(blobs, digest), []byte("{garbled"), 0o644); err != nil {
				t.Error(err)
			}
		},
		"content gone": func(t *testing.T, d *harness.Daemon, _ string) {
			blobs, snapshots := store(d)
			emptyDir(t, blobs)
			emptyDir(t, snapshots)
		},
		"unpacked layers gone": func(t *testing.T, d *harness.Daemon, _ string) {
			_, snapshots := store(d)
			emptyDir(t, snapshots)
		},
	}
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			d := harness.Start(t)
			dir := folder(t, "whole")
			d.Run(t, "image", "import", "--name", "tools", dir)
			d.Run(t, "run", "--image", "tools", "--", "true")
			tools, base := imageNamed(t, d, "tools"), imageNamed(t, d, "base")
			d.Kill(t)
			for _, i := range []storedImage{tools, base} {
				damage(t, d, strings.TrimPrefix(i.Digest, "sha256:"))
			}
			d.Launch(t)
			d.Run(t, "run", "--", "true")
			if i := imageNamed(t, d, "base"); i.Damaged != "" {
				t.Errorf("base is %+v", i)
			}
			if name != "unpacked layers gone" { // which are unpacked again
				d.Refused(t, "SBX-221", "run", "--json", "--image", "tools", "--", "true")
				if imageNamed(t, d, "tools").Damaged == "" {
					t.Error("the image is not listed as damaged")
				}
				if r := d.Try("doctor"); !strings.Contains(r.Stdout, "tools: ") {
					t.Errorf("doctor does not name it:\n%s", r.Stdout)
				}
				d.Run(t, "image", "import", "--name", "tools", dir)
			}
			if r := d.Run(t, "run", "--image", "tools", "--", "cat", "/mark"); r.Stdout != "whole" {
				t.Errorf("printed %q", r.Stdout)
			}
			d.Kill(t)
			damage(t, d, strings.TrimPrefix(tools.Digest, "sha256:"))
			d.Launch(t)
			d.Run(t, "image", "rm", "tools")
			d.Run(t, "run", "--", "true")
		})
	}
}

func emptyDir(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // a collection may have come first
		t.Fatal(err)
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
}

func emptyLayers(t *testing.T, d *harness.Daemon) {
	t.Helper()
	_, snapshots := store(d)
	layers, err := filepath.Glob(filepath.Join(snapshots, "*", "fs"))
	if err != nil || len(layers) == 0 {
		t.Fatal(layers, err)
	}
	for _, dir := range layers {
		emptyDir(t, dir)
	}
}

// The next daemon knows the layers of a sandbox out of a pool, too.
func TestLostLayersOfAReadySandbox(t *testing.T) {
	d := harness.StartWith(t, "pools: [{size: 1}]\n")
	await(t, "ready sandbox", func() bool { return poolReady(t, d) == 1 })
	d.Run(t, "create", "--name", "box")
	d.Kill(t)
	emptyLayers(t, d)
	d.Launch(t)
	if f := d.Try("exec", "--json", "box", "--", "true"); !strings.Contains(f.Stdout+f.Stderr, "files of the sandbox's image") {
		t.Errorf("a command hears %s%s", f.Stdout, f.Stderr)
	}
}

// A live sandbox whose image's files are gone is ended, and its owner is told why. What
// containerd cannot use any more is kept beside, and the daemon goes on with base.
func TestLostLayers(t *testing.T) {
	garble := func(t *testing.T, path string) {
		if err := os.WriteFile(path, []byte(strings.Repeat("garbled ", 32<<10)), 0o600); err != nil {
			t.Error(err)
		}
	}
	for name, tt := range map[string]struct {
		damage         func(t *testing.T, d *harness.Daemon)
		lives, isAside bool
	}{
		"nothing": {func(*testing.T, *harness.Daemon) {}, true, false},
		"snapshots gone": {func(t *testing.T, d *harness.Daemon) {
			_, snapshots := store(d)
			emptyDir(t, snapshots)
		}, false, false},
		"layers emptied":  {emptyLayers, false, false},
		"everything gone": {func(t *testing.T, d *harness.Daemon) { emptyDir(t, filepath.Join(d.Root, "containerd")) }, false, false},
		"database garbled": {func(t *testing.T, d *harness.Daemon) {
			garble(t, filepath.Join(d.Root, "containerd", "io.containerd.metadata.v1.bolt", "meta.db"))
		}, true, true},
		"pages garbled": {func(t *testing.T, d *harness.Daemon) {
			path := filepath.Join(d.Root, "containerd", "io.containerd.metadata.v1.bolt", "meta.db")
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for i := 8 << 10; i < len(data); i++ {
				data[i] = 'x'
			}
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Error(err)
			}
		}, true, true},
		"database cut short": {func(t *testing.T, d *harness.Daemon) { // as by a kill while it is made
			if err := os.Truncate(filepath.Join(d.Root, "containerd", "io.containerd.metadata.v1.bolt", "meta.db"), 4096); err != nil {
				t.Error(err)
			}
		}, true, true},
		"database gone": {func(t *testing.T, d *harness.Daemon) {
			if err := os.Remove(filepath.Join(d.Root, "containerd", "io.containerd.snapshotter.v1.overlayfs", "metadata.db")); err != nil {
				t.Error(err)
			}
		}, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			d := harness.Start(t)
			d.Run(t, "create", "--name", "box")
			job := strings.TrimSpace(d.Run(t, "exec", "-d", "box", "--", "sleep", "1000").Stdout)
			d.Kill(t)
			tt.damage(t, d)
			d.Launch(t)
			d.Run(t, "run", "--", "true")
			aside, err := filepath.Glob(filepath.Join(d.Root, "containerd.broken-*"))
			if err != nil || len(aside) > 0 != tt.isAside {
				t.Errorf("set aside %q, %v\n%s", aside, err, d.Log())
			}
			if r := d.Try("doctor"); tt.isAside && !strings.Contains(r.Stdout, aside[0]) {
				t.Errorf("doctor does not name it:\n%s", r.Stdout)
			}
			if tt.lives {
				return
			}
			f := d.Try("exec", "--json", "box", "--", "true")
			if !strings.Contains(f.Stdout+f.Stderr, "files of the sandbox's image") {
				t.Fatalf("a command hears %s%s", f.Stdout, f.Stderr)
			}
			if r := d.Try("attach", "--json", "box", job); !strings.Contains(r.Stdout+r.Stderr, "files of the sandbox's image") {
				t.Errorf("who waits for a command hears %s%s", r.Stdout, r.Stderr)
			}
			d.Run(t, "rm", "--force", "box")
		})
	}
}

// TestEmptiedLayers: a daemon that has used an image notices that files of its unpacked
// layers were deleted. It unpacks them again before it makes a sandbox of them.
func TestEmptiedLayers(t *testing.T) {
	d := harness.Start(t)
	dir := folder(t, "whole")
	d.Run(t, "image", "import", "--name", "tools", dir)
	blobs, snapshots := store(d)
	for _, below := range []string{"", "bin"} {
		for _, image := range []string{"base", "tools"} {
			d.Run(t, "run", "--image", image, "--", "true")
			layers, err := filepath.Glob(filepath.Join(snapshots, "*", "fs", below))
			if err != nil || len(layers) < 2 {
				t.Fatal(layers, err)
			}
			for _, layer := range layers {
				emptyDir(t, layer)
			}
			d.Run(t, "run", "--image", image, "--", "true")
		}
	}
	d.Run(t, "run", "--image", "tools", "--", "true")
	layers, err := filepath.Glob(filepath.Join(snapshots, "*", "fs"))
	if err != nil {
		t.Fatal(err)
	}
	for _, layer := range layers {
		emptyDir(t, layer)
	}
	emptyDir(t, blobs)
	d.Run(t, "run", "--", "true") // base is made again
	d.Refused(t, "SBX-221", "run", "--json", "--image", "tools", "--", "true")
	d.Run(t, "image", "import", "--name", "tools", dir)
	if r := d.Run(t, "run", "--image", "tools", "--", "cat", "/mark"); r.Stdout != "whole" {
		t.Errorf("printed %q", r.Stdout)
	}
}

// A save notices a bit that has changed in a layer, which an import then stores again.
func TestSaveOfADamagedImage(t *testing.T) {
	d := harness.Start(t)
	dir := folder(t, "whole")
	saved := filepath.Join(t.TempDir(), "saved.tar")
	d.Run(t, "image", "import", "--name", "tools", dir)
	d.Run(t, "image", "save", "-f", saved, "tools")
	var detail struct{ Layers []string }
	d.Run(t, "image", "inspect", "tools").JSONIn(t, "image", &detail)
	blobs, _ := store(d)
	file := filepath.Join(blobs, strings.TrimPrefix(detail.Layers[0], "sha256:"))
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 1
	if err := os.WriteFile(file, data, 0o644); err != nil {
		t.Fatal(err)
	}
	if r := d.Try("image", "save", "-f", saved, "tools"); r.Code != 125 || !strings.Contains(r.Stderr, "SBX-221") {
		t.Errorf("a changed bit: %+v", r)
	}
	d.Run(t, "image", "import", "--name", "tools", dir)
	d.Run(t, "image", "save", "-f", saved, "tools")
}

// Imports that are killed while they are unpacked leave no blob and no layer.
func TestKilledImports(t *testing.T) {
	d := harness.Start(t)
	d.Run(t, "run", "--", "true")
	blobs, snapshots := store(d)
	count := func() (n int) {
		for _, dir := range []string{blobs, snapshots, filepath.Join(blobs, "..", "..", "ingest")} {
			entries, err := os.ReadDir(dir)
			if err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
			n += len(entries)
		}
		return n
	}
	dir, before := folder(t, "many"), count()
	for i := range 6000 {
		if err := os.WriteFile(filepath.Join(dir, "f"+strconv.Itoa(i)), []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	layers := func() int {
		entries, _ := os.ReadDir(snapshots)
		return len(entries)
	}
	for range 3 {
		had := layers()
		i := begin(t, d, "image", "import", "-o", "json", "--name", "many", dir)
		await(t, "the unpacking", func() bool { return layers() > had })
		d.Kill(t)
		i.end(t)
		d.Launch(t)
		d.Run(t, "run", "--", "true")
		await(t, "the removal of what the import left", func() bool { return count() == before }) // beside the serving
	}
}
