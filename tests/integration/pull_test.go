package integration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caisson-run/caisson/tests/harness"
	"github.com/caisson-run/caisson/tests/need"
	"github.com/caisson-run/caisson/tests/regtest"
)

// source is a registry on loopback with what a test puts in front.
type source struct {
	*regtest.Registry
	host string

	mu    sync.Mutex
	front func(http.ResponseWriter, *http.Request, http.Handler)
	blobs int // that were asked for
}

func newSource(t *testing.T) *source {
	t.Helper()
	s := &source{Registry: regtest.Start(t)}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		front := s.front
		if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/") {
			s.blobs++
		}
		s.mu.Unlock()
		if front != nil {
			front(w, r, s.Registry)
			return
		}
		s.Registry.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	s.host = strings.TrimPrefix(server.URL, "http://")
	return s
}

func (s *source) set(front func(http.ResponseWriter, *http.Request, http.Handler)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.front, s.blobs = front, 0
}

// fetched returns the number of blobs that were asked for since the last call.
func (s *source) fetched() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.blobs
	s.blobs = 0
	return n
}

func (s *source) config() string { return fmt.Sprintf("registries: {allowed: [%q]}\n", s.host) }

// shell is a layer with a shell.
func shell(t *testing.T) []byte {
	return tarOf(t, []file{
		{name: "bin", dir: true, mode: 0o755}, {name: "bin/busybox", data: busybox(t), mode: 0o4755},
		{name: "bin/sh", link: "busybox"}, {name: "bin/cat", link: "busybox"},
	})
}

// TestPull: an image of a registry is pulled when it is needed, once, and its layers are
// shared with the next one.
func TestPull(t *testing.T) {
	s := newSource(t)
	d := harness.StartWith(t, s.config())
	manifest, _ := s.Push(t, "app", "1", shell(t), regtest.Tar(t, "mark", "one"))
	s.Push(t, "app", "2", shell(t), regtest.Tar(t, "mark", "two"))
	name := s.host + "/app:1"

	d.Refused(t, "SBX-201", "run", "--json", "--pull", "never", "--image", name, "--", "cat", "/mark")
	if out := d.Run(t, "run", "--image", name, "--", "cat", "/mark").Stdout; out != "one" {
		t.Errorf("run printed %q", out)
	}
	if n := s.fetched(); n != 3 { // a configuration and two layers
		t.Errorf("%d blobs were fetched", n)
	}
	if out := d.Run(t, "run", "--image", s.host+"/app:2", "--", "cat", "/mark").Stdout; out != "two" {
		t.Errorf("run printed %q", out)
	}
	if n := s.fetched(); n != 2 { // not the layer that both have
		t.Errorf("%d blobs were fetched for the second image", n)
	}
	if r := d.Run(t, "image", "pull", name); !strings.Contains(r.Stderr, "is up to date") {
		t.Errorf("pulled again: %q", r.Stderr)
	}
	d.Run(t, "run", "--image", name, "--", "cat", "/mark")
	if n := s.fetched(); n != 1 { // the configuration, to find out that nothing has changed
		t.Errorf("%d blobs were fetched for what is there", n)
	}

	s.Push(t, "app", "1", shell(t), regtest.Tar(t, "mark", "new"))
	if out := d.Run(t, "run", "--image", name, "--", "cat", "/mark").Stdout; out != "one" {
		t.Errorf("run printed %q", out)
	}
	if out := d.Run(t, "run", "--pull", "always", "--image", name, "--", "cat", "/mark").Stdout; out != "new" {
		t.Errorf("run --pull always printed %q", out)
	}
	pinned := s.host + "/app@" + manifest.Digest.String()
	if out := d.Run(t, "run", "--image", pinned, "--", "cat", "/mark").Stdout; out != "one" {
		t.Errorf("run of %s printed %q", pinned, out)
	}
	id := strings.TrimSpace(d.Run(t, "create", "--pull", "always", "--image", s.host+"/app:2").Stdout)
	if out := d.Run(t, "exec", id, "--", "cat", "/mark").Stdout; out != "two" {
		t.Errorf("exec printed %q", out)
	}
	d.Run(t, "rm", "--force", id)

	var detail struct {
		Source string `json:"source"`
		Report struct {
			Stripped map[string]int64 `json:"stripped"`
		} `json:"report"`
	}
	d.Run(t, "image", "inspect", name).JSONIn(t, "image", &detail)
	if detail.Source != "registry" {
		t.Errorf("inspect: %+v", detail)
	}
}

