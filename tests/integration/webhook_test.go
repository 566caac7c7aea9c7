package integration

import (
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/tests/harness"
)

// TestWebhook: a server of the operator's is told of the events that it asks for, also of
// those from before it answered. A secret that others can read is refused.
func TestWebhook(t *testing.T) {
	const patience = 30 * time.Second
	got := make(chan string, 100)
	fails := 2
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if fails--; fails >= 0 || err != nil || !strings.HasPrefix(r.Header.Get("Webhook-Signature"), "v1,") {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		got <- string(body)
	}))
	t.Cleanup(s.Close)
	file := filepath.Join(t.TempDir(), "secret")
	secret := "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 32))
	if err := os.WriteFile(file, []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf("webhooks:\n  - {url: %s/hook, secret_file: %s, filter: [type=daemon.started, type=sandbox.*]}\n", s.URL, file)
	d := harness.StartWith(t, config)
	id := strings.TrimSpace(d.Run(t, "create", "--name", "told").Stdout)
	d.Run(t, "exec", id, "--", "true")
	d.Run(t, "rm", "--force", id)
	for _, want := range []string{"daemon.started", "sandbox.created", "sandbox.ended", "sandbox.removed"} {
		select {
		case e := <-got:
			if !strings.Contains(e, `"type":"run.caisson.`+want+`"`) || want != "daemon.started" && !strings.Contains(e, id) {
				t.Fatalf("delivered %s, want %s", e, want)
			}
		case <-time.After(patience):
			t.Fatalf("%s is not delivered within %v", want, patience)
		}
	}
	if strings.Contains(d.Log(), secret) {
		t.Error("the log holds the secret")
	}

	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	refused := harness.New(t)
	settings := filepath.Join(refused.Root, "config.yaml")
	for text, want := range map[string]string{
		config: "has the mode 0644",
		strings.Replace(config, "sandbox.*", "sandbx.*", 1): "SBX-105",
	} {
		if err := os.WriteFile(settings, []byte("ids: {blocks: 64}\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(harness.Bin(t, "caissond"), "--config", settings, "--root", refused.Root, "--state", refused.State).CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) || !strings.Contains(string(out), "SBX-105") {
			t.Errorf("%v, want %q:\n%s", err, want, out)
		}
	}
}
