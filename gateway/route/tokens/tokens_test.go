package tokens_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/caisson-run/caisson/gateway/route/tokens"
)

const (
	document = "application/json"
	stream   = "text/event-stream; charset=utf-8"
)

// What the APIs answer.
const (
	chat = `{"id":"x","object":"chat.completion","model":"gpt-4o-2024-08-06","choices":[{"index":0,"usage":{"prompt_tokens":99},"message":{"role":"assistant",
"content":"say \"usage\": {\"prompt_tokens\": 77} \\"}}],"usage":{"prompt_tokens":1117,"completion_tokens":46,"total_tokens":1163,"prompt_tokens_details":{"cached_tokens":1024},
"completion_tokens_details":{"reasoning_tokens":12}}}`
	messages       = `{"id":"m","type":"message","model":"claude-x","content":[{"type":"text","text":"}]{["}],"usage":{"input_tokens":10,"cache_creation_input_tokens":5,"cache_read_input_tokens":100,"output_tokens":7}}`
	embeddings     = `{"object":"list","data":[{"embedding":[0.1,-2e-5]}],"model":"text-embedding-3-small","usage":{"prompt_tokens":8,"total_tokens":8}}`
	responses      = `{"id":"r","model":"gpt-5","output":[],"usage":{"input_tokens":36,"input_tokens_details":{"cached_tokens":30},"output_tokens":87,"output_tokens_details":{"reasoning_tokens":80},"total_tokens":123}}`
	chatStream     = "data: {\"model\":\"gpt-4o\",\"choices\":[{\"delta\":{\"content\":\"a\"}}],\"usage\":null}\n\ndata: {\"model\":\"gpt-4o\",\"choices\":[],\"usage\":{\"prompt_tokens\":19,\"completion_tokens\":10}}\n\ndata: [DONE]\n\n"
	responseStream = "event: response.created\r\ndata: {\"type\":\"response.created\",\"response\":{\"model\":\"gpt-5\",\"usage\":null}}\r\n\r\nevent: response.completed\r\ndata: {\"type\":\"response.completed\",\"response\":{\"model\":\"gpt-5\",\"usage\":{\"input_tokens\":37,\"output_tokens\":11}}}\r\n\r\n"
	messageStart   = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"model\":\"claude-x\",\"usage\":{\"input_tokens\":25,\"cache_read_input_tokens\":4,\"output_tokens\":1}}}\n\n"
	messageStream  = messageStart + ": ping\n\nevent: message_delta\ndata: {\"type\":\"message_delta\",\n" +
		"data: \"delta\":{},\"usage\":{\"output_tokens\":15}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"
)

var answers = []struct {
	name, kind, text, model string
	want                    tokens.Count
}{
	{"chat", document, chat, "gpt-4o-2024-08-06", tokens.Count{Input: 1117, Cached: 1024, Output: 46, Reasoning: 12}},
	{"messages", document, messages, "claude-x", tokens.Count{Input: 115, Cached: 100, Stored: 5, Output: 7}},
	{"embeddings", document, embeddings, "text-embedding-3-small", tokens.Count{Input: 8}},
	{"responses", document, responses, "gpt-5", tokens.Count{Input: 36, Cached: 30, Output: 87, Reasoning: 80}},
	{"a stream of chat", stream, chatStream, "gpt-4o", tokens.Count{Input: 19, Output: 10}},
	{"a stream of responses", stream, responseStream, "gpt-5", tokens.Count{Input: 37, Output: 11}},
	{"a stream of messages", stream, messageStream, "claude-x", tokens.Count{Input: 29, Cached: 4, Output: 15}},
	{"none", document, `{"data":[{"id":"gpt-5"}]}`, "", tokens.Count{}},
	{"negative and huge", document, `{"usage":{"prompt_tokens":-4,"completion_tokens":1e300,"input_tokens":"x"}}`, "", tokens.Count{Output: 1 << 40}},
	{"no document", document, `}}]]{"usage":{"prompt_tokens":4}}`, "", tokens.Count{}},
	{"deep", document, strings.Repeat("[", 5000) + `{"usage":{"prompt_tokens":4}}`, "", tokens.Count{}},
	{"a usage that is too long", document, `{"usage":{"x":"` + strings.Repeat("y", 20<<10) + `","prompt_tokens":4},"model":"m"}`, "m", tokens.Count{}},
}