// TestPullRefused: each refusal has its code, and nothing is asked that must not be.
func TestPullRefused(t *testing.T) {
	s := newSource(t)
	d := harness.StartWith(t, s.config())
	s.Push(t, "hostile", "1", regtest.Tar(t, "../../etc/caisson-was-here", "x"))
	for name, code := range map[string]string{
		"debian:12":                      "SBX-101",
		"registry.example.com/debian:12": "SBX-224",
		s.host + "/absent:1":             "SBX-201",
		s.host + "/hostile:1":            "SBX-203",
	} {
		d.Refused(t, code, "image", "pull", "--json", name)
	}
	if _, err := os.Stat("/etc/caisson-was-here"); err == nil {
		t.Error("a layer wrote to the host")
	}
	if f := d.Refused(t, "SBX-201", "run", "--json", "--image", "registry.example.com/debian:12", "--", "true"); !strings.Contains(f.Error.Remedy, "registries.allowed") {
		t.Errorf("the remedy is %q", f.Error.Remedy)
	}
	s.Push(t, "app", "1", shell(t))
	s.set(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if !strings.Contains(r.URL.Path, "/blobs/") {
			next.ServeHTTP(w, r)
			return
		}
		whole := httptest.NewRecorder()
		next.ServeHTTP(whole, r)
		whole.Body.Bytes()[0] ^= 1
		w.Header().Set("Content-Length", fmt.Sprint(whole.Body.Len()))
		_, _ = w.Write(whole.Body.Bytes())
	})
	f := d.Refused(t, "SBX-202", "image", "pull", "--json", s.host+"/app:1")
	if !strings.Contains(f.Error.Message, s.host+"/app:1") || !strings.Contains(f.Error.Remedy, "pull again") {
		t.Errorf("a damaged image: %+v", f.Error)
	}
	var list []struct{ Name string }
	d.Run(t, "image", "ls", "-o", "json").JSON(t, &list)
	if len(list) != 1 {
		t.Errorf("there are %+v", list)
	}
}

// TestPullAirGapped: no connection is made, and the error lists the images that are there.
func TestPullAirGapped(t *testing.T) {
	s := newSource(t)
	asked := 0
	s.set(func(w http.ResponseWriter, r *http.Request, next http.Handler) { asked++; next.ServeHTTP(w, r) })
	d := harness.StartWith(t, s.config()+"air_gapped: true\n")
	f := d.Refused(t, "SBX-224", "image", "pull", "--json", s.host+"/app:1")
	if !strings.Contains(f.Error.Message+f.Error.Cause, "base") {
		t.Errorf("the error is %+v", f)
	}
	if f := d.Refused(t, "SBX-224", "image", "pull", "--json", "base"); strings.Contains(f.Error.Message+f.Error.Cause, "no image") {
		t.Errorf("an image that is there: %+v", f)
	}
	d.Refused(t, "SBX-201", "run", "--json", "--image", s.host+"/app:1", "--", "true")
	if asked > 0 {
		t.Errorf("the registry was asked %d times", asked)
	}
}

// TestPullAfterKill: a pull goes on where the killed daemon was.
func TestPullAfterKill(t *testing.T) {
	s := newSource(t)
	d := harness.StartWith(t, s.config())
	noise := make([]byte, 4<<20)
	for i, x := 0, uint32(7); i < len(noise); i++ {
		x = x*1664525 + 1013904223
		noise[i] = byte(x >> 24)
	}
	s.Push(t, "app", "1", shell(t), regtest.Tar(t, "noise", string(noise)))
	reached, ranges := make(chan struct{}), 0
	var once sync.Once
	s.set(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		whole := httptest.NewRecorder()
		next.ServeHTTP(whole, r)
		for k, v := range whole.Header() {
			w.Header()[k] = v
		}
		w.WriteHeader(whole.Code)
		data := whole.Body.Bytes()
		if len(data) < 3<<20 {
			_, _ = w.Write(data)
			return
		}
		_, _ = w.Write(data[:2<<20])
		_ = http.NewResponseController(w).Flush()
		once.Do(func() { close(reached) })
		<-r.Context().Done()
	})
	ended := make(chan harness.Result, 1)
	go func() { ended <- d.Try("image", "pull", s.host+"/app:1") }()
	<-reached
	awaitPart(t, filepath.Join(d.Root, "spool"), 3<<19)
	d.Kill(t)
	if r := <-ended; r.Code == 0 {
		t.Fatal("the pull succeeded")
	}
	d.Launch(t)
	s.set(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.Header.Get("Range") != "" {
			ranges++
		}
		next.ServeHTTP(w, r)
	})
	if out := d.Run(t, "run", "--image", s.host+"/app:1", "--", "sh", "-c", "cat /noise | busybox wc -c").Stdout; strings.TrimSpace(out) != fmt.Sprint(len(noise)) {
		t.Errorf("run printed %q", out)
	}
	if ranges == 0 {
		t.Error("all of it was fetched again")
	}
	if left, err := os.ReadDir(filepath.Join(d.Root, "spool")); err != nil || len(left) > 0 {
		t.Errorf("left in the spool: %v, %v", left, err)
	}
}

