package integration

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caisson-run/caisson/tests/harness"
)

// fileServer answers ADD of the tests of builds, on the host's loopback.
type fileServer struct {
	*httptest.Server
	asked atomic.Int64
}

// served is when the files of fileServer changed.
var served = time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)

func (s *fileServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.asked.Add(1)
	w.Header().Set("Last-Modified", served.Format(http.TimeFormat))
	switch r.URL.Path {
	case "/files/one", "/a[0] b":
		_, _ = io.WriteString(w, "one\n") // a client that goes away is its own test
	case "/nodate":
		w.Header().Del("Last-Modified")
		_, _ = io.WriteString(w, "old\n")
	case "/archive.tgz":
		_, _ = w.Write(tgz())
	case "/packed":
		if r.Header.Get("Accept-Encoding") != "" {
			w.Header().Set("Content-Encoding", "gzip")
		}
		_, _ = w.Write(tgz())
	case "/to":
		http.Redirect(w, r, r.URL.RawQuery, http.StatusFound)
	case "/cut":
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, "less")
	case "/endless":
		for r.Context().Err() == nil {
			if _, err := w.Write(make([]byte, 64<<10)); err != nil {
				return
			}
		}
	case "/silent":
		<-r.Context().Done()
	default:
		http.NotFound(w, r)
	}
}

func tgz() []byte {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	t := tar.NewWriter(z)
	_ = t.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "inner", Mode: 0o644, Uid: 7, Gid: 8, Size: 3}) // into memory
	_, _ = io.WriteString(t, "in\n")
	_, _ = t.Close(), z.Close()
	return out.Bytes()
}

// newFileServer serves by https where the daemon is to trust it: before it starts.
func newFileServer(t *testing.T, withTLS bool) *fileServer {
	t.Helper()
	s := &fileServer{}
	s.Server = httptest.NewUnstartedServer(s)
	if withTLS {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s
}

// config leads names to the server.
func (s *fileServer) config() string {
	return fmt.Sprintf("network: {map: {files.example: %[1]q, example.com: %[1]q}}\n", s.Listener.Addr())
}

// TestImageBuildDownloads: ADD fetches by the network of the build. A file with a checksum is
// fetched once, another one each time; what follows is done again if it has changed.
func TestImageBuildDownloads(t *testing.T) {
	s := newFileServer(t, false)
	d := harness.StartWith(t, s.config())
	build := func(file string, flags ...string) harness.Result {
		return d.TryWith("FROM base\nUSER root\n"+file, append([]string{"image", "build", "x", "-f", "-", "--allow", "files.example"}, flags...)...)
	}
	const url = "http://files.example"
	for name, tt := range map[string]struct {
		file  string
		flags []string
		want  []string
	}{
		"other host":  {"ADD http://other.example/x /x\n", nil, []string{"SBX-701", "line 3", "other.example:80", "--allow other.example:80"}},
		"other later": {"ADD " + url + "/to?http://other.example/x /x\n", nil, []string{"SBX-229", "line 3", "the network refused other.example", "--allow other.example"}},
		"gone":        {"ADD " + url + "/gone /x\n", nil, []string{"SBX-229", `/gone: the server answers "404 Not Found"`}},
		"cut":         {"ADD " + url + "/cut /x\n", nil, []string{"SBX-229", "the download failed"}},
		"too big":     {"ADD " + url + "/endless /x\n", []string{"--tmpfs", "16M"}, []string{"SBX-229", "its disk of 16M was full", "--tmpfs 32M"}},
		"too slow":    {"ADD " + url + "/silent /x\n", []string{"--timeout", "1s"}, []string{"SBX-229", "it timed out", "--timeout"}},
		"checksum":    {"ADD --checksum=sha256:" + strings.Repeat("0", 64) + " " + url + "/files/one /x\n", nil, []string{"SBX-229", "sha256:2c8b08da5ce60398e1f19af0e5dccc744df274b826abe585eaba68c525434806, and not sha256:00000"}},
	} {
		r := build(tt.file, tt.flags...)
		for _, want := range tt.want {
			if r.Code == 0 || !strings.Contains(r.Stderr, want) {
				t.Errorf("%s: exit code %d, want %q: %s", name, r.Code, want, r.Stderr)
			}
		}
	}
	if all := names(t, d); all != "base" {
		t.Errorf("images: %s", all)
	}

	const pinned = "ADD --checksum=sha256:2c8b08da5ce60398e1f19af0e5dccc744df274b826abe585eaba68c525434806 " + url + "/files/one /x\n"
	for n, file := range []string{pinned + "RUN stat -c '%a %u:%g %Y' /x\n", "ADD " + url + "/nodate /x\nRUN stat -c '%a %u:%g %Y' /x\n"} {
		before := s.asked.Load()
		first := build(file)
		if want := []string{"600 0:0 981173106", "600 0:0 0"}[n]; first.Code != 0 || !strings.Contains(first.Stderr, "\n"+want+"\n") {
			t.Errorf("exit code %d, want %q: %s", first.Code, want, first.Stderr)
		}
		second := build(file)
		if cached := strings.Count(second.Stderr, "(cached)"); second.Code != 0 || cached != 2-n {
			t.Errorf("the second build took %d steps from the first: %s", cached, second.Stderr)
		}
		if asked := s.asked.Load() - before; asked != int64(1+n) {
			t.Errorf("the server was asked %d times", asked)
		}
	}
}

// TestImageBuildDownloadCut: a client that goes away, and a daemon that dies, end a download and
// leave nothing of it.
func TestImageBuildDownloadCut(t *testing.T) {
	s := newFileServer(t, false)
	d := harness.StartWith(t, s.config())
	for name, cut := range map[string]func(*exec.Cmd) error{
		"client": func(c *exec.Cmd) error { return c.Process.Kill() },
		"daemon": func(*exec.Cmd) error { d.Kill(t); d.Launch(t); return nil },
	} {
		before := s.asked.Load()
		cmd := d.Command(t.Context(), "image", "build", "x", "-f", "-", "--allow", "files.example")
		cmd.Stdin = strings.NewReader("FROM base\nADD http://files.example/silent /x\n")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		await(t, name+": the server is asked", func() bool { return s.asked.Load() > before })
		if err := cut(cmd); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err == nil {
			t.Errorf("%s: the build succeeded", name)
		}
		d.AwaitNoSandbox(t)
		if all := names(t, d); all != "base" {
			t.Errorf("%s: images: %s", name, all)
		}
	}
}

// TestImageBuildDownloadsTLS: the authorities are those of the host.
func TestImageBuildDownloadsTLS(t *testing.T) {
	s := newFileServer(t, true)
	file := filepath.Join(t.TempDir(), "authorities.pem")
	pemFile := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	if err := os.WriteFile(file, pemFile, 0o644); err != nil {
		t.Fatal(err)
	}
	build := func(env ...string) harness.Result {
		d := harness.New(t)
		d.Config, d.Env = s.config(), env
		d.Launch(t)
		defer func() {
			d.Stop(t)
			d.CheckNothingLeft(t)
		}()
		return d.TryWith("FROM base\nADD https://example.com/files/one /x\n", "image", "build", "x", "-f", "-", "--allow", "example.com")
	}
	if r := build(); r.Code == 0 || !strings.Contains(r.Stderr, "certificate signed by unknown authority") {
		t.Errorf("a server that no authority vouches for: exit code %d: %s", r.Code, r.Stderr)
	}
	if r := build("SSL_CERT_FILE=" + file); r.Code != 0 {
		t.Errorf("exit code %d: %s", r.Code, r.Stderr)
	}
}
