package mcp_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/caisson-run/caisson/mcp"
)

const (
	initialize  = `{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"0"}}}` + "\n"
	initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n"
)

// wait is a tool that takes its time.
type wait struct {
	MS int `json:"ms"`
}

// slowServer is a server with the tool wait, which says when it is called, and why it ended.
func slowServer() (s *sdk.Server, called chan int, ended chan error) {
	called, ended = make(chan int, 8), make(chan error, 8)
	s = sdk.NewServer(&sdk.Implementation{Name: "slow"}, nil)
	sdk.AddTool(s, &sdk.Tool{Name: "wait"}, func(ctx context.Context, _ *sdk.CallToolRequest, in wait) (*sdk.CallToolResult, any, error) {
		called <- in.MS
		select {
		case <-time.After(time.Duration(in.MS) * time.Millisecond):
		case <-ctx.Done():
		}
		ended <- ctx.Err()
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: fmt.Sprint("waited ", in.MS)}}}, nil, nil
	})
	return s, called, ended
}

func call(id string, ms int) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"wait","arguments":{"ms":%d}}}`, id, ms)
}

// answer is one line of a server.
type answer struct {
	ID    json.RawMessage
	Error *struct {
		Code    int
		Message string
	}
	Result json.RawMessage
}

// session says all of said to a server, and returns its answers by ID.
func session(t *testing.T, said string) (answers map[string]answer, ids []string) {
	t.Helper()
	s, _, _ := slowServer()
	var out strings.Builder
	if err := s.Run(t.Context(), &mcp.Stdio{In: strings.NewReader(said), Out: &out}); err != nil {
		t.Errorf("the session ended with %v", err)
	}
	answers = map[string]answer{}
	for line := range strings.Lines(out.String()) {
		list := make([]answer, 1)
		var err error
		if line[0] == '[' {
			err = json.Unmarshal([]byte(line), &list)
		} else {
			err = json.Unmarshal([]byte(line), &list[0])
		}
		if err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		for _, a := range list {
			answers[string(a.ID)] = a
			ids = append(ids, string(a.ID))
		}
	}
	return answers, ids
}

// Calls that are under way at the end of the input are answered, also one without a line end.
func TestAnswersAfterTheEnd(t *testing.T) {
	answers, ids := session(t, initialize+initialized+call("1", 300)+"\r\n\n"+call(`"a<b"`, 100)+"\n"+call("2", 1))
	for id, want := range map[string]string{"1": "waited 300", `"a<b"`: "waited 100", "2": "waited 1", `"i"`: "2025-11-25"} {
		if !strings.Contains(string(answers[id].Result), want) {
			t.Errorf("call %s: %s", id, answers[id].Result)
		}
	}
	if len(ids) != 4 {
		t.Errorf("answered: %q", ids)
	}
}

// A line that is no message is answered by an error for its ID, and what follows as ever.
func TestLinesThatAreNoMessage(t *testing.T) {
	long := strings.Repeat("x", sdk.DefaultMaxLineLength)
	for name, tc := range map[string]struct {
		line, id string
		code     int
	}{
		"text":             {"hello", "null", -32700},
		"half":             {`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"wait"`, "7", -32700},
		"two on a line":    {call("7", 1) + call("8", 1), "7", -32700},
		"half, ID last":    {`{"method":"x","params":{"id":5,"s":"\"id\":6"},"jsonrpc":"2.0","id":"se\"ven","p":`, `"se\"ven"`, -32700},
		"no ID in time":    {`{"jsonrpc":"2.0","id":7`, "null", -32700}, // it may go on
		"an empty array":   {"[]", "null", -32600},
		"an array":         {"[" + call("7", 1) + "]", "null", -32600}, // in this version
		"a number":         {"5", "null", -32600},
		"another version":  {`{"jsonrpc":"1.0","id":7,"method":"ping"}`, "7", -32600},
		"a method of 5":    {`{"jsonrpc":"2.0","id":7,"method":5}`, "7", -32600},
		"an ID that is {}": {`{"jsonrpc":"2.0","id":{},"method":"ping"}`, "null", -32600},
		"too long":         {`{"jsonrpc":"2.0","id":7,"method":"` + long + `"}`, "7", -32600},
		"too long, last":   {`{"method":"` + long + `","jsonrpc":"2.0","id":7}`, "7", -32600},
		"too long, none":   {long + "x", "null", -32600},
	} {
		answers, ids := session(t, initialize+initialized+call("1", 200)+"\n"+tc.line+"\n"+call("2", 1)+"\n")
		got := answers[tc.id]
		if got.Error == nil || got.Error.Code != tc.code || !strings.HasPrefix(got.Error.Message, "SBX-801: ") || !strings.Contains(got.Error.Message, "one JSON-RPC 2.0 message on each line") {
			t.Errorf("%s: %q %+v", name, ids, got.Error)
		}
		if answers["1"].Result == nil || answers["2"].Result == nil || len(ids) != 4 {
			t.Errorf("%s: answered %q", name, ids)
		}
	}
}

// Versions that have batches keep them.
func TestBatches(t *testing.T) {
	old := strings.Replace(initialize, "2025-11-25", "2025-03-26", 1)
	answers, ids := session(t, old+initialized+"["+call("1", 200)+","+call("2", 1)+"]\n["+call("3", 1)+","+call("3", 1)+"]\n")
	if answers["1"].Result == nil || answers["2"].Result == nil || answers["null"].Error == nil || len(ids) != 4 {
		t.Errorf("%q", ids)
	}
}

// The end waits neither for a call that its client cancelled, nor for a client that is gone.
func TestEndOfAClient(t *testing.T) {
	for _, gone := range []bool{false, true} {
		s, called, ended := slowServer()
		in, say, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		hear, out, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		over := make(chan error, 1)
		go func() { over <- s.Run(t.Context(), &mcp.Stdio{In: in, Out: out}) }()
		go func() { _, _ = io.Copy(io.Discard, bufio.NewReader(hear)) }()
		fmt.Fprint(say, initialize+initialized+call("1", 60_000)+"\n")
		<-called
		if gone {
			_ = hear.Close()
		} else {
			fmt.Fprintln(say, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
		}
		_ = say.Close()
		select {
		case <-over:
		case <-time.After(10 * time.Second):
			t.Fatalf("a client that is gone: %v: the session goes on", gone)
		}
		if err := <-ended; err == nil {
			t.Errorf("a client that is gone: %v: the call ended by itself", gone)
		}
		for _, f := range slices.Clone([]*os.File{in, out, hear}) {
			_ = f.Close() // one may be closed
		}
	}
}