func count(t *testing.T, r io.Reader, kind string) (*tokens.Meter, string) {
	t.Helper()
	m := tokens.NewMeter(r, kind)
	b, err := io.ReadAll(m)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatal(err)
	}
	return m, string(b)
}

// What an answer tells is counted, however it is cut into pieces, and it passes unchanged.
func TestCount(t *testing.T) {
	for _, a := range answers {
		for how, r := range map[string]io.Reader{"whole": strings.NewReader(a.text), "by bytes": iotest.OneByteReader(strings.NewReader(a.text)), "by halves": iotest.HalfReader(strings.NewReader(a.text))} {
			m, passed := count(t, r, a.kind)
			got, estimated := m.Count(1000)
			if got != a.want || estimated || m.Model() != a.model || passed != a.text {
				t.Errorf("%s, %s: %+v estimated %v, model %q, want %+v of %q", a.name, how, got, estimated, m.Model(), a.want, a.model)
			}
		}
	}
	if m := tokens.NewMeter(nil, "text/html"); m != nil {
		t.Error("a page is measured")
	}
}

// What tells nothing is estimated, so that a client that goes away pays too.
func TestEstimate(t *testing.T) {
	silent := strings.Repeat("data: {\"choices\":[{}]}\n\n", 30)
	cut := func(text string) io.Reader {
		return io.MultiReader(strings.NewReader(text), iotest.ErrReader(io.ErrUnexpectedEOF))
	}
	for _, tt := range []struct {
		name, kind string
		from       io.Reader
		want       tokens.Count
	}{
		{"a stream that tells nothing", stream, strings.NewReader(silent), tokens.Count{Input: 100, Output: 30}},
		{"one that broke off", stream, cut(silent), tokens.Count{Input: 100, Output: 30}},
		{"one of messages that broke off", stream, cut(messageStart + silent), tokens.Count{Input: 100, Cached: 4, Output: 31}},
		{"a document that broke off", document, cut(`{"choices":[{"message":{"content":"` + strings.Repeat("word ", 100)), tokens.Count{Input: 100, Output: 133}},
	} {
		m, _ := count(t, tt.from, tt.kind)
		if got, estimated := m.Count(400); got != tt.want || !estimated {
			t.Errorf("%s: %+v, estimated %v", tt.name, got, estimated)
		}
	}
}

// An oracle that reads the whole document finds the same, of random documents.
func TestCountRandom(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	for i := range 3000 {
		text, err := json.Marshal(value(r, 0))
		if err != nil {
			t.Fatal(err)
		}
		type usage struct {
			Prompt float64 `json:"prompt_tokens"`
		}
		var doc map[string]json.RawMessage
		_ = json.Unmarshal(text, &doc)
		var want uint64
		for _, from := range []json.RawMessage{doc["usage"], member(doc["response"], "usage"), member(doc["message"], "usage")} {
			var u usage
			if len(from) > 0 && from[0] == '{' && json.Unmarshal(from, &u) == nil && u.Prompt > 0 {
				want = max(want, uint64(u.Prompt))
			}
		}
		m, _ := count(t, iotest.HalfReader(strings.NewReader(string(text))), document)
		if got, _ := m.Count(0); got.Input != want {
			t.Fatalf("seed %d, document %d: %+v, want %d of %s", seed, i, got, want, text)
		}
	}
}

func member(text json.RawMessage, name string) json.RawMessage {
	var m map[string]json.RawMessage
	_ = json.Unmarshal(text, &m)
	return m[name]
}

