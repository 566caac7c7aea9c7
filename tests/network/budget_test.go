package network

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-run/caisson/tests/need"
)

// metered answers as a model that reads 100 tokens and writes ten. It tells so only to those
// that ask.
func metered(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body) // what broke off is no JSON
	var q struct {
		Options struct {
			Usage bool `json:"include_usage"`
		} `json:"stream_options"`
	}
	if err := json.Unmarshal(body, &q); err != nil {
		http.Error(w, "no", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for _, word := range []string{"one", "two"} {
		fmt.Fprintf(w, "data: {\"id\":\"1\",\"object\":\"chat.completion.chunk\",\"model\":\"mini-1\",\"choices\":[{\"index\":0,\"delta\":{\"content\":%q}}],\"usage\":null}\n\n", word)
	}
	if q.Options.Usage {
		_, _ = io.WriteString(w, "data: {\"id\":\"1\",\"object\":\"chat.completion.chunk\",\"model\":\"mini-1\",\"choices\":[],\"usage\":{\"prompt_tokens\":100,\"completion_tokens\":10,\"total_tokens\":110}}\n\n")
	}
	_, _ = io.WriteString(w, "data: [DONE]\n\n")
}

// Usage is counted though the client does not ask for it. A budget of a session holds for its
// next sandbox, for what is made inside, and over the ends of the gateway and the daemon; the
// provider's own client understands the refusal and does not try again.
func TestBudgets(t *testing.T) {
	need.Tools(t, "node", "dpkg")
	m := startModels(t)
	m.answer = metered
	reaches(t, modelsAt)
	asks(t, "models.example")
	dir := modelClients(t)
	d := launch(t, fmt.Sprintf(`network: {dns: [%s]}
secrets: {one: "file:%s"}
prices: {"mini*": {input: 1000, output: 5000}}
profiles:
  agent:
    image: tools
    memory: 1G
    routes:
      gpt: {preset: openai, upstream: "https://models.example:8443/v1", credential: one, ca: "file:%s", budget: {session: {tokens: 250}, hour: {cost: 100}}}
`, resolver, writeFile(t, "one", canary), m.ca))
	d.Run(t, "image", "from-host", "tools", "--package", "nodejs")
	mount := "type=bind,src=" + dir + ",dst=/sdk,ro"
	ask := func(s sandbox) string { return d.Run(t, "exec", s.id, "--", "node", "/sdk/budget.mjs").Stdout }
	const answered = "answered: one|two\n"
	refused := func(s sandbox, why string) {
		t.Helper()
		m.take()
		if got := ask(s); !strings.HasPrefix(got, "refused: 429 budget_exceeded ") || !strings.Contains(got, "the budget of route gpt for tokens is used up (330 of 250 of this session)") {
			t.Errorf("%s: %q", why, got)
		}
		if seen := m.take(); len(seen) != 0 {
			t.Errorf("%s: the upstream was asked %d times", why, len(seen))
		}
	}

	first := createFor(t, d, "--profile", "agent", "--session", "work", "--name", "first", "--mount", mount)
	for range 3 {
		if got := ask(first); got != answered {
			t.Fatalf("%q", got)
		}
	}
	refused(first, "the same sandbox")
	refused(createFor(t, d, "--profile", "agent", "--session", "work", "--mount", mount), "another sandbox of the session")
	if err := syscall.Kill(gatewayOf(t, d), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	refused(first, "another gateway")
	time.Sleep(1100 * time.Millisecond) // until it is written
	d.Kill(t)
	d.Launch(t)
	refused(first, "another daemon")
	other := createFor(t, d, "--profile", "agent", "--session", "play", "--mount", mount)
	if got := ask(other); got != answered {
		t.Errorf("another session: %q", got)
	}

	var usages []struct {
		Scope, Session, Route, Profile string
		Requests                       json.Number
		Input                          json.Number `json:"input_tokens"`
		Output                         json.Number `json:"output_tokens"`
		Cost                           float64
	}
	if err := json.Unmarshal([]byte(d.Run(t, "usage", "--by", "session", "--json").Stdout), &usages); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, u := range usages {
		got[u.Session] = fmt.Sprintf("%s requests, %s in, %s out, %.2f", u.Requests, u.Input, u.Output, u.Cost)
	}
	if len(got) != 2 || got["work"] != "3 requests, 300 in, 30 out, 0.45" || got["play"] != "1 requests, 100 in, 10 out, 0.15" {
		t.Errorf("%q", got)
	}
	if text := d.Run(t, "usage", "--budgets").Stdout; !strings.Contains(text, "hour") || !strings.Contains(text, "0.6000") {
		t.Errorf("%s", text)
	}
	if text := d.Run(t, "policy", "log", first.id).Stdout; !strings.Contains(text, "100 tokens in and 10 out") || !strings.Contains(text, "[SBX-713]") {
		t.Errorf("%s", text)
	}
}
