// Package regtest runs a real registry for tests. It listens on a socket of its own; a
// test puts its faults, its authentication and its TLS in front.
package regtest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/caisson-run/caisson/rootfs/image"
	"github.com/caisson-run/caisson/tests/need"
)

// Registry is a running registry. It is an http.Handler.
type Registry struct {
	proxy  *httputil.ReverseProxy
	client *http.Client
}

// Start starts a registry, which ends with t.
func Start(t testing.TB) *Registry {
	t.Helper()
	program := need.Env(t, "CAISSON_REGISTRY", "the path of the registry for tests: make registry")
	dir, err := os.MkdirTemp("", "regtest") // short: the name of a socket is
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket, file := filepath.Join(dir, "s"), filepath.Join(dir, "config.yaml")
	config := fmt.Sprintf("version: 0.1\nlog: {level: error, accesslog: {disabled: true}}\nstorage: {filesystem: {rootdirectory: %s}}\nhttp: {net: unix, addr: %s}\n", filepath.Join(dir, "data"), socket)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, file)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Env = append(os.Environ(), "OTEL_SDK_DISABLED=true", "OTEL_TRACES_EXPORTER=none") // it would connect to a collector
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	started, ended := make(chan error, 1), make(chan struct{})
	go func() { // the thread stays, for the process ends with it
		goruntime.LockOSThread()
		started <- cmd.Start()
		_ = cmd.Wait() // killed below
		close(ended)
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it has ended, or does now
		<-ended
		if t.Failed() {
			t.Logf("registry: %s", said.String())
		}
	})
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if c, err := net.Dial("unix", socket); err == nil {
			c.Close()
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the registry does not listen: %s", said.String())
		}
	}
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: "registry"})
	proxy.Transport = transport
	return &Registry{proxy: proxy, client: &http.Client{Transport: transport}}
}

// ServeHTTP implements http.Handler.
func (r *Registry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	req.Header.Del("Authorization") // the test has seen to it
	r.proxy.ServeHTTP(w, req)
}

// Put uploads a blob to repo and returns its descriptor.
func (r *Registry) Put(t testing.TB, repo, mediaType string, data []byte) ocispec.Descriptor {
	t.Helper()
	d := ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(data), Size: int64(len(data))}
	res := r.do(t, http.MethodPost, "/v2/"+repo+"/blobs/uploads/", "", nil, http.StatusAccepted)
	at, err := url.Parse(res.Header.Get("Location"))
	if err != nil {
		t.Fatal(err)
	}
	query := at.Query()
	query.Set("digest", d.Digest.String())
	r.do(t, http.MethodPut, at.Path+"?"+query.Encode(), "application/octet-stream", data, http.StatusCreated)
	return d
}

// PutManifest uploads a manifest or an index under ref, a tag or its digest.
func (r *Registry) PutManifest(t testing.TB, repo, ref, mediaType string, v any) ocispec.Descriptor {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	d := ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(data), Size: int64(len(data))}
	if ref == "" {
		ref = d.Digest.String()
	}
	r.do(t, http.MethodPut, "/v2/"+repo+"/manifests/"+ref, mediaType, data, http.StatusCreated)
	return d
}

func (r *Registry) do(t testing.TB, method, path, mediaType string, body []byte, want int) *http.Response {
	t.Helper()
	req, err := http.NewRequest(method, "http://registry"+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", mediaType)
	res, err := r.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if said, _ := io.ReadAll(res.Body); res.StatusCode != want {
		t.Fatalf("%s %s: %s: %s", method, path, res.Status, said)
	}
	return res
}

// Push uploads an image of layers, tars, under a tag, and returns its manifest.
func (r *Registry) Push(t testing.TB, repo, tag string, layers ...[]byte) (ocispec.Descriptor, ocispec.Manifest) {
	t.Helper()
	return r.PushConfig(t, repo, tag, image.ForBuilds{}, layers...)
}

// PushConfig is Push of an image with something for builds.
func (r *Registry) PushConfig(t testing.TB, repo, tag string, builds image.ForBuilds, layers ...[]byte) (ocispec.Descriptor, ocispec.Manifest) {
	t.Helper()
	m := ocispec.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest}
	config := image.Document{
		Platform: ocispec.Platform{OS: "linux", Architecture: goruntime.GOARCH},
		Config:   image.Config{ImageConfig: ocispec.ImageConfig{Env: []string{"PATH=/bin"}, Cmd: []string{"sh"}}, ForBuilds: builds},
		RootFS:   ocispec.RootFS{Type: "layers"},
	}
	for _, l := range layers {
		config.RootFS.DiffIDs = append(config.RootFS.DiffIDs, digest.FromBytes(l))
		m.Layers = append(m.Layers, r.Put(t, repo, ocispec.MediaTypeImageLayerGzip, gz(t, l)))
	}
	data, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	m.Config = r.Put(t, repo, ocispec.MediaTypeImageConfig, data)
	return r.PutManifest(t, repo, tag, m.MediaType, m), m
}

func gz(t testing.TB, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Tar makes a layer of files by name, in order of their names in list: NAME, CONTENT, ….
func Tar(t testing.TB, list ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := 0; i < len(list); i += 2 {
		h := &tar.Header{Name: list[i], Mode: 0o755, Size: int64(len(list[i+1])), Typeflag: tar.TypeReg}
		if strings.HasSuffix(list[i], "/") {
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, list[i+1]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
