package network

import (
	"net/http"
	"net/url"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/tests/harness"
)

// Where this machine has a way out, the address that its Go toolchain is
// configured with is reached by its name and by nothing else. What it answers does
// not matter.
func TestRealWorld(t *testing.T) {
	out, err := exec.Command("go", "env", "GOPROXY").Output()
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(strings.TrimSpace(string(out)), ",")
	u, err := url.Parse(first)
	if err != nil || !strings.HasPrefix(u.Scheme, "http") {
		harness.Except(t, "the Go toolchain is configured with no address", true)
	}
	client := &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{}} // with no proxy, as the gateway
	r, err := client.Get(first)
	if err != nil {
		harness.Except(t, "this machine has no way out", true)
	}
	_ = r.Body.Close()

	d := launchIn(t, nil, "") // in the host's own namespace
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	get := func(flags ...string) string {
		args := append([]string{"run", "--workspace", clientDir(t) + ":ro"}, flags...)
		r := d.Try(append(args, "--", "/workspace/client", "http", first)...)
		return r.Stdout + r.Stderr
	}
	if said := get("--allow", u.Hostname()+":"+port+",private"); strings.Contains(said, "error:") || strings.Contains(said, "SBX-") || said == "" {
		t.Errorf("allowed: %.300q", said)
	}
	for _, flags := range [][]string{nil, {"--allow", "elsewhere.example"}} {
		if said := get(flags...); !strings.Contains(said, "error:") {
			t.Errorf("%q: %.300q", flags, said)
		}
	}
}
