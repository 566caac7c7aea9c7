package server_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/caisson/v1/caissonv1connect"
	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/server/servertest"
)

// followed makes a call of one request and many answers in JSON over HTTP/1.1, as
// anybody can who sends five bytes before the request, and returns the answers.
func followed(t *testing.T, f *servertest.Fake, procedure, body string) (answers []string) {
	t.Helper()
	tr := transport(servertest.Listen(t, f), false)
	defer tr.CloseIdleConnections()
	framed := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(body))), body...)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://x/caisson.v1."+procedure, bytes.NewReader(framed))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/connect+json")
	res, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.ProtoMajor != 1 || res.StatusCode != http.StatusOK {
		t.Fatalf("HTTP/%d, %s", res.ProtoMajor, res.Status)
	}
	for {
		head := make([]byte, 5)
		if _, err := io.ReadFull(res.Body, head); errors.Is(err, io.EOF) {
			return answers
		} else if err != nil {
			t.Fatal(err)
		}
		m := make([]byte, binary.BigEndian.Uint32(head[1:]))
		if _, err := io.ReadFull(res.Body, m); err != nil {
			t.Fatal(err)
		}
		answers = append(answers, string(m))
	}
}

// TestEvents checks the events of a command and their order: started, output with
// offsets, exit, and the end of the stream.
func TestEvents(t *testing.T) {
	tell := func(rio runtime.IO) (*runtime.Result, error) {
		started(rio)
		fmt.Fprintf(rio.Stdout, "%s", rio.Stdin)
		fmt.Fprint(rio.Stderr, "err")
		err := rio.Stderr.(runtime.Skipper).Skip(300)
		fmt.Fprint(rio.Stderr, "end")
		return &runtime.Result{ExitCode: 3}, err
	}
	f := &servertest.Fake{
		OnExec: func(_ context.Context, _ string, _ plan.ExecRequest, rio runtime.IO) (*runtime.Result, error) {
			return tell(rio)
		},
		OnRun: func(_ context.Context, _ plan.Request, rio runtime.IO) (*runtime.Result, error) { return tell(rio) },
		OnStart: func(context.Context, plan.Request) (runtime.Info, error) {
			return runtime.Info{ID: "id"}, nil
		},
		OnStartEx: func(string, plan.ExecRequest) (runtime.ExecInfo, error) { return runtime.ExecInfo{ID: "e2"}, nil },
	}
	told := []string{
		`{"stdout":{"data":"aW4="}}`, `{"stderr":{"data":"ZXJy"}}`,
		`{"stderr":{"offset":3,"skipped":300}}`, `{"stderr":{"offset":303,"data":"ZW5k"}}`,
		`"exit_code":3`, `{}`,
	}
	for name, tt := range map[string]struct {
		procedure, body string
		want            []string
	}{
		"exec": {
			"ExecService/Start", `{"ref":"a","exec":{"args":["x"]},"stdin":"aW4=","attach":true}`, append([]string{`"started"`}, told...),
		},
		"run": {
			"SandboxService/Run", `{"spec":{"exec":{"args":["x"]}},"stdin":"aW4="}`, append([]string{`"id":"exec"`}, told...),
		},
		"detached":      {"SandboxService/Run", `{"spec":{"exec":{"args":["x"]},"detach":true}}`, []string{`{"started":{"sandbox_id":"id","sandbox_name":"","warnings":[]}}`, `{}`}},
		"started exec":  {"ExecService/Start", `{"ref":"a","exec":{"args":["x"]}}`, []string{`"id":"e2"`, `{}`}},
		"finished exec": {"ExecService/Start", `{"ref":"a","exec":{"args":["x"]},"stdin":"aW4=","wait":true}`, []string{`"finished":{"result":{"exit_code":3`, `{}`}},
	} {
		got := followed(t, f, tt.procedure, tt.body)
		for i, want := range tt.want {
			if len(got) != len(tt.want) || !strings.Contains(strings.ReplaceAll(got[i], " ", ""), want) {
				t.Errorf("%s: got %q, want %q", name, got, tt.want)
				break
			}
		}
	}
}

// TestStartWithoutInput has a request that names none.
func TestStartWithoutInput(t *testing.T) {
	f := &servertest.Fake{OnExec: func(_ context.Context, _ string, _ plan.ExecRequest, rio runtime.IO) (*runtime.Result, error) {
		if rio.Stdin != nil {
			return nil, errors.New("there is an input")
		}
		return &runtime.Result{}, nil
	}}
	got := followed(t, f, "ExecService/Start", `{"ref":"a","exec":{"args":["x"]},"attach":true}`)
	if len(got) != 2 || !strings.Contains(got[0], "exit") {
		t.Errorf("got %q", got)
	}
}

