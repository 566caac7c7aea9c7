package registry_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime/registry"
	"github.com/caisson-run/caisson/tests/regtest"
)

// cut ends the connection as a broken network does.
func cut(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // reset
	}
	conn.Close()
}

func status(code int, header ...string) func(http.ResponseWriter, *http.Request, *httptest.ResponseRecorder) {
	return func(w http.ResponseWriter, _ *http.Request, _ *httptest.ResponseRecorder) {
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(code)
	}
}

// TestFaultsThatPass: the pull goes on where it was, and the image is the same.
func TestFaultsThatPass(t *testing.T) {
	b := newBench(t)
	want, err := b.pull(t, "app:1")
	if err != nil {
		t.Fatal(err)
	}
	stalled := func(w http.ResponseWriter, r *http.Request, whole *httptest.ResponseRecorder) {
		half(w, whole)
		<-r.Context().Done()
	}
	for name, c := range map[string]struct {
		times  int
		fault  func(http.ResponseWriter, *http.Request, *httptest.ResponseRecorder)
		ranges bool // what was received is not fetched again
	}{
		"cut off": {1, func(w http.ResponseWriter, _ *http.Request, whole *httptest.ResponseRecorder) {
			half(w, whole)
			panic(http.ErrAbortHandler)
		}, true},
		"reset":                        {2, func(w http.ResponseWriter, _ *http.Request, _ *httptest.ResponseRecorder) { cut(w) }, false},
		"stall in a layer":             {1, stalled, true},
		"stall before a layer":         {1, func(_ http.ResponseWriter, r *http.Request, _ *httptest.ResponseRecorder) { <-r.Context().Done() }, false},
		"502":                          {3, status(502), false},
		"500":                          {3, status(500), false},
		"503":                          {3, status(503), false},
		"429":                          {3, status(429), false},
		"429 that says when to return": {1, status(429, "Retry-After", "1"), false},
		"a short body": {1, func(w http.ResponseWriter, _ *http.Request, whole *httptest.ResponseRecorder) {
			data := whole.Body.Bytes()
			w.Header().Set("Content-Length", strconv.Itoa(len(data)/2))
			_, _ = w.Write(data[:len(data)/2])
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			b.setFront(onBlob(c.times, c.fault))
			began := time.Now()
			got, err := b.pull(t, "app:1")
			if err != nil || got.Manifest.Digest != want.Manifest.Digest {
				t.Fatalf("pulled %v, want %v: %v", got.Manifest.Digest, want.Manifest.Digest, err)
			}
			ranged := false
			for _, r := range b.requests("/blobs/") {
				ranged = ranged || r.Header.Get("Range") != ""
			}
			if ranged != c.ranges {
				t.Errorf("asked for the rest: %t", ranged)
			}
			if strings.Contains(name, "says when") && time.Since(began) < time.Second {
				t.Errorf("asked again after %s", time.Since(began))
			}
			if left := b.spooled(t); len(left) > 0 {
				t.Errorf("left in the spool: %q", left)
			}
		})
	}
}

