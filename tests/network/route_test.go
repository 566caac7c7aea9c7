package network

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-run/caisson/tests/harness"
	"github.com/caisson-run/caisson/tests/need"
)

// canary is the value of a secret. Nothing else on the host holds it.
const canary = "sk-canary-5f0e7d3b9a1c4826"

// models is an upstream that answers with the credential that it got.
type models struct {
	ca     string           // file with its root
	answer http.HandlerFunc // nil: what it was asked

	mu   sync.Mutex
	seen []*http.Request
}

const modelsAt = elsewhere + ":8443"

func startModels(t *testing.T) *models {
	t.Helper()
	cert, root := issued(t, "models.example")
	m := &models{ca: writeFile(t, "ca.pem", root)}
	l, err := host.far.listenSoon(modelsAt)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: m, TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}}, ErrorLog: log.New(io.Discard, "", 0)}
	go server.ServeTLS(l, "", "") // it ends with its listener
	host.dns.set("models.example", elsewhere)
	t.Cleanup(func() {
		host.dns.forget("models.example")
		_ = server.Close()
	})
	return m
}

func (m *models) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	m.seen = append(m.seen, r)
	m.mu.Unlock()
	if m.answer != nil {
		m.answer(w, r)
		return
	}
	said := r.Header.Get("Authorization")
	w.Header().Set("X-Echo", said)
	fmt.Fprintf(w, "%s %s with %s\n", r.Method, r.URL.Path, said)
}

func (m *models) take() []*http.Request {
	m.mu.Lock()
	defer m.mu.Unlock()
	defer func() { m.seen = nil }()
	return m.seen
}