func TestStreamsRefuse(t *testing.T) {
	for name, tt := range map[string]struct{ procedure, body, want string }{
		"no sandbox":          {"ExecService/Start", `{"exec":{"args":["x"]}}`, `is not a name`},
		"no exec":             {"ExecService/Start", `{"ref":"a"}`, `there is no exec`},
		"a size of nothing":   {"ExecService/Start", `{"ref":"a","exec":{"args":["x"],"tty":{}}}`, `0 rows and 0 columns`},
		"a size too large":    {"ExecService/Start", `{"ref":"a","exec":{"args":["x"],"tty":{"rows":65536,"cols":1}}}`, `65536 rows`},
		"input of a started":  {"ExecService/Start", `{"ref":"a","exec":{"args":["x"]},"stdin":"eA=="}`, `takes its input from SendInput`},
		"wait and attach":     {"ExecService/Start", `{"ref":"a","exec":{"args":["x"]},"wait":true,"attach":true}`, `wait and attach exclude each other`},
		"an awaited terminal": {"ExecService/Start", `{"ref":"a","exec":{"args":["x"],"tty":{"rows":1,"cols":1}},"wait":true}`, `a terminal needs attach`},
		"much output":         {"ExecService/Start", `{"ref":"a","exec":{"args":["x"],"output_limit_bytes":"67108865"},"wait":true}`, `give 2 to 67108864`},
		"no output":           {"ExecService/Start", `{"ref":"a","exec":{"args":["x"],"output_limit_bytes":"0"},"wait":true}`, `give 2 to 67108864`},
		"args and shell":      {"ExecService/Start", `{"ref":"a","exec":{"args":["x"],"shell":"x"}}`, `exclude each other`},
		"attach to a path":    {"ExecService/Attach", `{"ref":"a","id":"../e"}`, `is not a name`},
		"attach to none":      {"ExecService/Attach", `{"id":"e"}`, `is not a name`},
		"an offset below 0":   {"ExecService/Attach", `{"ref":"a","id":"e","stdout_offset":"-1"}`, `stdout_offset is -1`},
		"the other one":       {"ExecService/Attach", `{"ref":"a","id":"e","stderr_offset":"-1"}`, `stderr_offset is -1`},
		"no run":              {"SandboxService/Run", `{}`, `there is no spec`},
		"a run's bad name":    {"SandboxService/Run", `{"spec":{"sandbox":{"name":"/"}}}`, `is not a name`},
		"input of nobody":     {"SandboxService/Run", `{"spec":{"exec":{"args":["x"]},"detach":true},"stdin":"eA=="}`, `takes its input from SendInput`},
		"a misspelt field":    {"SandboxService/Run", `{"spek":{}}`, `did you mean \"spec\"?`},
		"one in the details":  {"SandboxService/Run", `{"spek":{}}`, `"type":"caisson.v1.ErrorDetail"`},
		"a misplaced field":   {"SandboxService/Run", `{"spec":{"name":"x"}}`, `it belongs into \"spec.sandbox\"`},
		"one too deep":        {"SandboxService/Run", `{"spec":{"sandbox":{"stdin":"eA=="}}}`, `it belongs to the outermost object`},
		"one in an exec":      {"SandboxService/Run", `{"spec":{"exec":{"argz":["x"]}}}`, `did you mean \"args\"?`},
	} {
		f := &servertest.Fake{OnExec: func(context.Context, string, plan.ExecRequest, runtime.IO) (*runtime.Result, error) {
			t.Errorf("%s: it ran", name)
			return &runtime.Result{}, nil
		}}
		got := followed(t, f, tt.procedure, tt.body)
		if len(got) != 1 || !strings.Contains(got[0], tt.want) {
			t.Errorf("%s: got %q, want %s", name, got, tt.want)
		}
	}
}

// TestCallerDies: the command's context ends with its caller's connection.
func TestCallerDies(t *testing.T) {
	gone := make(chan struct{})
	f := &servertest.Fake{OnRun: func(ctx context.Context, _ plan.Request, rio runtime.IO) (*runtime.Result, error) {
		started(rio)
		<-ctx.Done()
		close(gone)
		return nil, ctx.Err()
	}}
	tr := transport(servertest.Listen(t, f), false)
	defer tr.CloseIdleConnections()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := caissonv1connect.NewSandboxServiceClient(&http.Client{Transport: tr}, "http://x")
	stream, err := c.Run(ctx, connect.NewRequest(&caissonv1.RunRequest{Spec: &caissonv1.RunSpec{Exec: &caissonv1.ExecSpec{Args: []string{"x"}}}}))
	if err != nil || !stream.Receive() {
		t.Fatalf("%v, %v", err, stream.Err())
	}
	cancel()
	await(t, "end of the command", gone)
}