var words = []string{"usage", "response", "message", "model", "prompt_tokens", "choices", `a"b`, `\`, "data", ""}

func value(r *rand.Rand, depth int) any {
	kind := r.IntN(6)
	if depth == 0 {
		kind = 0
	}
	switch {
	case kind < 2 && depth < 5:
		m := map[string]any{}
		for range r.IntN(5) {
			m[words[r.IntN(len(words))]] = value(r, depth+1)
		}
		return m
	case kind == 2 && depth < 5:
		var l []any
		for range r.IntN(4) {
			l = append(l, value(r, depth+1))
		}
		return l
	case kind == 3:
		return words[r.IntN(len(words))]
	case kind == 4:
		return nil
	}
	return r.IntN(1000)
}

func TestAsk(t *testing.T) {
	for request, want := range map[string]string{
		`{"model":"m","stream":true,"n":1.50}`:                     `{"model":"m","n":1.50,"stream":true,"stream_options":{"include_usage":true}}`,
		`{"stream":true,"stream_options":{"a":1}}`:                 `{"stream":true,"stream_options":{"a":1,"include_usage":true}}`,
		`{"stream":true,"stream_options":null}`:                    `{"stream":true,"stream_options":{"include_usage":true}}`,
		`{"stream":false}`:                                         "",
		`{"model":"m"}`:                                            "",
		`{"stream":true,"stream_options":{"include_usage":false}}`: "",
		`{"stream":true,"stream_options":7}`:                       "",
		`[1]`:                                                      "",
		`no`:                                                       "",
	} {
		got, asked := tokens.Ask([]byte(request))
		if asked != (want != "") || asked && string(got) != want || !asked && string(got) != request {
			t.Errorf("%s: %s, %v", request, got, asked)
		}
	}
}

func TestUnasked(t *testing.T) {
	usage := "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":19}}\n\n"
	long := "data: {\"choices\":[{\"x\":\"" + strings.Repeat("y", 600<<10) + "\"}]}\n\n"
	for _, tt := range []struct{ text, want string }{
		{"data: {\"choices\":[{}],\"usage\":null}\n\n" + usage + "data: [DONE]\n\n", "data: {\"choices\":[{}],\"usage\":null}\n\ndata: [DONE]\n\n"},
		{"data: {\"choices\":[],\"filter\":1,\"usage\":null}\r\n\r\n", "data: {\"choices\":[],\"filter\":1,\"usage\":null}\r\n\r\n"},
		{"data: {\"usage\":{}}\n\n", "data: {\"usage\":{}}\n\n"},
		{long + usage + "data: [DONE]\n\n", long + "data: [DONE]\n\n"},
		{"data: broken off", "data: broken off"},
	} {
		for how, r := range map[string]io.Reader{"whole": strings.NewReader(tt.text), "by halves": iotest.HalfReader(strings.NewReader(tt.text)), "with the error": iotest.DataErrReader(strings.NewReader(tt.text))} {
			got, err := io.ReadAll(tokens.Unasked(r))
			if err != nil || string(got) != tt.want {
				t.Errorf("%s: %q of %d bytes, %v", how, fmt.Sprintf("%.80s", got), len(tt.text), err)
			}
		}
	}
}

// An event does not wait for the next one.
func TestUnaskedAtOnce(t *testing.T) {
	r, w := io.Pipe()
	go func() { _, _ = io.WriteString(w, "data: 1\n\n") }()
	p := make([]byte, 100)
	if n, err := tokens.Unasked(r).Read(p); err != nil || string(p[:n]) != "data: 1\n\n" {
		t.Errorf("%q, %v", p[:n], err)
	}
}

func BenchmarkMeter(b *testing.B) {
	text := strings.Repeat("data: {\"model\":\"gpt-4o\",\"choices\":[{\"delta\":{\"content\":\"word\"}}],\"usage\":null}\n\n", 1000)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		m := tokens.NewMeter(strings.NewReader(text), stream)
		_, _ = io.Copy(io.Discard, m)
	}
}
