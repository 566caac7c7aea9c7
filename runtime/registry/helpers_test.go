package registry_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caisson-run/caisson/rootfs/image"
	_ "github.com/caisson-run/caisson/rootfs/imagejobs" // the tests are caisson-images, too
	"github.com/caisson-run/caisson/rootfs/imageproc"
	"github.com/caisson-run/caisson/rootfs/imagework"
	"github.com/caisson-run/caisson/runtime/registry"
	"github.com/caisson-run/caisson/tests/need"
	"github.com/caisson-run/caisson/tests/regtest"
)

// bench is a registry with an image app:1 behind a handler that a test changes.
type bench struct {
	*regtest.Registry
	server *httptest.Server
	host   string
	spool  string
	config registry.Config
	caller registry.Caller

	mu    sync.Mutex
	front func(http.Handler) http.Handler
	seen  []*http.Request
}

func newBench(t *testing.T) *bench {
	t.Helper()
	need.Root(t, "it starts a process of another user")
	b := &bench{Registry: regtest.Start(t), spool: t.TempDir()}
	b.server = httptest.NewServer(b)
	t.Cleanup(b.server.Close)
	b.host = strings.TrimPrefix(b.server.URL, "http://")
	b.config = registry.Config{Allowed: []string{b.host}, SpoolDir: b.spool, Timeout: time.Minute, Stall: 300 * time.Millisecond, Pause: time.Millisecond}
	b.Push(t, "app", "1", regtest.Tar(t, "bin/", "", "bin/a", strings.Repeat("one", 100_000)), regtest.Tar(t, "b", random(400_000)))
	return b
}

// random is text that does not get smaller.
func random(n int) string {
	b := make([]byte, n)
	x := uint32(1)
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
	return string(b)
}

// ServeHTTP notes the request and passes it through front.
func (b *bench) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	front := b.front
	b.seen = append(b.seen, r.Clone(context.WithoutCancel(r.Context())))
	b.mu.Unlock()
	if front == nil {
		b.Registry.ServeHTTP(w, r)
		return
	}
	front(b.Registry).ServeHTTP(w, r)
}

func (b *bench) setFront(f func(http.Handler) http.Handler) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.front, b.seen = f, nil
}

// requests returns those whose path holds part.
func (b *bench) requests(part string) []*http.Request {
	b.mu.Lock()
	defer b.mu.Unlock()
	var list []*http.Request
	for _, r := range b.seen {
		if strings.Contains(r.URL.Path, part) {
			list = append(list, r)
		}
	}
	return list
}

// pull fetches and filters an image and returns what would be stored.
func (b *bench) pull(t *testing.T, name string) (image.Result, error) {
	t.Helper()
	client, err := registry.New(b.config)
	if err != nil {
		return image.Result{}, err
	}
	ref, err := registry.Parse(b.host + "/" + name)
	if err != nil {
		return image.Result{}, err
	}
	ctx, cancel := context.WithTimeout(t.Context(), client.Timeout())
	defer cancel()
	return pullWith(ctx, client, ref, b.caller)
}

// program is this test, which links what caisson-images does.
var program = imageproc.Program{Path: "/proc/self/exe"}

func pullWith(ctx context.Context, client *registry.Client, ref registry.Reference, caller registry.Caller) (_ image.Result, err error) {
	s, err := client.Open(ctx, program, ref, caller, image.DefaultLimits())
	if err != nil {
		return image.Result{}, err
	}
	defer func() { err = s.Close(err) }()
	found, err := s.Find(ctx, program)
	if err != nil {
		return image.Result{}, err
	}
	defer found.Close()
	if _, err := s.Verify(found.Remote); err != nil {
		return image.Result{}, err
	}
	feed, err := found.Feed(ctx, imagework.Layers{Ready: func(context.Context) (func(), error) { return func() {}, nil }})
	if err != nil {
		return image.Result{}, err
	}
	o := image.StoreOptions{Name: ref.Name, Limits: image.DefaultLimits(), Target: found.Target.Digest, Layers: found.Digests()}
	result, err := image.Store(ctx, o, found.Head, feed, image.Discard)
	return result, errors.Join(err, s.Check())
}

// spooled lists what is in the spool.
func (b *bench) spooled(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir(b.spool)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// onBlob lets f answer the first n GETs of blobs of the image's layers, which are larger
// than its configuration.
func onBlob(n int, f func(w http.ResponseWriter, r *http.Request, whole *httptest.ResponseRecorder)) func(http.Handler) http.Handler {
	var mu sync.Mutex
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodGet || !strings.Contains(r.URL.Path, "/blobs/") {
				next.ServeHTTP(w, r)
				return
			}
			whole := httptest.NewRecorder()
			next.ServeHTTP(whole, r)
			mu.Lock()
			hit := n > 0 && whole.Body.Len() > 100_000
			if hit {
				n--
			}
			mu.Unlock()
			if !hit {
				copyTo(w, whole, whole.Body.Bytes())
				return
			}
			f(w, r, whole)
		})
	}
}

// copyTo answers with the head of whole and data.
func copyTo(w http.ResponseWriter, whole *httptest.ResponseRecorder, data []byte) {
	for k, v := range whole.Header() {
		w.Header()[k] = v
	}
	w.WriteHeader(whole.Code)
	_, _ = w.Write(data) // a client that has gone is the test's own
}

// half answers with the first half of the content.
func half(w http.ResponseWriter, whole *httptest.ResponseRecorder) {
	copyTo(w, whole, whole.Body.Bytes()[:whole.Body.Len()/2])
	if f, ok := w.(http.Flusher); ok {
		f.Flush()
	}
}

// verifiedBy returns the name of the rule that an image satisfies.
func verifiedBy(t *testing.T, client *registry.Client, name string) string {
	t.Helper()
	ref, err := registry.Parse(name)
	if err != nil {
		t.Fatal(err)
	}
	s, err := client.Open(t.Context(), program, ref, registry.Caller{}, image.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(nil)
	found, err := s.Find(t.Context(), program)
	if err != nil {
		t.Fatal(err)
	}
	defer found.Close()
	rule, err := s.Verify(found.Remote)
	if err != nil {
		t.Fatal(err)
	}
	return rule
}
