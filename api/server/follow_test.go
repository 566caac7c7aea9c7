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
	"github.com/caisson-run/caisson/api/server/servertest"
	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/runtime/plan"
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

// TestFollow has a command that is told of in order: that it runs, what it writes,
// how it ended, and that this was all.
func TestFollow(t *testing.T) {
	tell := func(rio runtime.IO) (*runtime.Result, error) {
		started(rio)
		in, err := io.ReadAll(rio.Stdin)
		fmt.Fprintf(rio.Stdout, "%s", in)
		fmt.Fprint(rio.Stderr, "err")
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
	}
	for name, tt := range map[string]struct {
		procedure, body string
		want            []string
	}{
		"exec": {
			"ExecService/FollowExec", `{"ref":"a","exec":{"args":["x"],"stdin":true},"stdin":"aW4="}`,
			[]string{`"started"`, `{"stdout":"aW4="}`, `{"stderr":"ZXJy"}`, `"exit_code":3`, `{}`},
		},
		"run": {
			"SandboxService/FollowRun", `{"spec":{"exec":{"args":["x"],"stdin":true}},"stdin":"aW4="}`,
			[]string{`"exec":"exec"`, `{"stdout":"aW4="}`, `{"stderr":"ZXJy"}`, `"exit_code":3`, `{}`},
		},
		"detached": {"SandboxService/FollowRun", `{"spec":{"exec":{"args":["x"]},"detach":true}}`, []string{`"id":"id"`, `{}`}},
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

// TestFollowWithoutInput has a request that names none.
func TestFollowWithoutInput(t *testing.T) {
	f := &servertest.Fake{OnExec: func(_ context.Context, _ string, _ plan.ExecRequest, rio runtime.IO) (*runtime.Result, error) {
		if rio.Stdin != nil {
			return nil, errors.New("there is an input")
		}
		return &runtime.Result{}, nil
	}}
	got := followed(t, f, "ExecService/FollowExec", `{"ref":"a","exec":{"args":["x"]}}`)
	if len(got) != 2 || !strings.Contains(got[0], "result") {
		t.Errorf("got %q", got)
	}
}

func TestFollowRefuses(t *testing.T) {
	for name, tt := range map[string]struct{ procedure, body, want string }{
		"no sandbox":             {"ExecService/FollowExec", `{"exec":{"args":["x"]}}`, `is not a name`},
		"no exec":                {"ExecService/FollowExec", `{"ref":"a"}`, `there is no exec`},
		"input not asked":        {"ExecService/FollowExec", `{"ref":"a","exec":{"args":["x"]},"stdin":"eA=="}`, `exec.stdin is not set`},
		"a terminal":             {"ExecService/FollowExec", `{"ref":"a","exec":{"args":["x"],"tty":{"rows":1,"cols":1}}}`, `a terminal needs StreamExec`},
		"no run":                 {"SandboxService/FollowRun", `{}`, `there is no spec`},
		"input not asked by run": {"SandboxService/FollowRun", `{"spec":{"exec":{"args":["x"]}},"stdin":"eA=="}`, `exec.stdin is not set`},
		"a terminal of a run":    {"SandboxService/FollowRun", `{"spec":{"exec":{"args":["x"],"tty":{"rows":1,"cols":1}}}}`, `a terminal needs Run`},
		"input of nobody":        {"SandboxService/FollowRun", `{"spec":{"exec":{"args":["x"],"stdin":true},"detach":true}}`, `a detached run has no standard input`},
		"a misspelt field":       {"SandboxService/FollowRun", `{"spek":{}}`, `did you mean \"spec\"?`},
		"one in the details":     {"SandboxService/FollowRun", `{"spek":{}}`, `"type":"caisson.v1.ErrorDetail"`},
		"a misplaced field":      {"SandboxService/FollowRun", `{"spec":{"name":"x"}}`, `it belongs into another object`},
		"one in an exec":         {"SandboxService/FollowRun", `{"spec":{"exec":{"argz":["x"]}}}`, `did you mean \"args\"?`},
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

// TestFollowedCallerDies: the command's context ends with its caller's connection.
func TestFollowedCallerDies(t *testing.T) {
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
	stream, err := c.FollowRun(ctx, connect.NewRequest(&caissonv1.FollowRunRequest{Spec: &caissonv1.RunSpec{Exec: &caissonv1.ExecSpec{Args: []string{"x"}}}}))
	if err != nil || !stream.Receive() {
		t.Fatalf("%v, %v", err, stream.Err())
	}
	cancel()
	await(t, "end of the command", gone)
}
