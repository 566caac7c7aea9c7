package registry_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/image"
	"github.com/caisson-run/caisson/runtime/registry"
)

// session is a pull of app:1 from a server of this host, for what a process may ask of it.
func session(t *testing.T, change ...func(*registry.Config)) (s *registry.Session, server *httptest.Server) {
	t.Helper()
	server = httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	host := strings.TrimPrefix(server.URL, "http://")
	config := registry.Config{Allowed: []string{host}, SpoolDir: t.TempDir(), Timeout: time.Minute}
	for _, c := range change {
		c(&config)
	}
	client, err := registry.New(config)
	if err != nil {
		t.Fatal(err)
	}
	ref, err := registry.Parse(host + "/app:1")
	if err != nil {
		t.Fatal(err)
	}
	s, err = client.Open(t.Context(), ref, registry.Caller{UID: 7, Credentials: ann})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(nil); err != nil {
			t.Error(err)
		}
	})
	return s, server
}

// A process that is not what it was connects to no more than a registry could lead to.
func TestDialIsJudged(t *testing.T) {
	s, server := session(t)
	for to, says := range map[string]string{
		server.URL:                "", // the control
		"http://192.0.2.1":        "http://192.0.2.1 is not HTTPS",
		"ftp://127.0.0.1":         "is not HTTPS",
		"https://169.254.169.254": "whose address 169.254.169.254 is",
		"https://0.0.0.0:1":       "whose address 0.0.0.0 is",
		server.URL + "/v2/":       "is no server",
		"https://a@192.0.2.1":     "is no server",
		"https://":                "is no server",
		"//192.0.2.1":             "is not HTTPS",
		"unix:///run/x":           "is no server",
	} {
		f, err := s.Dial(t.Context(), to)
		if says == "" {
			if err != nil {
				t.Errorf("%s: %v", to, err)
				continue
			}
			f.Close()
			continue
		}
		if f != nil || err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), string(sbxerr.PullRefused)) {
			t.Errorf("%s: %v", to, err)
		}
	}
}

// The connections of one pull are counted.
func TestDialsAreBounded(t *testing.T) {
	s, server := session(t)
	made := 0
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	var err error
	for err == nil {
		var conn interface{ Close() error }
		if conn, err = s.Dial(ctx, server.URL); err == nil {
			made++
			conn.Close()
		}
	}
	if made < 128 || made > 128+70 { // and then one each 50 ms
		t.Errorf("%d connections: %v", made, err)
	}
}

// A process that writes more than its layers is noticed, also in a layer that was stored.
func TestSpoolIsWatched(t *testing.T) {
	s, _ := session(t)
	d := ocispec.Descriptor{Digest: digest.FromString("x"), Size: 10}
	if err := s.Layers([]ocispec.Descriptor{d}); err != nil {
		t.Fatal(err)
	}
	f, err := s.Open(d)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	write := func(n int, at int64, over bool) {
		t.Helper()
		if _, err := f.WriteAt(make([]byte, n), at); err != nil {
			t.Fatal(err)
		}
		if err := s.Check(); (err != nil) != over {
			t.Errorf("%d bytes at %d: %v", n, at, err)
		}
	}
	write(10, 0, false)
	if p, _ := s.Progress(d); p.State != registry.Fetched || p.Received != 10 {
		t.Errorf("%+v", p)
	}
	write(1, 10, true)
	if err := s.Drop(d); err != nil {
		t.Fatal(err)
	}
	if p, _ := s.Progress(d); p.State != registry.Stored {
		t.Errorf("%+v", p)
	}
	if err := s.Check(); err != nil {
		t.Error(err)
	}
	write(1, 0, true)
}

// What a process is told holds the credentials of its own registry, and they are not printed.
func TestCredentialsOfOne(t *testing.T) {
	s, server := session(t)
	r := s.Request()
	if len(r.Servers) != 1 || r.Servers[0].User != ann.Username || r.Servers[0].Secret != ann.Password || r.Servers[0].Origin() != server.URL {
		t.Fatalf("%v", r.Servers)
	}
	if said := fmt.Sprintf("%v %+v", r, r); strings.Contains(said, ann.Password) {
		t.Error(said)
	}
}

// A connection that was passed is that of the server: its address is what was judged.
func TestDialed(t *testing.T) {
	s, server := session(t)
	f, err := s.Dial(t.Context(), server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	conn, err := net.FileConn(f)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if "http://"+conn.RemoteAddr().String() != server.URL {
		t.Errorf("connected to %s", conn.RemoteAddr())
	}
}

// An image that needs a signature is not found without its process having the key.
func TestRuleIsTold(t *testing.T) {
	ours := newSigner(t)
	s, _ := session(t, func(c *registry.Config) {
		c.Verify = []registry.Rule{{Repository: "*", Require: registry.RequireSignature, Key: ours.file}}
	})
	r := s.Request()
	name, err := s.Verify(image.Remote{})
	if err != nil || len(r.Key) == 0 || r.Rule != name || !strings.Contains(name, ours.file) {
		t.Errorf("%q, %q: %v", r.Rule, name, err)
	}
}

// A process gets no part of a layer that came from another repository: it would show that to its
// registry.
func TestPartsAreOfOneRepository(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	client, err := registry.New(registry.Config{Allowed: []string{host}, SpoolDir: t.TempDir(), Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	d := ocispec.Descriptor{Digest: digest.FromString("x"), Size: 10}
	for n, c := range []struct {
		name string
		have int
	}{{"app:1", 0}, {"app:2", 5}, {"other:1", 0}} {
		ref, err := registry.Parse(host + "/" + c.name)
		if err != nil {
			t.Fatal(err)
		}
		s, err := client.Open(t.Context(), ref, registry.Caller{})
		if err != nil {
			t.Fatal(err)
		}
		f, err := s.Open(d)
		if err != nil {
			t.Fatal(err)
		}
		if data, err := io.ReadAll(f); err != nil || len(data) != c.have {
			t.Errorf("%d: %d bytes, %v", n, len(data), err)
		}
		if _, err := f.WriteAt([]byte("12345"), 0); err != nil {
			t.Fatal(err)
		}
		f.Close()
		if err := s.Close(sbxerr.New(sbxerr.Registry, "test.close", "it is to go on")); sbxerr.Of(err) != sbxerr.Registry {
			t.Fatal(err)
		}
	}
}
