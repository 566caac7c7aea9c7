package route_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/gateway/route/budget"
	"github.com/caisson-run/caisson/gateway/route/tokens"
)

// models is an upstream with the API of a model that wrote ten tokens for each request.
func models(w http.ResponseWriter, r *http.Request) {
	var q struct {
		Stream  bool `json:"stream"`
		Options struct {
			Usage bool `json:"include_usage"`
		} `json:"stream_options"`
	}
	_ = json.NewDecoder(r.Body).Decode(&q)
	const usage = `"usage":{"prompt_tokens":100,"completion_tokens":10,"prompt_tokens_details":{"cached_tokens":40}}`
	if !q.Stream {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"model":"gpt-x","choices":[{}],`+usage+`}`)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for range 10 {
		_, _ = io.WriteString(w, "data: {\"model\":\"gpt-x\",\"choices\":[{\"delta\":{\"content\":\"word\"}}],\"usage\":null}\n\n")
		_ = http.NewResponseController(w).Flush()
	}
	if q.Options.Usage {
		_, _ = io.WriteString(w, "data: {\"model\":\"gpt-x\",\"choices\":[],"+usage+"}\n\n")
	}
	_, _ = io.WriteString(w, "data: [DONE]\n\n")
}

func modelRoute(limits map[budget.Scope]budget.Limit) policy.Route {
	return policy.Route{Upstream: "http://up.example.com", Credential: "key", Tokens: true, Ask: true, Budget: limits, Prices: budget.Prices{"gpt-*": {Input: 2, Cached: 1, Output: 10}}}
}

func (f *fixture) chat(t *testing.T, body string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, "http://"+string(name)+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return f.do(t, req)
}

var tenTokens = tokens.Count{Input: 100, Cached: 40, Output: 10}

// The tokens and the cost of a request are in its record, whether or not the client wanted to
// know.
func TestTokens(t *testing.T) {
	up := newUpstream(t, models)
	f := newFixture(t, up.Server, modelRoute(nil))
	for _, body := range []string{`{"stream":false}`, `{"stream":true}`, `{"stream":true,"stream_options":{"include_usage":true}}`} {
		_, text := f.chat(t, body)
		if u := f.use(t); u.Tokens != tenTokens || u.Micros != 120+40+100 || u.Model != "gpt-x" || u.Estimated {
			t.Errorf("%s: %+v", body, u)
		}
		if asked := strings.Contains(body, "usage"); strings.Contains(body, "true") && (strings.Contains(text, `"choices":[],`) != asked || strings.Count(text, "word") != 10 || !strings.HasSuffix(text, "[DONE]\n\n")) {
			t.Errorf("%s: the client got %s", body, text)
		}
	}
	f.routed = compiled(t, policy.Route{Upstream: "http://up.example.com", Tokens: true})
	if _, text := f.chat(t, `{"stream":true}`); strings.Contains(text, `"choices":[],`) {
		t.Errorf("without ask, %s", text)
	}
	if u := f.use(t); !u.Estimated || u.Tokens.Output != 11 || u.Tokens.Input != 3 {
		t.Errorf("what was not told: %+v", u)
	}
}

// A request that is too long to be looked at passes as it is.
func TestTokensOfLongRequests(t *testing.T) {
	got := make(chan int64, 1)
	up := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		got <- n
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: {\"choices\":[{}]}\n\n")
	})
	f := newFixture(t, up.Server, modelRoute(nil))
	body := `{"stream":true,"x":"` + strings.Repeat("y", tokens.MaxAsked) + `"}`
	req, _ := http.NewRequest(http.MethodPost, "http://"+string(name)+"/chat/completions", io.MultiReader(strings.NewReader(body))) // chunked
	f.do(t, req)
	if n := <-got; n != int64(len(body)) {
		t.Errorf("%d of %d bytes", n, len(body))
	}
	if u := f.use(t); !u.Estimated || u.Tokens.Input != uint64(len(body))/4 {
		t.Errorf("%+v", u.Tokens)
	}
}

// Past a budget the upstream is not asked, and clients of models do not ask again.
func TestBudget(t *testing.T) {
	for what, tt := range map[string]struct {
		limit budget.Limit
		pass  int
	}{
		"requests": {budget.Limit{Requests: 3}, 3}, "tokens": {budget.Limit{Tokens: 111}, 2}, "cost": {budget.Limit{Micros: 3 * 260}, 3},
	} {
		up := newUpstream(t, models)
		f := newFixture(t, up.Server, modelRoute(map[budget.Scope]budget.Limit{budget.Sandbox: tt.limit}))
		for range tt.pass {
			if res, text := f.chat(t, `{"stream":true}`); res.StatusCode != http.StatusOK {
				t.Fatalf("%s: %d %s", what, res.StatusCode, text)
			}
			f.use(t)
		}
		res, text := f.chat(t, `{"stream":true}`)
		var answer struct {
			Type  string
			Error struct{ Type, Code, Message string }
		}
		if err := json.Unmarshal([]byte(text), &answer); err != nil || res.StatusCode != http.StatusTooManyRequests || res.Header.Get("X-Should-Retry") != "false" || res.Header.Get("X-Caisson-Code") != "SBX-713" ||
			answer.Type != "error" || answer.Error.Type != "rate_limit_error" || answer.Error.Code != "budget_exceeded" || !strings.Contains(answer.Error.Message, "the budget of route up for "+what+" is used up") {
			t.Errorf("%s: %d %v %s", what, res.StatusCode, res.Header, text)
		}
		if u := f.use(t); u.Code != sbxerr.Budget || u.Status != http.StatusTooManyRequests || !strings.Contains(u.Reason, "is used up") {
			t.Errorf("%s: %+v", what, u)
		}
		if up.count() != tt.pass {
			t.Errorf("%s: the upstream was asked %d times", what, up.count())
		}
	}
}

// An answer that is longer than the budget of bytes is cut, and so is a request.
func TestBudgetOfBytes(t *testing.T) {
	const most = 1 << 20
	endless := func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		for r.Context().Err() == nil {
			if _, err := w.Write(make([]byte, 64<<10)); err != nil {
				return
			}
		}
	}
	for _, how := range []string{"answer", "request"} {
		up := newUpstream(t, endless)
		f := newFixture(t, up.Server, policy.Route{Upstream: "http://up.example.com", Budget: map[budget.Scope]budget.Limit{budget.Sandbox: {Bytes: most}}})
		var body io.Reader = http.NoBody
		if how == "request" {
			body = io.LimitReader(zeros{}, 4*most)
		}
		req, _ := http.NewRequest(http.MethodPost, "http://"+string(name)+"/", body)
		if res, err := f.client(t).Do(req); err == nil {
			n, err := io.Copy(io.Discard, res.Body)
			if res.StatusCode == http.StatusOK && (err == nil || n > most+128<<10) {
				t.Errorf("%s: %d bytes, %v", how, n, err)
			}
			_ = res.Body.Close()
		}
		if u := f.use(t); u.Code != sbxerr.Budget || u.Sent+u.Received > most+256<<10 {
			t.Errorf("%s: %+v", how, u)
		}
		if res, text := f.get(t, "/"); res.StatusCode != http.StatusTooManyRequests || !strings.Contains(text, "SBX-713") {
			t.Errorf("%s: after it %d %s", how, res.StatusCode, text)
		}
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// A client that goes away pays for what came so far.
func TestBudgetOfGoneClients(t *testing.T) {
	gone := make(chan struct{})
	up := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for range 50 {
			_, _ = io.WriteString(w, "data: {\"choices\":[{}]}\n\n")
		}
		_ = http.NewResponseController(w).Flush()
		select {
		case <-r.Context().Done():
			close(gone)
		case <-time.After(10 * time.Second):
		}
	})
	f := newFixture(t, up.Server, modelRoute(map[budget.Scope]budget.Limit{budget.Sandbox: {Tokens: 50}}))
	req, _ := http.NewRequest(http.MethodPost, "http://"+string(name)+"/chat/completions", strings.NewReader(`{"stream":true}`))
	res, err := f.client(t).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	part := make([]byte, 50*len("data: {\"choices\":[{}]}\n\n"))
	if _, err := io.ReadFull(res.Body, part); err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	<-gone
	if u := f.use(t); !u.Estimated || u.Tokens.Output != 50 {
		t.Errorf("%+v", u)
	}
	if res, text := f.chat(t, `{}`); res.StatusCode != http.StatusTooManyRequests {
		t.Errorf("%d %s", res.StatusCode, text)
	}
}

// Many requests at once pass a budget by no more than one.
func TestBudgetAtOnce(t *testing.T) {
	release := make(chan struct{})
	up := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		<-release
		models(w, r)
	})
	f := newFixture(t, up.Server, modelRoute(map[budget.Scope]budget.Limit{budget.Sandbox: {Requests: 5}}))
	const all = 20
	statuses := make(chan string, all)
	for range all {
		go func() {
			res, err := f.client(t).Post("http://"+string(name)+"/chat/completions", "application/json", strings.NewReader(`{}`))
			if err != nil {
				statuses <- err.Error()
				return
			}
			_ = res.Body.Close()
			statuses <- fmt.Sprint(res.StatusCode)
		}()
	}
	got := map[string]int{}
	for range all - 5 {
		got[<-statuses]++
	}
	close(release)
	for range 5 {
		got[<-statuses]++
	}
	if got["429"] != all-5 || got["200"] != 5 {
		t.Errorf("%v", got)
	}
}