// TestFaultsThatStay: each has its code, and what does not fit is not kept.
func TestFaultsThatStay(t *testing.T) {
	b := newBench(t)
	b.config.Timeout = 20 * time.Second
	always := 1 << 20
	change := func(f func([]byte) []byte) func(http.ResponseWriter, *http.Request, *httptest.ResponseRecorder) {
		return func(w http.ResponseWriter, _ *http.Request, whole *httptest.ResponseRecorder) {
			data := f(bytes.Clone(whole.Body.Bytes()))
			whole.Header().Set("Content-Length", strconv.Itoa(len(data)))
			copyTo(w, whole, data)
		}
	}
	for name, c := range map[string]struct {
		fault func(http.ResponseWriter, *http.Request, *httptest.ResponseRecorder)
		code  sbxerr.Code
		says  string
		keeps bool
	}{
		"a wrong byte":    {change(func(d []byte) []byte { d[len(d)/2] ^= 1; return d }), sbxerr.ImageFormat, "the content's digest is", false},
		"a long body":     {change(func(d []byte) []byte { return append(d, d...) }), sbxerr.ImageFormat, "more than the", false},
		"always empty":    {change(func([]byte) []byte { return nil }), sbxerr.Registry, "ends the layer early", true},
		"always 500":      {status(500), sbxerr.Registry, "answers 500 Internal Server Error, 5 times", true},
		"429 for an hour": {status(429, "Retry-After", "3600"), sbxerr.Registry, "asks to wait 1h0m0s, longer than the pull may take", true},
		"always stalls":   {func(_ http.ResponseWriter, r *http.Request, _ *httptest.ResponseRecorder) { <-r.Context().Done() }, sbxerr.Registry, "sent nothing for 300ms", true},
		"403":             {status(403), sbxerr.RegistryAuth, "does not let you pull", false},
		"404":             {status(404), sbxerr.ImageNotFound, "has no image", false},
		"packed":          {status(200, "Content-Encoding", "gzip"), sbxerr.ImageFormat, "which was not asked for", false},
	} {
		t.Run(name, func(t *testing.T) {
			b.setFront(onBlob(always, c.fault))
			_, err := b.pull(t, "app:1")
			if sbxerr.Of(err) != c.code || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v", sbxerr.Of(err), err)
			}
			if strings.Contains(err.Error(), "failed to do request") {
				t.Errorf("the error tells of the request: %v", err)
			}
			if n := len(b.requests("/blobs/")); n > 25 {
				t.Errorf("%d requests", n)
			}
			if left := b.spooled(t); len(left) > 0 && !c.keeps {
				t.Errorf("left in the spool: %q", left)
			}
			clearSpool(t, b)
		})
	}
}

