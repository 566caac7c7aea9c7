package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/caisson/v1/caissonv1connect"
	"github.com/caisson-run/caisson/api/server"
	"github.com/caisson-run/caisson/api/server/servertest"
	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/runtime/images"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/sbxerr"
)

const patience = 10 * time.Second

func await[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("no %s within %v", what, patience)
	}
	panic("unreachable")
}

// transport speaks HTTP/2, or HTTP/1.1, to a socket.
func transport(socket string, http2 bool) *http.Transport {
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(http2)
	protocols.SetHTTP1(!http2)
	return &http.Transport{Protocols: &protocols, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
}

// raw is a client that keeps to no rule of ours.
func raw(t *testing.T, f *servertest.Fake) caissonv1connect.SandboxServiceClient {
	t.Helper()
	tr := transport(servertest.Listen(t, f), true)
	t.Cleanup(tr.CloseIdleConnections)
	return caissonv1connect.NewSandboxServiceClient(&http.Client{Transport: tr}, "http://x")
}

// post sends JSON over HTTP/1.1, as curl does.
func post(t *testing.T, f *servertest.Fake, procedure, body string) (status int, answer string) {
	t.Helper()
	tr := transport(servertest.Listen(t, f), false)
	defer tr.CloseIdleConnections()
	res, err := (&http.Client{Transport: tr}).Post("http://x"+procedure, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var compact bytes.Buffer
	data, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Compact(&compact, data); err != nil {
		t.Fatalf("the answer is not JSON: %q", data)
	}
	return res.StatusCode, compact.String()
}

// Refusals that the library itself makes have the form of all others, whatever the caller
// can or cannot.
func TestRefusalsHaveABody(t *testing.T) {
	tr := transport(servertest.Listen(t, &servertest.Fake{}), false)
	defer tr.CloseIdleConnections()
	for _, tt := range []struct {
		method, procedure, kind string
		status                  int
		want                    string
	}{
		{"POST", "ExecService/StreamExec", "application/connect+json", 505, "HTTP/1.1 cannot"},
		{"POST", "SandboxService/Run", "application/connect+proto", 505, "FollowRun"},
		{"POST", "ImageService/ImportImage", "application/json", 505, "use HTTP/2"},
		{"GET", "SandboxService/List", "", 405, "use POST"},
		{"DELETE", "SandboxService/Remove", "application/json", 405, "method DELETE"},
		{"POST", "SandboxService/List", "text/plain", 415, "application/json"},
		{"POST", "SandboxService/Logs", "application/json", 415, "application/connect+json for a stream"},
	} {
		req, err := http.NewRequestWithContext(t.Context(), tt.method, "http://x/caisson.v1."+tt.procedure, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", tt.kind)
		res, err := tr.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		var answer struct {
			Code    string
			Message string
			Details []struct{ Debug struct{ Code, Remedy string } }
		}
		err = json.NewDecoder(res.Body).Decode(&answer)
		res.Body.Close()
		text := fmt.Sprint(answer)
		if err != nil || res.StatusCode != tt.status || answer.Code != "invalid_argument" || !strings.Contains(text, tt.want) || !strings.Contains(text, "SBX-801") {
			t.Errorf("%s %s as %q: %s, %v: %s", tt.method, tt.procedure, tt.kind, res.Status, err, text)
		}
	}
}

func TestJSON(t *testing.T) {
	f := &servertest.Fake{Infos: []runtime.Info{
		{ID: "a", CreatedAt: time.Unix(0, 0), Labels: map[string]string{"team": "x"}},
		{ID: "b", Labels: map[string]string{"team": "y"}},
	}}
	tests := []struct {
		name, procedure, body string
		fake                  *servertest.Fake
		status                int
		want                  string
	}{
		{"empty lists are []", "SandboxService/List", `{}`, &servertest.Fake{}, 200, `{"sandboxes":[]}`},
		{"names as in the proto", "SandboxService/List", `{"labels":{"team":"x"}}`, f, 200, `"created_at":"1970-01-01T00:00:00Z"`},
		{"filtered", "SandboxService/List", `{"labels":{"team":"z"}}`, f, 200, `{"sandboxes":[]}`},
		{"unknown field", "SandboxService/Cleanup", `{"dryrun":true}`, f, 400, `did you mean \"dry_run\"?`},
		{"unknown field inside", "SandboxService/Spec", `{"spec":{"sandbox":{"limits":{"memory_byte":"1"}}}}`, f, 400, `did you mean \"memory_bytes\"?`},
		{"unknown field, in the details", "SandboxService/Cleanup", `{"dryrun":true}`, f, 400, `"debug":{"code":"SBX-801","message":"proto:`},
		{"unknown call", "SandboxService/Lst", `{}`, f, 501, `there is no call \"/caisson.v1.SandboxService/Lst\", did you mean \"/caisson.v1.SandboxService/List\"? [SBX-801]","details":[{"type":"caisson.v1.ErrorDetail"`},
		{"unknown service", "NothingAlike/Of", `{}`, f, 501, `"code":"unimplemented","message":"there is no call \"/caisson.v1.NothingAlike/Of\" [SBX-801]"`},
		{"unlike anything", "SandboxService/List", `{"xxxxxxxx":1}`, f, 400, `unknown field \"xxxxxxxx\"`},
		{"no body", "SandboxService/List", ``, f, 400, `such as {}`},
		{"not JSON", "SandboxService/List", `[`, f, 400, `SBX-801`},
		{"not found", "SandboxService/Inspect", `{"ref":"c"}`, f, 404, `"code":"SBX-107"`},
		{"a path for a name", "SandboxService/Remove", `{"ref":"../../etc"}`, f, 400, `is not a name`},
		{"an empty name", "SandboxService/Inspect", `{}`, f, 400, `is not a name`},
		{"no spec", "SandboxService/Spec", `{}`, f, 400, `there is no spec`},
		{"an image's name", "ImageService/InspectImage", `{"name":"a b"}`, f, 400, `no name may hold`},
		{"no image's name", "ImageService/RemoveImage", `{}`, f, 400, `1 to 266 characters`},
		{"too long", "ImageService/RemoveImage", `{"name":"` + strings.Repeat("x", 300) + `"}`, f, 400, `1 to 266 characters`},
		{"too big", "ImageService/RemoveImage", `{"name":"` + strings.Repeat("x", 5<<20) + `"}`, f, 429, `larger than configured max`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			status, answer := post(t, tt.fake, "/caisson.v1."+tt.procedure, tt.body)
			if status != tt.status || !strings.Contains(answer, tt.want) {
				t.Errorf("got %d %.300s, want %d %s", status, answer, tt.status, tt.want)
			}
		})
	}
}

// conversation runs messages against a command that waits for its end.
func conversation(t *testing.T, messages ...*caissonv1.RunRequest) error {
	t.Helper()
	f := &servertest.Fake{OnRun: func(ctx context.Context, _ plan.Request, _ runtime.IO) (*runtime.Result, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	stream := raw(t, f).Run(ctx)
	defer stream.CloseResponse()
	for _, m := range messages {
		if err := stream.Send(m); err != nil {
			break
		}
	}
	if len(messages) == 0 {
		stream.CloseRequest()
	}
	_, err := stream.Receive()
	return err
}

func startMessage(spec *caissonv1.RunSpec) *caissonv1.RunRequest {
	return &caissonv1.RunRequest{Kind: &caissonv1.RunRequest_Start{Start: spec}}
}

func TestRunRefuses(t *testing.T) {
	start := startMessage(&caissonv1.RunSpec{Exec: &caissonv1.ExecSpec{Args: []string{"x"}}})
	input := &caissonv1.RunRequest{Kind: &caissonv1.RunRequest_Stdin{Stdin: []byte("x")}}
	signal := func(n int32) *caissonv1.RunRequest {
		return &caissonv1.RunRequest{Kind: &caissonv1.RunRequest_Signal{Signal: n}}
	}
	tests := []struct {
		name     string
		messages []*caissonv1.RunRequest
		want     string
	}{
		{"nothing at all", nil, "ended before its first message"},
		{"input first", []*caissonv1.RunRequest{input}, "must hold start"},
		{"a bad spec", []*caissonv1.RunRequest{startMessage(&caissonv1.RunSpec{Sandbox: &caissonv1.SandboxSpec{Name: "/"}})}, "is not a name"},
		{"start twice", []*caissonv1.RunRequest{start, start}, "start was sent after the first message"},
		{"input that was not announced", []*caissonv1.RunRequest{start, input}, "did not set stdin"},
		{"signal 0", []*caissonv1.RunRequest{start, signal(0)}, "0 is not a signal"},
		{"signal 65", []*caissonv1.RunRequest{start, signal(65)}, "65 is not a signal"},
		{"a negative signal", []*caissonv1.RunRequest{start, signal(-9)}, "-9 is not a signal"},
		{"an empty message", []*caissonv1.RunRequest{start, {}}, "a message holds nothing"},
		{"a message too big", []*caissonv1.RunRequest{start, {Kind: &caissonv1.RunRequest_Stdin{Stdin: make([]byte, 5<<20)}}}, "larger than configured max"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := conversation(t, tt.messages...)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

// TestCallerDies has callers whose connection breaks without a word: one that
// waits, and one that has sent more than the command and the daemon take.
func TestCallerDies(t *testing.T) {
	for name, sent := range map[string]int{"waiting": 0, "sending": 700 << 10} {
		t.Run(name, func(t *testing.T) { testCallerDies(t, sent) })
	}
}

func testCallerDies(t *testing.T, sent int) {
	ended := make(chan error, 1)
	running := make(chan struct{})
	f := &servertest.Fake{OnRun: func(ctx context.Context, _ plan.Request, rio runtime.IO) (*runtime.Result, error) {
		close(running)
		<-ctx.Done()
		_, err := io.ReadAll(rio.Stdin) // must not hang
		ended <- err
		return nil, ctx.Err()
	}}
	socket := servertest.Listen(t, f)
	var conn net.Conn
	tr := transport(socket, true)
	tr.DialContext = func(ctx context.Context, _, _ string) (_ net.Conn, err error) {
		conn, err = new(net.Dialer).DialContext(ctx, "unix", socket)
		return conn, err
	}
	stream := caissonv1connect.NewSandboxServiceClient(&http.Client{Transport: tr}, "http://x").Run(t.Context())
	if err := stream.Send(startMessage(&caissonv1.RunSpec{Exec: &caissonv1.ExecSpec{Args: []string{"x"}, Stdin: true}})); err != nil {
		t.Fatal(err)
	}
	for range sent / (100 << 10) {
		if err := stream.Send(&caissonv1.RunRequest{Kind: &caissonv1.RunRequest_Stdin{Stdin: make([]byte, 100<<10)}}); err != nil {
			t.Fatal(err)
		}
	}
	await(t, "run", running)
	conn.Close()
	await(t, "end of the run", ended)
}

// TestHalfClose checks that the end of the caller's side is the end of the
// command's input, and not of the run.
func TestHalfClose(t *testing.T) {
	f := &servertest.Fake{OnRun: func(ctx context.Context, _ plan.Request, rio runtime.IO) (*runtime.Result, error) {
		in, err := io.ReadAll(rio.Stdin)
		if err != nil || ctx.Err() != nil {
			return nil, errors.Join(err, ctx.Err())
		}
		return &runtime.Result{StdoutBytes: int64(len(in))}, nil
	}}
	stream := raw(t, f).Run(t.Context())
	for _, m := range []*caissonv1.RunRequest{
		startMessage(&caissonv1.RunSpec{Exec: &caissonv1.ExecSpec{Args: []string{"x"}, Stdin: true}}),
		{Kind: &caissonv1.RunRequest_Stdin{Stdin: []byte("abc")}},
	} {
		if err := stream.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	if err := stream.CloseRequest(); err != nil {
		t.Fatal(err)
	}
	m, err := stream.Receive()
	for err == nil && m.GetStdinTaken() > 0 {
		m, err = stream.Receive()
	}
	if err != nil || m.GetResult().GetStdoutBytes() != 3 {
		t.Errorf("got %v, %v", m, err)
	}
}

// TestChunks checks that output comes in messages of a bounded size and at once.
func TestChunks(t *testing.T) {
	read := make(chan struct{})
	f := &servertest.Fake{OnRun: func(_ context.Context, _ plan.Request, rio runtime.IO) (*runtime.Result, error) {
		_, _ = rio.Stdout.Write([]byte("x"))
		<-read // the caller has the byte before there are more
		n, err := rio.Stderr.Write(make([]byte, 600<<10))
		return &runtime.Result{StderrBytes: int64(n)}, err
	}}
	stream := raw(t, f).Run(t.Context())
	defer stream.CloseRequest()
	if err := stream.Send(startMessage(&caissonv1.RunSpec{Exec: &caissonv1.ExecSpec{Args: []string{"x"}}})); err != nil {
		t.Fatal(err)
	}
	var sizes []int
	for {
		m, err := stream.Receive()
		if err != nil {
			t.Fatal(err)
		}
		if m.GetStdout() != nil {
			close(read)
		}
		if m.GetResult() != nil {
			break
		}
		if m.GetStderr() != nil {
			sizes = append(sizes, len(m.GetStderr()))
		}
	}
	if len(sizes) != 3 || sizes[0] != 256<<10 || sizes[1] != 256<<10 || sizes[2] != 88<<10 {
		t.Errorf("messages of %d bytes", sizes)
	}
}

// TestWriteAfterRun has a runtime that breaks its promise: nothing must break.
func TestWriteAfterRun(t *testing.T) {
	late := make(chan io.Writer, 1)
	f := &servertest.Fake{OnRun: func(_ context.Context, _ plan.Request, rio runtime.IO) (*runtime.Result, error) {
		late <- rio.Stdout
		return &runtime.Result{}, nil
	}}
	stream := raw(t, f).Run(t.Context())
	if err := stream.Send(startMessage(&caissonv1.RunSpec{Exec: &caissonv1.ExecSpec{Args: []string{"x"}}})); err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := stream.Receive(); err != nil {
			break
		}
	}
	if _, err := (<-late).Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("got %v, want %v", err, io.ErrClosedPipe)
	}
}

func TestImportRefuses(t *testing.T) {
	header := func(name string) *caissonv1.ImportImageRequest {
		return &caissonv1.ImportImageRequest{Kind: &caissonv1.ImportImageRequest_Header{Header: &caissonv1.ImportHeader{Name: name}}}
	}
	f := &servertest.Fake{OnImport: func(_ string, r io.Reader, _ func(string)) (images.Imported, error) {
		_, err := io.ReadAll(r)
		return images.Imported{}, err
	}}
	tests := map[string]struct {
		messages []*caissonv1.ImportImageRequest
		want     string
	}{
		"nothing":        {nil, "ended before its first message"},
		"a chunk first":  {[]*caissonv1.ImportImageRequest{{Kind: &caissonv1.ImportImageRequest_Chunk{}}}, "must hold header"},
		"a bad name":     {[]*caissonv1.ImportImageRequest{header("a\x1bb")}, "no name may hold"},
		"header twice":   {[]*caissonv1.ImportImageRequest{header("a"), header("b")}, "must hold a chunk"},
		"an empty piece": {[]*caissonv1.ImportImageRequest{header("a"), {}}, "must hold a chunk"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			tr := transport(servertest.Listen(t, f), true)
			defer tr.CloseIdleConnections()
			stream := caissonv1connect.NewImageServiceClient(&http.Client{Transport: tr}, "http://x").ImportImage(t.Context())
			for _, m := range tt.messages {
				_ = stream.Send(m) // what the daemon said is received below
			}
			stream.CloseRequest()
			_, err := stream.Receive()
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func TestLogsRefuses(t *testing.T) {
	for _, req := range []*caissonv1.LogsRequest{{Ref: "/"}, {Ref: "a", Stream: "stdin"}} {
		stream, err := raw(t, &servertest.Fake{}).Logs(t.Context(), connect.NewRequest(req))
		if err != nil {
			t.Fatal(err)
		}
		if stream.Receive() || connect.CodeOf(stream.Err()) != connect.CodeInvalidArgument {
			t.Errorf("%v: got %v", req, stream.Err())
		}
		stream.Close()
	}
}

// panicky panics where it is asked.
type panicky struct{ servertest.Fake }

func (panicky) List(context.Context) ([]runtime.Info, error) { panic("secret state") }

func TestPanic(t *testing.T) {
	var log bytes.Buffer
	h := server.New(server.Deps{Sandboxes: &panicky{}, Log: slog.New(slog.NewTextHandler(&log, nil))})
	srv := httptest.NewServer(h)
	defer srv.Close()
	r, err := http.Post(srv.URL+"/caisson.v1.SandboxService/List", "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusInternalServerError || !strings.Contains(string(body), string(sbxerr.Internal)) {
		t.Errorf("got %d %s, %v", r.StatusCode, body, err)
	}
	if strings.Contains(string(body), "secret") {
		t.Error("the caller sees what the handler panicked with")
	}
	if !strings.Contains(log.String(), "secret state") {
		t.Error("the log does not say what happened")
	}
}

func TestDoctor(t *testing.T) {
	for status, want := range map[string]string{"ok": "true", "warn": "true", "fail": "false", "unknown": "true"} {
		f := &servertest.Fake{OnDoctor: func() ([]runtime.Check, error) {
			return []runtime.Check{{Name: "a", Status: "ok"}, {Name: "b", Status: status}}, nil
		}}
		if _, answer := post(t, f, "/caisson.v1.SystemService/Doctor", "{}"); !strings.Contains(answer, `"ok":`+want) {
			t.Errorf("%s: %s", status, answer)
		}
	}
}
