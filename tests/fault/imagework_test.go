package fault

import (
	"archive/tar"
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/caisson-run/caisson/tests/harness"
	"github.com/caisson-run/caisson/tests/regtest"
)

// worker is the program that parses images for the daemon.
const worker = "caisson-images"

// stored returns how many blobs, layers and parts of blobs the engine has. What a lease holds
// stays among them.
func stored(t testing.TB, d *harness.Daemon) (n int) {
	t.Helper()
	blobs, snapshots := store(d)
	for _, dir := range []string{blobs, snapshots, filepath.Join(blobs, "..", "..", "ingest"), filepath.Join(d.Root, "spool")} {
		entries, err := os.ReadDir(dir)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		n += len(entries)
	}
	return n
}

// wasKilled expects of a call that it tells of the work that was killed, and what to do.
func wasKilled(t *testing.T, r harness.Result, work string) {
	t.Helper()
	f := r.Refused(t, "SBX-233")
	said := f.Error.Message + f.Error.Cause
	if !strings.Contains(said, worker+", which was to "+work+", was killed: killed") || !strings.Contains(f.Error.Remedy, "try again") {
		t.Errorf("the error is %+v, which does not tell of %q", f.Error, work)
	}
}

// killWorker kills the next process of the daemon that parses something.
func killWorker(t *testing.T, d *harness.Daemon) {
	t.Helper()
	await(t, "process that parses", func() bool {
		pids := programs(t, d, worker)
		if len(pids) == 0 {
			return false
		}
		kill9(t, pids[0])
		return true
	})
}

// holding is a registry whose layers come when the test lets them.
type holding struct {
	*regtest.Registry
	host    string
	mu      sync.Mutex
	held    map[string]bool // digests
	reached chan string     // the digests that somebody waits for
	letGo   chan struct{}
}

func newHolding(t *testing.T) *holding {
	t.Helper()
	h := &holding{Registry: regtest.Start(t), held: map[string]bool{}, reached: make(chan string, 8), letGo: make(chan struct{})}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
		h.mu.Lock()
		held := h.held[asked]
		h.mu.Unlock()
		if held && r.Method == http.MethodGet {
			h.reached <- asked
			select {
			case <-h.letGo:
			case <-r.Context().Done():
				return
			}
		}
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	h.host = strings.TrimPrefix(server.URL, "http://")
	return h
}

// push pushes an image of one layer, which is held.
func (h *holding) push(t *testing.T, repo string) (name string) {
	t.Helper()
	_, m := h.Push(t, repo, "1", regtest.Tar(t, "mark", repo))
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held[m.Layers[0].Digest.Encoded()] = true
	h.held[m.Layers[0].Digest.String()] = true
	return h.host + "/" + repo + ":1"
}

// A process that is killed at its work ends one request, which is told, and no other: the one that
// asks the registry, and the one that reads what comes.
func TestKilledImagePull(t *testing.T) {
	h := newHolding(t)
	d := harness.StartWith(t, fmt.Sprintf("registries: {allowed: [%q]}\n", h.host))
	d.Run(t, "run", "--", "true")
	before := stored(t, d)
	kept := h.push(t, "kept")
	second := begin(t, d, "image", "pull", "--json", kept)
	<-h.reached
	others := programs(t, d, worker)
	for n := range 2 {
		lost := h.push(t, fmt.Sprint("lost", n))
		first := begin(t, d, "image", "pull", "--json", lost)
		<-h.reached
		of := slices.DeleteFunc(programs(t, d, worker), func(pid int) bool { return slices.Contains(others, pid) })
		if len(of) != 2 || len(others) != 2 {
			t.Fatalf("%d processes of the first pull, %d of the other", len(of), len(others))
		}
		kill9(t, of[n])
		wasKilled(t, first.end(t), "pull "+lost) // while the registry holds its layer
	}
	close(h.letGo)
	if r := second.end(t); r.Code != 0 {
		t.Errorf("the other pull: %+v", r)
	}
	for n := range 2 {
		lost := fmt.Sprintf("%s/lost%d:1", h.host, n)
		d.Run(t, "image", "pull", lost) // nothing is in the way
		d.Run(t, "image", "rm", lost)
	}
	d.Run(t, "image", "rm", kept)
	await(t, "the removal of what the pulls left", func() bool { return stored(t, d) == before })
}

