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
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/runtime/images"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/server"
	"github.com/caisson-run/caisson/server/servertest"
)

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
		{"POST", "SandboxService/Run", "application/json", 415, "application/connect+json for a stream"},
		{"POST", "ImageService/ImportImage", "application/json", 415, "application/connect+json for a stream"},
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
		{"empty lists are []", "SandboxService/List", `{}`, &servertest.Fake{}, 200, `{"sandboxes":[],"next":""}`},
		{"names as in the proto", "SandboxService/List", `{"labels":{"team":"x"}}`, f, 200, `"created_at":"1970-01-01T00:00:00Z"`},
		{"filtered", "SandboxService/List", `{"labels":{"team":"z"}}`, f, 200, `{"sandboxes":[],"next":""}`},
		{"unknown field", "SandboxService/Cleanup", `{"dryrun":true}`, f, 400, `did you mean \"dry_run\"?`},
		{"unknown field inside", "SandboxService/Spec", `{"spec":{"sandbox":{"limits":{"memory_byte":"1"}}}}`, f, 400, `did you mean \"memory_bytes\"?`},
		{"unknown field, in the details", "SandboxService/Cleanup", `{"dryrun":true}`, f, 400, `"debug":{"code":"SBX-801","message":"line 1, column`},
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

// runOf runs a command on a fake and returns the stream of its events.
func runOf(t *testing.T, f *servertest.Fake) *connect.ServerStreamForClient[caissonv1.ExecEvent] {
	t.Helper()
	spec := &caissonv1.RunSpec{Exec: &caissonv1.ExecSpec{Args: []string{"x"}}}
	stream, err := raw(t, f).Run(t.Context(), connect.NewRequest(&caissonv1.RunRequest{Spec: spec}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stream.Close() })
	return stream
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
	stream := runOf(t, f)
	var sizes []int
	for stream.Receive() {
		switch m := stream.Msg(); {
		case m.GetStdout() != nil:
			close(read)
		case m.GetStderr() != nil:
			sizes = append(sizes, len(m.GetStderr().Data))
		}
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
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
	stream := runOf(t, f)
	for stream.Receive() { // until the end
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
				_ = stream.Send(m) // the answer below says why it fails
			}
			_, err := stream.CloseAndReceive()
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
