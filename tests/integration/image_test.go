package integration

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/tests/harness"
	"github.com/caisson-run/caisson/tests/need"
)

// busybox is the static shell of the machine: the content of the test images.
func busybox(t *testing.T) []byte {
	t.Helper()
	for _, path := range []string{"/bin/busybox", "/usr/bin/busybox"} {
		if data, err := os.ReadFile(path); err == nil {
			return data
		}
	}
	t.Fatal("there is no busybox: make setup")
	return nil
}

type file struct {
	name, link string
	data       []byte
	dir        bool
	mode       int64
}

func rootFiles(t *testing.T, mark string) []file {
	return []file{
		{name: "bin", dir: true, mode: 0o755},
		{name: "bin/busybox", data: busybox(t), mode: 0o4755},
		{name: "bin/sh", link: "busybox"}, {name: "bin/cat", link: "busybox"}, {name: "bin/id", link: "busybox"}, {name: "bin/stat", link: "busybox"},
		{name: "etc", dir: true, mode: 0o755},
		{name: "etc/passwd", data: []byte("root:x:0:0::/:/bin/sh\nworker:x:1500:1600::/:/bin/sh\n"), mode: 0o644},
		{name: "mark", data: []byte(mark), mode: 0o644},
	}
}

func tarOf(t *testing.T, files []file) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		h := &tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.data)), Typeflag: tar.TypeReg}
		switch {
		case f.dir:
			h.Typeflag = tar.TypeDir
		case f.link != "":
			h.Typeflag, h.Linkname = tar.TypeSymlink, f.link
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(f.data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func encode(t *testing.T, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

type object = map[string]any

func imageConfig(t *testing.T, layer []byte) []byte {
	return encode(t, object{
		"architecture": goruntime.GOARCH, "os": "linux",
		"config": object{
			"User": "worker", "Env": []string{"FROM_IMAGE=yes"}, "WorkingDir": "/etc",
			"Labels": object{"containerd.io/restart.loguri": "binary:///bin/false"}, "Volumes": object{"/etc": object{}},
		},
		"rootfs": object{"type": "layers", "diff_ids": []string{"sha256:" + digest(layer)}},
	})
}

// ociLayout is an OCI image layout by file name.
func ociLayout(t *testing.T, mark string) []file {
	layer := tarOf(t, rootFiles(t, mark))
	config := imageConfig(t, layer)
	descriptor := func(kind string, data []byte) object {
		return object{"mediaType": "application/vnd.oci.image." + kind, "digest": "sha256:" + digest(data), "size": len(data)}
	}
	manifest := encode(t, object{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
		"config": descriptor("config.v1+json", config), "layers": []object{descriptor("layer.v1.tar", layer)},
	})
	index := encode(t, object{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json",
		"manifests": []object{descriptor("manifest.v1+json", manifest)},
	})
	files := []file{
		{name: "oci-layout", data: []byte(`{"imageLayoutVersion":"1.0.0"}`), mode: 0o644},
		{name: "index.json", data: index, mode: 0o644},
		{name: "blobs", dir: true, mode: 0o755}, {name: "blobs/sha256", dir: true, mode: 0o755},
	}
	for _, blob := range [][]byte{layer, config, manifest} {
		files = append(files, file{name: "blobs/sha256/" + digest(blob), data: blob, mode: 0o644})
	}
	return files
}

func dockerArchive(t *testing.T, mark string) []file {
	return dockerArchiveOf(t, mark, "from-docker:1")
}

// dockerArchiveOf is an archive that calls its image name.
func dockerArchiveOf(t *testing.T, mark, name string) []file {
	layer := tarOf(t, rootFiles(t, mark))
	config := imageConfig(t, layer)
	return []file{
		{name: digest(config) + ".json", data: config, mode: 0o644},
		{name: "layer", dir: true, mode: 0o755}, {name: "layer/layer.tar", data: layer, mode: 0o644},
		{name: "manifest.json", data: encode(t, []object{{
			"Config": digest(config) + ".json", "RepoTags": []string{name}, "Layers": []string{"layer/layer.tar"},
		}}), mode: 0o644},
	}
}

func writeTar(t *testing.T, files []file) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "image.tar")
	if err := os.WriteFile(path, tarOf(t, files), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func writeDir(t *testing.T, files []file) string {
	t.Helper()
	dir := t.TempDir()
	for _, f := range files {
		path := filepath.Join(dir, f.name)
		var err error
		switch {
		case f.dir:
			err = os.Mkdir(path, fs.FileMode(f.mode))
		case f.link != "":
			err = os.Symlink(f.link, path)
		default:
			err = os.WriteFile(path, f.data, fs.FileMode(f.mode&0o777))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestImport(t *testing.T) {
	for _, tt := range []struct {
		name, source string
		path         func(mark string) string
		user         string // by the image's configuration, where the form has one
	}{
		{"oci-layout-tar", "oci-layout", func(m string) string { return writeTar(t, ociLayout(t, m)) }, "1500"},
		{"oci-layout-folder", "oci-layout", func(m string) string { return writeDir(t, ociLayout(t, m)) }, "1500"},
		{"docker-archive", "docker-archive", func(m string) string { return writeTar(t, dockerArchive(t, m)) }, "1500"},
		{"rootfs-tar", "rootfs", func(m string) string { return writeTar(t, rootFiles(t, m)) }, "1000"},
		{"rootfs-folder", "rootfs", func(m string) string { return writeDir(t, rootFiles(t, m)) }, "1000"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			name := "test-" + tt.name
			daemon.Run(t, "image", "import", tt.path(tt.name), "--name", name)
			defer daemon.Run(t, "image", "rm", name)
			out := daemon.Run(t, "run", "--image", name, "--", "sh", "-c", "cat /mark; echo; id -u; stat -c %a /bin/busybox").Stdout
			if out != tt.name+"\n"+tt.user+"\n755\n" {
				t.Errorf("printed %q; a set-id bit must be gone", out)
			}
			var d struct {
				Source string
				Config struct {
					Config struct{ Labels, Volumes map[string]any }
				} `json:"config_json"`
				Report struct{ Stripped map[string]int64 }
			}
			daemon.Run(t, "image", "inspect", name).JSONIn(t, "image", &d)
			if d.Source != tt.source || d.Config.Config.Labels != nil || d.Config.Config.Volumes != nil {
				t.Errorf("inspected %+v; labels and volumes of an image must be gone", d)
			}
		})
	}
}

func TestImportRefusals(t *testing.T) {
	spoiled := ociLayout(t, "x")
	spoiled[len(spoiled)-1].data = append(spoiled[len(spoiled)-1].data, ' ')
	for _, tt := range []struct {
		name, code string
		files      []file
	}{
		{"a wrong digest", "SBX-202", spoiled},
		{"a path that climbs out", "SBX-203", []file{{name: "../out", data: []byte("x"), mode: 0o644}}},
		{"/dev as a link", "SBX-203", append(rootFiles(t, "x"), file{name: "dev", link: "/host"})},
		{"/proc as a file", "SBX-203", append(rootFiles(t, "x"), file{name: "proc", data: []byte("x"), mode: 0o644})},
	} {
		t.Run(tt.name, func(t *testing.T) {
			daemon.Refused(t, tt.code, "image", "import", writeTar(t, tt.files), "--name", "test-refused", "-o", "json")
		})
	}
	var list []struct{ Name string }
	daemon.Run(t, "image", "ls", "-o", "json").JSON(t, &list)
	for _, img := range list {
		if img.Name == "test-refused" {
			t.Error("a refused image is listed")
		}
	}
}

func TestImageInUse(t *testing.T) {
	daemon.Run(t, "image", "import", writeTar(t, rootFiles(t, "used")), "--name", "test-used")
	daemon.Run(t, "run", "-d", "--name", "user-of-it", "--image", "test-used", "--", "sh", "-c", "cat /mark; while :; do cat /mark > /dev/null; done")
	daemon.Refused(t, "SBX-210", "image", "rm", "test-used", "-o", "json")
	daemon.Run(t, "rm", "--force", "user-of-it")
	daemon.Run(t, "image", "rm", "test-used")
	daemon.AwaitNoSandbox(t)
}

func TestImageByDigest(t *testing.T) {
	var list []struct{ Name, Digest string }
	daemon.Run(t, "image", "ls", "-o", "json").JSON(t, &list)
	if len(list) == 0 || list[0].Name != "base" {
		t.Fatalf("images %+v", list)
	}
	daemon.Run(t, "run", "--image", "base@"+list[0].Digest, "--", "true")
	wrong := "sha256:" + strings.Repeat("0", 64)
	daemon.Refused(t, "SBX-201", "run", "--json", "--image", "base@"+wrong, "--", "true")
}

func TestFromHost(t *testing.T) {
	need.Tools(t, "dpkg")
	daemon.Run(t, "image", "from-host", "test-tools", "--package", "perl-base")
	defer daemon.Run(t, "image", "rm", "test-tools")
	out := daemon.Run(t, "run", "--image", "test-tools", "--", "perl", "-e", "print 6*7").Stdout
	if out != "42" {
		t.Errorf("perl printed %q", out)
	}
	daemon.Refused(t, "SBX-209", "image", "from-host", "test-none", "--package", "no-such-package", "-o", "json")
	daemon.Refused(t, "SBX-101", "image", "from-host", "test-none", "--path", "/root", "-o", "json")
	daemon.Refused(t, "SBX-801", "image", "from-host", "test-none", "-o", "json")
}

// The first command works on a host that has no network at all.
func TestOffline(t *testing.T) {
	d := harness.New(t)
	d.Wrap = []string{"unshare", "--net"}
	d.Launch(t)
	if out := d.Run(t, "run", "--", "sh", "-c", "echo hi").Stdout; out != "hi\n" {
		t.Errorf("printed %q", out)
	}
	d.Stop(t)
	d.CheckNothingLeft(t)
}

// What an import reads is bounded before it is stored.
func TestImportStreams(t *testing.T) {
	r, w := io.Pipe()
	go func() {
		_, err := w.Write(tarOf(t, rootFiles(t, "piped")))
		w.CloseWithError(err)
	}()
	cmd := daemon.Command(t.Context(), "image", "import", "-", "--name", "test-piped")
	cmd.Stdin = r
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	defer daemon.Run(t, "image", "rm", "test-piped")
	if out := daemon.Run(t, "run", "--image", "test-piped", "--", "cat", "/mark").Stdout; out != "piped" {
		t.Errorf("printed %q", out)
	}
}