// issued makes a certificate for a name, and PEM of the root that issued it.
func issued(t *testing.T, name string) (tls.Certificate, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{name}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// writeFile writes a file of root's alone.
func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// routed is a configuration with a route to m.
func routed(m *models, secret string) string {
	return fmt.Sprintf(`network: {dns: [%s]}
secrets: {models-key: "file:%s"}
profiles:
  agent:
    image: tools
    routes:
      models: {upstream: "https://models.example:8443/v1", credential: models-key, methods: [GET, POST], paths: [/models, "/chat/**"], ca: "file:%s"}
`, resolver, secret, m.ca)
}

// A command uses a key that is nowhere in its sandbox, nor anywhere else but in the gateway.
func TestRoute(t *testing.T) {
	need.Tools(t, "curl", "dpkg")
	m := startModels(t)
	reaches(t, modelsAt)
	asks(t, "models.example")
	key := writeFile(t, "key", canary+"\n")
	d := launch(t, routed(m, key))
	d.Run(t, "image", "from-host", "tools", "--package", "curl")
	s := createFor(t, d, "--profile", "agent")
	curl := func(args ...string) string {
		t.Helper()
		r := d.Try(append([]string{"exec", s.id, "--", "curl", "-sS", "-i", "-m", "20", "--noproxy", "*"}, args...)...)
		return r.Stdout + r.Stderr
	}
	const base = "http://models.caisson.internal"
	t.Run("the key arrives, and does not come back", func(t *testing.T) {
		got := curl("-H", "Authorization: Bearer my-own", "-H", "X-Api-Key: my-own", "-d", "{}", base+"/chat/completions?token=my-own")
		if !strings.Contains(got, "200 OK") || !strings.Contains(got, "POST /v1/chat/completions with Bearer "+strings.Repeat("*", len(canary))) || strings.Contains(got, canary) {
			t.Errorf("the answer is %q", got)
		}
		seen := m.take()
		if len(seen) != 1 || seen[0].Header.Get("Authorization") != "Bearer "+canary || seen[0].Host != "models.example:8443" || seen[0].URL.RawQuery != "" || seen[0].Header.Get("X-Api-Key") != "" {
			t.Errorf("the upstream was asked %+v", seen)
		}
	})
	t.Run("what the route does not allow does not get out", func(t *testing.T) {
		for _, args := range [][]string{{base + "/files"}, {"-X", "DELETE", base + "/models"}, {"--path-as-is", base + "/chat/../files"}, {"-H", "Host: other.example", base + "/models"}} {
			if got := curl(args...); !strings.Contains(got, "403 Forbidden") || !strings.Contains(got, "SBX-7") {
				t.Errorf("%q: %q", args, got)
			}
		}
		for _, url := range []string{"https://models.caisson.internal/models", "http://models.caisson.internal:8080/models", "http://other.caisson.internal/", "https://models.example:8443/v1/models"} {
			if got := curl(url); strings.Contains(got, "HTTP/") {
				t.Errorf("%s: %q", url, got)
			}
		}
		if seen := m.take(); len(seen) != 0 {
			t.Errorf("the upstream was asked %+v", seen)
		}
	})
	t.Run("each request has a record", func(t *testing.T) {
		list := s.recorded(t, func(list []entry) bool { return len(requests(list)) >= 5 })
		all := requests(list)
		if len(all) != 5 || all[0].Type != "POST /chat/completions" || all[0].Verdict != "allowed" || all[0].Rule != "route models" || !strings.Contains(all[0].Reason, `status 200, credential "models-key"`) {
			t.Errorf("%+v", all)
		}
		if r := all[len(all)-1]; r.Verdict != "refused" || r.Code != "SBX-703" {
			t.Errorf("%+v", r)
		}
		audit := d.Run(t, "audit", "query", "--json", "--type", "network.tried").Stdout
		if !strings.Contains(audit, `"request":"POST /chat/completions"`) || !strings.Contains(audit, `"credential":"models-key"`) || !strings.Contains(audit, `"status":200`) {
			t.Errorf("the audit log has %q", audit)
		}
	})
	searchCanary(t, d, s, "models-key", "models.example")
	t.Run("another value is used after a reload", func(t *testing.T) {
		if err := os.WriteFile(key, []byte("another-key-0123456789\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		d.Run(t, "config", "reload")
		m.take()
		if got := curl(base + "/models"); !strings.Contains(got, "200 OK") {
			t.Errorf("%q", got)
		}
		if seen := m.take(); len(seen) != 1 || seen[0].Header.Get("Authorization") != "Bearer another-key-0123456789" {
			t.Errorf("the upstream was asked %+v", seen)
		}
	})
	t.Run("the gateway that follows a dead one has the key", func(t *testing.T) {
		old := gatewayOf(t, d)
		if err := syscall.Kill(old, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		until(10*time.Second, func() bool { return strings.Contains(curl(base+"/models"), "200 OK") })
		if seen := m.take(); len(seen) == 0 || gatewayOf(t, d) == old {
			t.Errorf("the upstream was asked %+v", seen)
		}
	})
}

func requests(list []entry) (found []entry) {
	for _, e := range list {
		if e.Kind == "request" {
			found = append(found, e)
		}
	}
	return found
}

// searchCanary looks for the value of the secret everywhere but in the gateway. The name of
// the secret and that of its upstream are the controls.
func searchCanary(t *testing.T, d *harness.Daemon, s sandbox, secret, upstream string) {
	forms := [][]byte{[]byte(canary), []byte(base64.StdEncoding.EncodeToString([]byte(canary)))[:30]}
	holds := func(b []byte) bool { return bytes.Contains(b, forms[0]) || bytes.Contains(b, forms[1]) }
	t.Run("no process but the gateway holds the key", func(t *testing.T) {
		gateway := gatewayOf(t, d)
		// The controls: what each process holds is found in it.
		if !memoryHolds(t, d.PID(), func(b []byte) bool { return bytes.Contains(b, []byte(secret)) }) {
			t.Error("the name of the secret is not found in the daemon")
		}
		if !memoryHolds(t, gateway, func(b []byte) bool { return bytes.Contains(b, []byte(upstream)) }) {
			t.Error("the upstream is not found in the gateway")
		}
		all := ofDaemon(t, d)
		if len(all) < 5 { // the daemon, its containerd, the gateway, a shim, PID 1 of the sandbox
			t.Fatalf("only the processes %v", all)
		}
		for _, pid := range all {
			for _, file := range []string{"environ", "cmdline"} {
				if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file)); err == nil && holds(b) {
					t.Errorf("%s of process %d holds it", file, pid)
				}
			}
			if pid != gateway && memoryHolds(t, pid, holds) {
				t.Errorf("the memory of process %d holds it", pid)
			}
		}
	})
	t.Run("no file, log, event or record holds the key", func(t *testing.T) {
		files := 0
		for _, dir := range []string{d.Root, d.State} {
			_ = filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
				if err != nil || !e.Type().IsRegular() {
					return nil
				}
				b, err := os.ReadFile(path)
				if err == nil {
					files++
				}
				if holds(b) {
					t.Errorf("%s holds it", path)
				}
				return nil
			})
		}
		if files < 20 {
			t.Errorf("only %d files were searched", files)
		}
		for what, text := range map[string]string{
			"the log": d.Log(), "the policy log": d.Run(t, "policy", "log", "--json", s.id).Stdout, "the audit log": d.Run(t, "audit", "query", "--json").Stdout,
			"the sandbox": d.Run(t, "inspect", s.id).Stdout, "its environment": d.Run(t, "exec", s.id, "--", "env").Stdout,
		} {
			if text == "" || holds([]byte(text)) {
				t.Errorf("%s holds it, or is empty: %.200q", what, text)
			}
		}
	})
}