// awaitPart waits until a file of dir has so many bytes.
func awaitPart(t *testing.T, dir string, size int64) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if info, err := e.Info(); err == nil && info.Size() >= size {
				return
			}
		}
	}
	t.Fatal("nothing was spooled")
}

// TestPullCredentials: the user's own program runs the credential helper, and the password
// is in no log.
func TestPullCredentials(t *testing.T) {
	s := newSource(t)
	d := harness.StartWith(t, s.config())
	s.Push(t, "app", "1", shell(t))
	const password = "a-password-that-nobody-sees"
	s.set(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if user, given, _ := r.BasicAuth(); user != "ann" || given != password {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
	d.Refused(t, "SBX-226", "image", "pull", "--json", s.host+"/app:1")
	dir := t.TempDir()
	helper := fmt.Sprintf("#!/bin/sh\ncat >/dev/null\necho '{\"ServerURL\":\"x\",\"Username\":\"ann\",\"Secret\":\"%s\"}'\n", password)
	config, err := json.Marshal(map[string]any{"credHelpers": map[string]string{s.host: "test"}})
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string]string{"docker-credential-test": helper, "config.json": string(config)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	cmd := d.Command(t.Context(), "image", "pull", "-o", "json", s.host+"/app:1")
	cmd.Env = append(cmd.Env, "DOCKER_CONFIG="+dir, "PATH="+dir+":"+os.Getenv("PATH"))
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s%s", err, stdout.String(), stderr.String())
	}
	if !strings.Contains(stderr.String(), `"state":"stored"`) {
		t.Errorf("progress: %s", stderr.String())
	}
	if strings.Contains(d.Log()+stdout.String()+stderr.String(), password) {
		t.Error("the password is in a log")
	}
}

// TestPullAll: what profiles name is fetched in one go.
func TestPullAll(t *testing.T) {
	s := newSource(t)
	s.Push(t, "app", "1", shell(t), regtest.Tar(t, "mark", "of the profile"))
	d := harness.StartWith(t, s.config()+fmt.Sprintf("profiles: {app: {image: %q}, other: {image: base}}\n", s.host+"/app:1"))
	d.Run(t, "image", "pull", "--all")
	if out := d.Run(t, "run", "--profile", "app", "--", "cat", "/mark").Stdout; out != "of the profile" {
		t.Errorf("run printed %q", out)
	}
}

// TestPullAtStart: the daemon fetches the image of a language at its start, with root's
// credentials. An absent image holds up neither the others nor the daemon.
func TestPullAtStart(t *testing.T) {
	s := newSource(t)
	s.Push(t, "app", "1", shell(t), regtest.Tar(t, "mark", "of the language"))
	s.set(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if user, password, _ := r.BasicAuth(); user != "ann" || password != "secret" {
			w.Header().Set("WWW-Authenticate", `Basic realm="here"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
	file := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(file, fmt.Appendf(nil, `{"auths": {%q: {"auth": "YW5uOnNlY3JldA=="}}}`, s.host), 0o600); err != nil {
		t.Fatal(err)
	}
	d := harness.StartWith(t, fmt.Sprintf("registries: {allowed: [%q], pull_at_start: true, credentials: %q}\nprofiles: {other: {image: %q}}\nimages: {languages: {go: %q}}\n",
		s.host, "file:"+file, s.host+"/absent:1", s.host+"/app:1"))
	if out := d.Run(t, "run", "--", "echo", "ok").Stdout; out != "ok\n" {
		t.Errorf("a run printed %q", out)
	}
	present := func() bool {
		return d.Try("run", "--pull", "never", "--image", s.host+"/app:1", "--", "cat", "/mark").Stdout == "of the language" && strings.Contains(d.Log(), "absent:1")
	}
	await(t, "the image, and a word of the absent one", present)
}

// TestPullVerified: the rule that an image satisfies is recorded, and an image whose rule
// has changed is not used.
func TestPullVerified(t *testing.T) {
	s := newSource(t)
	manifest, _ := s.Push(t, "app", "1", shell(t))
	d := harness.StartWith(t, s.config()[:len(s.config())-2]+", verify: [{repository: \"*\", require: digest}]}\n")
	tag, pinned := s.host+"/app:1", s.host+"/app:1@"+manifest.Digest.String()
	if f := d.Refused(t, "SBX-227", "run", "--json", "--image", tag, "--", "sh", "-c", ":"); !strings.Contains(f.Error.Remedy, pinned) {
		t.Errorf("the remedy is %q", f.Error.Remedy)
	}
	for range 2 { // as it is pulled, and as it is there
		var r struct {
			Sandbox struct {
				ImageVerified string `json:"image_verified"`
			}
		}
		d.Run(t, "run", "--json", "--image", pinned, "--", "sh", "-c", ":").JSONIn(t, "result", &r)
		if r.Sandbox.ImageVerified != "digest" {
			t.Errorf("the result says %+v", r)
		}
	}
	var image struct {
		Verified string `json:"verified"`
		Target   string `json:"target_digest"`
		Source   string `json:"source_digest"`
	}
	d.Run(t, "image", "inspect", tag).JSONIn(t, "image", &image)
	if image.Verified != "digest" || image.Target != manifest.Digest.String() || image.Source != image.Target {
		t.Errorf("inspect says %+v", image)
	}
	for _, event := range []string{"image.imported", "sandbox.created"} {
		if log := d.Run(t, "audit", "query", "--json", "--type", event).Stdout; !strings.Contains(log, `"image_verified":"digest"`) {
			t.Errorf("the audit log has %s", log)
		}
	}
	d.Stop(t)
	d.Config = s.config()[:len(s.config())-2] + ", verify: [{repository: \"*\", require: digest, digests: [" + manifest.Digest.String() + "]}]}\n"
	d.Launch(t)
	d.Refused(t, "SBX-227", "run", "--json", "--image", tag, "--", "sh", "-c", ":")
	d.Run(t, "image", "pull", tag) // of which nothing but the documents is fetched
	d.Run(t, "run", "--image", tag, "--", "sh", "-c", ":")
}

// TestPullOwners: what a user pulls is that user's own, and a private layer serves nobody else.
func TestPullOwners(t *testing.T) {
	s := newSource(t)
	s.Push(t, "app", "1", shell(t), regtest.Tar(t, "mark", "private"))
	d := harness.StartWith(t, s.config()+"peers: [{uids: [54321, 54322], images: true, quota: {images: 16M}}, {uids: [54323]}]\n")
	a, b, c := d.User(t, ann), d.User(t, bob), d.User(t, 54323)
	name := s.host + "/app:1"
	a.Run(t, "image", "pull", name)
	if n := s.fetched(); n != 3 {
		t.Errorf("ann fetched %d blobs", n)
	}
	b.Run(t, "image", "pull", name)
	if n := s.fetched(); n != 3 {
		t.Errorf("bob fetched %d blobs: a configuration and both layers are 3", n)
	}
	d.Run(t, "image", "pull", name) // root sees all
	if n := s.fetched(); n != 1 {
		t.Errorf("root fetched %d blobs", n)
	}
	for who, list := range map[uint32][]listedImage{ann: images(t, a.Run), bob: images(t, b.Run)} {
		for _, i := range list {
			if i.Owner != 0 && i.Owner != who {
				t.Errorf("%d sees %+v", who, i)
			}
		}
	}
	for u, code := range map[*harness.User]string{&c: "SBX-805"} {
		u.Try("image", "pull", "--json", name).Refused(t, code)
	}
	a.Try("image", "pull", "--json", "--all").Refused(t, "SBX-805")
	s.Push(t, "app", "large", shell(t), regtest.Tar(t, "noise", strings.Repeat("much the same ", 2<<20)))
	a.Try("image", "pull", "--json", s.host+"/app:large").Refused(t, "SBX-204")
	if left, err := os.ReadDir(filepath.Join(d.Root, "spool")); err != nil || len(left) > 0 {
		t.Errorf("left in the spool: %v, %v", left, err)
	}
}

// TestPullFromOthers: what another tool pushes is pulled.
func TestPullFromOthers(t *testing.T) {
	need.Tools(t, "skopeo")
	s := newSource(t)
	d := harness.StartWith(t, s.config())
	archive := writeTar(t, ociLayout(t, "pushed"))
	for _, format := range []string{"oci", "v2s2"} {
		name := s.host + "/pushed:" + format
		if out, err := exec.Command("skopeo", "copy", "--dest-tls-verify=false", "--format", format, "oci-archive:"+archive, "docker://"+name).CombinedOutput(); err != nil {
			t.Fatalf("skopeo: %v: %s", err, out)
		}
		if out := d.Run(t, "run", "--image", name, "--", "cat", "/mark").Stdout; out != "pushed" {
			t.Errorf("%s: run printed %q", format, out)
		}
	}
}
