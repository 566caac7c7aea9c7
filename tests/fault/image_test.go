package fault

import (
	"os"
	"path/filepath"
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
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
}