// Bad secrets and routes are refused with the key that is wrong.
func TestRouteRefused(t *testing.T) {
	m := startModels(t)
	key := writeFile(t, "key", canary)
	good := routed(m, key)
	d := launch(t, good)
	open := writeFile(t, "open", canary)
	if err := os.Chmod(open, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ from, to, says string }{
		{"credential: models-key", "credential: other", `profiles.agent.routes.models.credential: there is no secret "other"`},
		{"file:" + key, canary, "secrets.models-key: is no reference"},
		{"file:" + key, "credential:../models-key", "secrets.models-key: is no credential of systemd"},
		{"file:" + key, "credential:models-key", "secrets.models-key: credential \"models-key\": systemd gave the daemon none"},
		{"file:" + key, "env:MODELS-KEY", "secrets.models-key: is no name of a variable"},
		{"file:" + key, "env:MODELS_KEY", "secrets.models-key: variable \"MODELS_KEY\" was not in the environment when the daemon started"},
		{"file:" + key, "command:pass show key", "secrets.models-key: \"pass\" is not a clean absolute path"},
		{"file:" + key, "command:/bin/false", "secrets.models-key: command \"/bin/false\" failed: exit status 1"},
		{key, key + "-absent", "secrets.models-key: open"},
		{key, open, "secrets.models-key: file"},
		{key, writeFile(t, "short", "short"), "has 5 bytes: a secret has at least 8"},
		{"https://models.example:8443/v1", "ftp://models.example/", `profiles.agent.routes.models: route "models": its upstream "ftp://models.example/" is no URL with https or http`},
		{"https://models.example:8443/v1", "https://me:secret@models.example/", "its upstream holds credentials"},
		{"/models,", "/a/**/b,", `the path "/a/**/b" has ** before its end`},
		{"[GET, POST]", "[TRACE]", `"TRACE" is no method that is passed on`},
		{"      models: {", "      Models: {", "its name is not one label of small letters"},
		{m.ca, key, "its ca holds no certificate"},
		{"    routes:\n", "    routes:\n      models: {upstream: \"https://other.example\"}\n", `mapping key "models" already defined`},
		{"image: tools\n", "image: tools\n    network: {mode: none}\n", "the profile has routes"},
	} {
		if !strings.Contains(good, tt.from) {
			t.Fatalf("%q is not there", tt.from)
		}
		d.Configure(t, strings.Replace(good, tt.from, tt.to, 1))
		r := d.Try("config", "reload")
		if said := r.Stdout + r.Stderr; r.Code == 0 || !strings.Contains(said, tt.says) || !strings.Contains(said, "SBX-105") || strings.Contains(said, canary) {
			t.Errorf("%q: code %d, %s; want %q", tt.to, r.Code, said, tt.says)
		}
	}
	d.Configure(t, good)
	d.Run(t, "config", "reload")
}

// ofDaemon lists the processes of d and of its sandboxes: those that name its directories, as
// shims do, and all that descend from one.
func ofDaemon(t *testing.T, d *harness.Daemon) []int {
	t.Helper()
	parents := map[int]int{}
	found := []int{d.PID()}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		child, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		text, _ := os.ReadFile("/proc/" + e.Name() + "/stat") // it may have ended
		if i := bytes.LastIndexByte(text, ')'); i > 0 {
			parents[child], _ = strconv.Atoi(strings.Fields(string(text[i+1:]))[1])
		}
		line, _ := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		if child != os.Getpid() && child != d.PID() && bytes.Contains(line, []byte(d.State)) {
			found = append(found, child)
		}
	}
	for i := 0; i < len(found); i++ {
		for child, parent := range parents {
			if parent == found[i] && !slices.Contains(found, child) {
				found = append(found, child)
			}
		}
	}
	return found
}

// gatewayOf is the gateway of d.
func gatewayOf(t *testing.T, d *harness.Daemon) int {
	t.Helper()
	for _, pid := range ofDaemon(t, d) {
		if line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); bytes.Contains(line, []byte("caisson-gateway")) {
			return pid
		}
	}
	return 0
}

// memoryHolds looks through all that can be read of a process's memory.
func memoryHolds(t *testing.T, pid int, holds func([]byte) bool) bool {
	t.Helper()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return false // it has ended
	}
	memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	for line := range strings.Lines(string(maps)) {
		var from, to int64
		if _, err := fmt.Sscanf(line, "%x-%x rw", &from, &to); err != nil {
			continue // nothing was written to it
		}
		const part, overlap = 16 << 20, 64
		for at := from; at < to; at += part {
			b := make([]byte, min(part+overlap, to-at))
			if n, _ := memory.ReadAt(b, at); holds(b[:n]) {
				return true
			}
		}
	}
	return false
}
