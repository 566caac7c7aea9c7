package page

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/tests/harness"
)

// TestUsage shows what requests by a route took, and the secrets without their values.
func TestUsage(t *testing.T) {
	const key = "sk-page-0123456789abcdef"
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"model":"mini","usage":{"prompt_tokens":1000,"completion_tokens":20}}`)
	}))
	t.Cleanup(up.Close)
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte(key), 0o600); err != nil {
		t.Fatal(err)
	}
	d := harness.StartWith(t, fmt.Sprintf(`
page: {listen: "127.0.0.1:0"}
network: {map: {models.example: %q}}
secrets: {models-key: "file:%s"}
prices: {"mini": {input: 1, output: 10}}
profiles:
  agent: {routes: {gpt: {preset: openai, upstream: "http://models.example", credential: models-key}}}
`, up.Listener.Addr(), file))
	b := openBrowser(t)
	whole, origin, token := pageURL(t, d)
	id := create(t, d, "--name", "spender", "--profile", "agent")
	d.Run(t, "exec", id, "--", "sh", "-c", "wget -qO- --post-data '{}' $OPENAI_BASE_URL/chat/completions >/dev/null")
	b.open(t, whole)
	b.await(t, "the secret", section("Secrets")+".match(/models-key[^]*used \\d+ s ago[^]*file:[^]*agent\\/gpt/)")
	b.await(t, "the usage of all", section("Usage")+".match(/gpt\\s+1 request · [^]*1000 tokens in, 20 out · cost 0.0012/)")
	b.click(t, row("spender"))
	b.await(t, "the usage of the sandbox", section("Usage")+".includes('1 request')")
	if text := eval[string](t, b, "document.documentElement.outerHTML"); strings.Contains(text, key) {
		t.Error("the page has the value of the secret")
	}
	if r := d.Run(t, "inspect", id).Stdout; !strings.Contains(r, `"requests":1,"input_tokens":1000,"output_tokens":20,"cost":0.0012`) {
		t.Errorf("inspect says %s", r)
	}
	if r := d.Run(t, "exec", "--json", id, "--", "true").Stdout; !strings.Contains(strings.Join(strings.Fields(r), ""), `"input_tokens":1000`) {
		t.Errorf("the result of exec is %s", r)
	}
	if r := d.Run(t, "run", "--json", "--profile", "agent", "--", "sh", "-c", "wget -qO- --post-data '{}' $OPENAI_BASE_URL/chat/completions >/dev/null").Stdout; !strings.Contains(strings.Join(strings.Fields(r), ""), `"output_tokens":20`) {
		t.Errorf("the result of run is %s", r)
	}
	b.checkQuiet(t, origin, token)
}
