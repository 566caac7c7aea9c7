package registry_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	goruntime "runtime"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/image"
	"github.com/caisson-run/caisson/runtime/registry"
	"github.com/caisson-run/caisson/tests/regtest"
)

func TestParse(t *testing.T) {
	sum := "sha256:" + strings.Repeat("a", 64)
	for ref, want := range map[string][3]string{ // name, host, digest
		"registry.example.com/a/b:1":      {"registry.example.com/a/b:1", "registry.example.com", ""},
		"localhost:5000/a":                {"localhost:5000/a", "localhost:5000", ""},
		"docker.io/library/debian:12":     {"docker.io/library/debian:12", "docker.io", ""},
		"registry.example.com/a@" + sum:   {"registry.example.com/a", "registry.example.com", sum},
		"registry.example.com/a:1@" + sum: {"registry.example.com/a:1", "registry.example.com", sum},
	} {
		r, err := registry.Parse(ref)
		if err != nil || r.Name != want[0] || r.Host != want[1] || r.Digest.String() != want[2] {
			t.Errorf("%s: %+v, %v", ref, r, err)
		}
	}
	for ref, says := range map[string]string{
		"debian:12":                       "docker.io/library/debian:12",
		"docker.io/debian":                "docker.io/library/debian",
		"tools/debian":                    "docker.io/tools/debian",
		"registry.example.com/A":          "lower-case letters",
		"registry.example.com/a@sha256:1": "digest",
		"https://registry.example.com/a":  "lower-case letters",
		"":                                "lower-case letters",
		"registry.example.com/../a":       "lower-case letters",
	} {
		if _, err := registry.Parse(ref); sbxerr.Of(err) != sbxerr.Config || !strings.Contains(err.Error()+sbxerr.RemedyOf(err), says) {
			t.Errorf("%q: %v", ref, err)
		}
	}
}

func TestNotAllowed(t *testing.T) {
	b := newBench(t)
	b.config.Allowed = []string{"registry.example.com"}
	_, err := b.pull(t, "app:1")
	if sbxerr.Of(err) != sbxerr.PullRefused || !strings.Contains(err.Error(), "registry.example.com") || !strings.Contains(sbxerr.RemedyOf(err), b.host) {
		t.Errorf("%v: %s", err, sbxerr.RemedyOf(err))
	}
	if n := len(b.requests("")); n > 0 {
		t.Errorf("the registry was asked %d times", n)
	}
}

// TestByDigest: an index and the manifest that it lists are the same image.
func TestByDigest(t *testing.T) {
	b := newBench(t)
	manifest, _ := b.Push(t, "app", "2", regtest.Tar(t, "a", "two"))
	other := manifest
	other.Platform = &ocispec.Platform{OS: "linux", Architecture: "riscv64"}
	ours := manifest
	ours.Platform = &ocispec.Platform{OS: "linux", Architecture: goruntime.GOARCH}
	index := func(tag string, list ...ocispec.Descriptor) ocispec.Descriptor {
		return b.PutManifest(t, "app", tag, ocispec.MediaTypeImageIndex, ocispec.Index{
			Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex, Manifests: list,
		})
	}
	both := index("both", other, ours)
	want, err := b.pull(t, "app:2")
	if err != nil {
		t.Fatal(err)
	}
	for _, ref := range []string{"app@" + manifest.Digest.String(), "app:both", "app@" + both.Digest.String(), "app:2@" + manifest.Digest.String()} {
		got, err := b.pull(t, ref)
		if err != nil || got.Manifest.Digest != want.Manifest.Digest || got.Source != manifest.Digest {
			t.Errorf("%s: %+v, %v", ref, got, err)
		}
	}
	index("foreign", other)
	if _, err := b.pull(t, "app:foreign"); sbxerr.Of(err) != sbxerr.ImageFormat || !strings.Contains(err.Error(), "riscv64") {
		t.Errorf("no image for this platform: %v", err)
	}
	absent := digest.FromString("absent")
	for _, ref := range []string{"app:absent", "absent:1", "app@" + absent.String()} {
		if _, err := b.pull(t, ref); sbxerr.Of(err) != sbxerr.ImageNotFound || !strings.Contains(err.Error(), b.host+"/"+ref) {
			t.Errorf("%s: %v", ref, err)
		}
	}
}

// TestContentElsewhere: addresses and content inside descriptors are ignored.
func TestContentElsewhere(t *testing.T) {
	b := newBench(t)
	other := newElsewhere(t, b.Registry.ServeHTTP)
	manifest, m := b.Push(t, "app", "3", regtest.Tar(t, "a", "three"))
	want, err := b.pull(t, "app:3")
	if err != nil {
		t.Fatal(err)
	}
	for i := range m.Layers {
		m.Layers[i].URLs = []string{other.URL + "/v2/app/blobs/" + m.Layers[i].Digest.String()}
	}
	m.Config.URLs, m.Config.Data = []string{other.URL + "/config"}, []byte(`{"os":"plan9"}`)
	data, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	b.setFront(func(next http.Handler) http.Handler { // a registry that checks manifests refuses it
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !strings.Contains(r.URL.Path, "/manifests/") {
				next.ServeHTTP(w, r)
				return
			}
			w.Header().Set("Content-Type", manifest.MediaType)
			w.Header().Set("Docker-Content-Digest", digest.FromBytes(data).String())
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
		})
	})
	got, err := b.pull(t, "app:4")
	if err != nil || got.Manifest.Digest != want.Manifest.Digest {
		t.Errorf("%+v: %v", got, err)
	}
	if n := len(other.asked()); n > 0 {
		t.Errorf("the other server was asked %d times", n)
	}
}

// TestHostileLayers: what an archive may not hold, an image of a registry may not either.
func TestHostileLayers(t *testing.T) {
	b := newBench(t)
	for name, c := range map[string]struct {
		layer []byte
		code  sbxerr.Code
	}{
		"path":  {regtest.Tar(t, "../../etc/passwd", "x"), sbxerr.ImageContent},
		"noise": {[]byte("no archive at all, but long enough to be read as one"), sbxerr.ImageFormat},
	} {
		b.Push(t, "hostile", name, regtest.Tar(t, "a", "x"), c.layer)
		if _, err := b.pull(t, "hostile:"+name); sbxerr.Of(err) != c.code {
			t.Errorf("%s: %v", name, err)
		}
		if left := b.spooled(t); len(left) > 0 {
			t.Errorf("%s: left in the spool: %q", name, left)
		}
	}
}

// TestManyLayers: layers are fetched ahead, some of them are the same, and all arrive.
func TestManyLayers(t *testing.T) {
	b := newBench(t)
	var layers [][]byte
	for i := range 40 {
		layers = append(layers, regtest.Tar(t, fmt.Sprintf("f%d", i%7), fmt.Sprintf("content %d", i%7)))
	}
	b.Push(t, "many", "1", layers...)
	got, err := b.pull(t, "many:1")
	if err != nil || got.Report.Entries != 40 || got.Kind != image.KindRegistry {
		t.Errorf("%+v: %v", got, err)
	}
	if left := b.spooled(t); len(left) > 0 {
		t.Errorf("left in the spool: %q", left)
	}
}
