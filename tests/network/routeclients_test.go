package network

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/tests/need"
)

// converse answers as two providers of models do: the one streams.
func converse(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/v1/chat/completions":
		w.Header().Set("Content-Type", "text/event-stream")
		for _, word := range []string{"one", "two"} {
			fmt.Fprintf(w, "data: {\"id\":\"1\",\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,\"delta\":{\"content\":%q}}]}\n\n", word)
			_ = http.NewResponseController(w).Flush() // the client may be gone
		}
		_, _ = io.WriteString(w, "data: [DONE]\n\n")
	case "/local/chat/completions":
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"id":"1","object":"chat.completion","model":"local-7b","choices":[{"index":0,"message":{"role":"assistant","content":"near"},"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":1,"total_tokens":6}}`)
	case "/v1/messages":
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"id":"1","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"three"}],"stop_reason":"end_turn","usage":{"input_tokens":1,"output_tokens":1}}`)
	default:
		http.NotFound(w, r)
	}
}

// modelClients returns a directory with the providers' own clients, and scripts that use them.
func modelClients(t *testing.T) string {
	t.Helper()
	need.Tools(t, "npm")
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata/modelsdk")); err != nil {
		t.Fatal(err)
	}
	npm := exec.CommandContext(t.Context(), "npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts")
	npm.Dir = dir
	if out, err := npm.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir
}

// The providers' own clients work by a preset, without a change and without a key.
func TestRoutePresets(t *testing.T) {
	need.Tools(t, "node", "dpkg")
	m := startModels(t)
	m.answer = converse
	reaches(t, modelsAt)
	asks(t, "models.example")
	dir := modelClients(t)
	const other = "sk-another-0c7d1e2f3a4b5968"
	d := launch(t, fmt.Sprintf(`network: {dns: [%s]}
secrets: {one: "file:%s", two: "file:%s"}
profiles:
  agent:
    image: tools
    memory: 1G
    routes:
      gpt:
        {preset: openai, upstream: "https://models.example:8443/v1", credential: one, paths: ["/chat/**"], ca: "file:%[4]s",
        models: {"local-*": {upstream: "https://models.example:8443/local", credential: two, ca: "file:%[4]s"}}}
      claude: {preset: anthropic, upstream: "https://models.example:8443", credential: two, ca: "file:%[4]s"}
`, resolver, writeFile(t, "one", canary), writeFile(t, "two", other), m.ca))
	d.Run(t, "image", "from-host", "tools", "--package", "nodejs")
	s := createFor(t, d, "--profile", "agent", "--mount", "type=bind,src="+dir+",dst=/sdk,ro")
	got := d.Run(t, "exec", s.id, "--", "node", "/sdk/ask.mjs").Stdout
	if want := "openai: one|two\nlocal: near\nanthropic: three\nrefused: 403\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	seen := m.take()
	if len(seen) != 3 || seen[0].Header.Get("Authorization") != "Bearer "+canary || seen[1].Header.Get("Authorization") != "Bearer "+other || seen[2].Header.Get("X-Api-Key") != other || seen[2].Header.Get("Authorization") != "" {
		t.Errorf("the upstream was asked %+v", seen)
	}
	if env := d.Run(t, "exec", s.id, "--", "env").Stdout; strings.Contains(env, "sk-") || !strings.Contains(env, "OPENAI_BASE_URL=http://gpt.caisson.internal\n") {
		t.Errorf("the environment is %q", env)
	}
	const ofModel = `"rule":"route gpt","code":"","reason":"status 200, credential \"two\", 5 tokens in and 1 out"`
	if log := d.Run(t, "policy", "log", s.id, "-o", "json").Stdout; !strings.Contains(log, ofModel) {
		t.Errorf("the log does not name the credential of the model: %s", log)
	}
}