func clearSpool(t *testing.T, b *bench) {
	t.Helper()
	for _, name := range b.spooled(t) {
		if err := os.Remove(filepath.Join(b.spool, name)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestResume: a pull that was cut off goes on where it was, for the same user alone.
func TestResume(t *testing.T) {
	b := newBench(t)
	want, err := b.pull(t, "app:1")
	if err != nil {
		t.Fatal(err)
	}
	interrupt := func() {
		b.setFront(onBlob(1<<20, func(w http.ResponseWriter, r *http.Request, whole *httptest.ResponseRecorder) {
			if r.Header.Get("Range") != "" {
				w.WriteHeader(http.StatusInternalServerError)
				return
			}
			half(w, whole)
			panic(http.ErrAbortHandler)
		}))
		if _, err := b.pull(t, "app:1"); sbxerr.Of(err) != sbxerr.Registry {
			t.Fatal(err)
		}
		if len(b.spooled(t)) == 0 {
			t.Fatal("nothing is kept")
		}
		b.setFront(nil)
	}
	ranges := func() (n int) {
		for _, r := range b.requests("/blobs/") {
			if r.Header.Get("Range") != "" {
				n++
			}
		}
		return n
	}
	again := func(wantRange bool) {
		t.Helper()
		got, err := b.pull(t, "app:1")
		if err != nil || got.Manifest.Digest != want.Manifest.Digest {
			t.Errorf("pulled %v, want %v: %v", got.Manifest.Digest, want.Manifest.Digest, err)
		}
		if (ranges() > 0) != wantRange {
			t.Errorf("asked for the rest: %d times", ranges())
		}
	}
	interrupt()
	again(true)
	if left := b.spooled(t); len(left) > 0 {
		t.Errorf("left in the spool: %q", left)
	}

	interrupt()
	b.caller.UID = 1000 // who has not fetched any of it
	again(false)
	b.caller.UID = 0

	for _, name := range b.spooled(t) { // somebody, or a broken disk, changes it
		file := filepath.Join(b.spool, name)
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		data[0] ^= 1
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b.setFront(nil)
	again(true) // and then from the beginning
	if left := b.spooled(t); len(left) > 0 {
		t.Errorf("left in the spool: %q", left)
	}
}

// TestOldPartsAreSwept: a part that nobody comes back for is removed by a later pull.
func TestOldPartsAreSwept(t *testing.T) {
	b := newBench(t)
	old, young := filepath.Join(b.spool, "pull-7-sha256-old"), filepath.Join(b.spool, "pull-7-sha256-young")
	for _, file := range []string{old, young} {
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	yesterday := time.Now().Add(-25 * time.Hour)
	if err := os.Chtimes(old, yesterday, yesterday); err != nil {
		t.Fatal(err)
	}
	if _, err := b.pull(t, "app:1"); err != nil {
		t.Fatal(err)
	}
	if left := b.spooled(t); len(left) != 1 || left[0] != filepath.Base(young) {
		t.Errorf("left: %q", left)
	}
}

// TestTimeout: a pull ends with its time, says what to do, and keeps what it has.
func TestTimeout(t *testing.T) {
	b := newBench(t)
	b.config.Timeout, b.config.Stall = time.Second, time.Minute
	b.setFront(onBlob(1<<20, func(w http.ResponseWriter, r *http.Request, whole *httptest.ResponseRecorder) {
		half(w, whole)
		<-r.Context().Done()
	}))
	_, err := b.pull(t, "app:1")
	if sbxerr.Of(err) != sbxerr.Deadline || !strings.Contains(sbxerr.RemedyOf(err), "goes on where it was") {
		t.Errorf("%s: %v", sbxerr.Of(err), err)
	}
	if len(b.spooled(t)) == 0 {
		t.Error("nothing is kept")
	}
	client, err := registry.New(b.config)
	if err != nil {
		t.Fatal(err)
	}
	ref, err := registry.Parse(b.host + "/app:1")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("the caller left"))
	if _, err := pullWith(ctx, client, ref, registry.Caller{}); sbxerr.Of(err) != sbxerr.Canceled {
		t.Errorf("%s: %v", sbxerr.Of(err), err)
	}
}

// TestFullDisk: a layer that the disk has no room for leaves nothing behind.
func TestFullDisk(t *testing.T) {
	b := newBench(t)
	if err := unix.Mount("tmpfs", b.spool, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(b.spool, 0); err != nil {
			t.Error(err)
		}
	})
	_, err := b.pull(t, "app:1")
	if sbxerr.Of(err) != sbxerr.StateDir || !strings.Contains(err.Error(), unix.ENOSPC.Error()) {
		t.Errorf("%s: %v", sbxerr.Of(err), err)
	}
	if left := b.spooled(t); len(left) > 0 {
		t.Errorf("left in the spool: %q", left)
	}
}

// TestPartsAreOfOneImage: what interrupted pulls of a user leave is of the latest image, and
// does not grow with their number.
func TestPartsAreOfOneImage(t *testing.T) {
	b := newBench(t)
	for i := range 3 {
		b.Push(t, "app", fmt.Sprintf("big%d", i), regtest.Tar(t, fmt.Sprintf("n%d", i), random(300_000)))
	}
	b.setFront(onBlob(1<<20, func(w http.ResponseWriter, r *http.Request, whole *httptest.ResponseRecorder) {
		if r.Header.Get("Range") != "" {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		half(w, whole)
		panic(http.ErrAbortHandler)
	}))
	other := filepath.Join(b.spool, "pull-1000-sha256-other")
	if err := os.WriteFile(other, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if _, err := b.pull(t, fmt.Sprintf("app:big%d", i)); sbxerr.Of(err) != sbxerr.Registry {
			t.Fatal(err)
		}
		if left := b.spooled(t); len(left) != 2 { // one layer, and the other user's part
			t.Errorf("left in the spool: %q", left)
		}
	}
}