func TestKilledImageImport(t *testing.T) {
	d := harness.Start(t)
	d.Run(t, "run", "--", "true")
	file := filepath.Join(t.TempDir(), "large.tar")
	const size = 256 << 20
	var head bytes.Buffer
	if err := tar.NewWriter(&head).WriteHeader(&tar.Header{Name: "zeros", Mode: 0o644, Size: size, Typeflag: tar.TypeReg}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, head.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(file, size+4<<10); err != nil {
		t.Fatal(err)
	}
	before, open := stored(t, d), d.OpenFiles(t)
	i := begin(t, d, "image", "import", "--json", "--name", "large", file)
	killWorker(t, d)
	wasKilled(t, i.end(t), "read the archive of large")
	await(t, "the removal of what the import left", func() bool { return stored(t, d) == before && d.OpenFiles(t) <= open })
	d.Run(t, "image", "import", "--name", "large", folder(t, "1"))
}

func TestKilledImageBuild(t *testing.T) {
	d := harness.Start(t)
	d.Run(t, "run", "--", "true")
	dir := t.TempDir()
	for name, content := range map[string]string{"Dockerfile": "FROM base\nCOPY mark /\nUSER root\nRUN sleep 3 && cp /mark /two\n", "mark": "1"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{"image", "build", "--json", "--no-cache", "built", dir}
	b := begin(t, d, args...)
	await(t, "the sandbox of the step", func() bool { return len(list(t, d)) > 0 })
	pids := programs(t, d, worker)
	if len(pids) != 1 {
		t.Fatalf("the build has %d processes", len(pids))
	}
	kill9(t, pids[0])
	r := b.end(t)
	r.Stdout = r.Stdout[max(0, strings.Index(r.Stdout, "{\n")):] // behind the steps, a line each
	wasKilled(t, r, "filter the layers of built")
	if usage := d.Run(t, "image", "du").Stdout; strings.Contains(usage, "build-context") || strings.Contains(d.Run(t, "image", "ls").Stdout, "built") {
		t.Errorf("something is left:\n%s", usage)
	}
	d.AwaitNoSandbox(t)
	d.Run(t, "image", "build", "built", dir)
	if out := d.Run(t, "run", "--image", "built", "--", "cat", "/two").Stdout; out != "1" {
		t.Errorf("the repeated build made %q", out)
	}
}

// hostileLayer is a root file system of so many directories that what remembers them does not
// fit into the memory of the process.
func hostileLayer(t *testing.T) (file string) {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	deep := strings.Repeat("/d", 43)
	for n := range 60_000 {
		if err := w.WriteHeader(&tar.Header{Name: fmt.Sprintf("n%d%s/", n, deep), Mode: 0o755, Typeflag: tar.TypeDir}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "hostile.tar")
	if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// What takes memory in a layer ends the process that reads it. The daemon has then as much as
// before, and serves on.
func TestHostileImageMemory(t *testing.T) {
	d := harness.StartWith(t, "images: {max_entries: 100000000}\n")
	d.Run(t, "run", "--", "true")
	d.Run(t, "image", "import", "--name", "sound", folder(t, "1"))
	before, had := stored(t, d), d.PeakMemory(t)
	f := d.Refused(t, "SBX-233", "image", "import", "--json", "--name", "hostile", hostileLayer(t))
	if said := f.Error.Message + f.Error.Cause; !strings.Contains(said, "read the archive of hostile, ran out of its memory of 768 MiB") || !strings.Contains(f.Error.Remedy, "fewer files") {
		t.Errorf("the error is %+v", f.Error)
	}
	const most = 64 << 20
	if used := d.PeakMemory(t) - had; used > most {
		t.Errorf("the daemon took %d MiB for it", used>>20)
	} else {
		t.Logf("the daemon took %d MiB for it", used>>20)
	}
	if pids := programs(t, d, worker); len(pids) > 0 {
		t.Errorf("processes %v are left", pids)
	}
	await(t, "the removal of what the import left", func() bool { return stored(t, d) == before })
	d.Run(t, "run", "--image", "sound", "--", "true")
}
