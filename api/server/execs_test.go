package server_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/caisson/v1/caissonv1connect"
	"github.com/caisson-run/caisson/api/server/servertest"
	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/runtime/output"
	"github.com/caisson-run/caisson/runtime/plan"
)

// rawExecs is a client that keeps to no rule of ours.
func rawExecs(t *testing.T, f *servertest.Fake) caissonv1connect.ExecServiceClient {
	t.Helper()
	tr := transport(servertest.Listen(t, f), true)
	t.Cleanup(tr.CloseIdleConnections)
	return caissonv1connect.NewExecServiceClient(&http.Client{Transport: tr}, "http://x")
}

func TestSessionsRefuse(t *testing.T) {
	tests := map[string]struct{ procedure, body, want string }{
		"no sandbox":         {"ExecService/Exec", `{"exec":{"args":["x"]}}`, `is not a name`},
		"no exec":            {"ExecService/Exec", `{"ref":"a"}`, `there is no exec`},
		"input not asked":    {"ExecService/Exec", `{"ref":"a","exec":{"args":["x"]},"stdin":"eA=="}`, `exec.stdin is not set`},
		"a terminal":         {"ExecService/Exec", `{"ref":"a","exec":{"args":["x"],"tty":{"rows":1,"cols":1}}}`, `needs StreamExec`},
		"much output":        {"ExecService/Exec", `{"ref":"a","exec":{"args":["x"],"output_limit_bytes":"67108865"}}`, `give 2 to 67108864`},
		"no output":          {"ExecService/Exec", `{"ref":"a","exec":{"args":["x"],"output_limit_bytes":"0"}}`, `give 2 to 67108864`},
		"args and shell":     {"ExecService/StartExec", `{"ref":"a","exec":{"args":["x"],"shell":"x"}}`, `exclude each other`},
		"list of nothing":    {"ExecService/ListExecs", `{}`, `is not a name`},
		"wait for a path":    {"ExecService/WaitExec", `{"ref":"a","exec":"../x"}`, `exec \"../x\" is not a name`},
		"signal 0":           {"ExecService/SignalExec", `{"ref":"a","exec":"e"}`, `0 is not a signal`},
		"signal 65":          {"ExecService/SignalExec", `{"ref":"a","exec":"e","signal":65}`, `65 is not a signal`},
		"less than no time":  {"SandboxService/Create", `{"spec":{"ttl":"-1s"}}`, `SBX-102`},
		"negative time":      {"SandboxService/Update", `{"ref":"a","ttl":"-1s"}`, `ttl of -1s is negative`},
		"nothing to update":  {"SandboxService/Update", `{"ref":"a"}`, `nothing to update`},
		"negative grace":     {"SandboxService/Stop", `{"ref":"a","grace":"-1s"}`, `grace of -1s is negative`},
		"pause of nothing":   {"SandboxService/Pause", `{}`, `is not a name`},
		"resume of nothing":  {"SandboxService/Resume", `{}`, `is not a name`},
		"wait for nothing":   {"SandboxService/Wait", `{}`, `is not a name`},
		"a misspelt setting": {"SandboxService/Create", `{"spec":{"idle_timout":"1s"}}`, `did you mean \"idle_timeout\"?`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			status, answer := post(t, &servertest.Fake{}, "/caisson.v1."+tt.procedure, tt.body)
			if status != http.StatusBadRequest || !strings.Contains(answer, tt.want) {
				t.Errorf("got %d %.300s, want %s", status, answer, tt.want)
			}
		})
	}
}

func TestLogsRefusesOffsets(t *testing.T) {
	for _, req := range []*caissonv1.LogsRequest{{Ref: "a", StdoutOffset: -1}, {Ref: "a", StderrOffset: -1}, {Ref: "a", Exec: "/"}} {
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

// TestUnaryExec has more output than is asked for, and an input.
func TestUnaryExec(t *testing.T) {
	f := &servertest.Fake{OnExec: func(_ context.Context, ref string, req plan.ExecRequest, rio runtime.IO) (*runtime.Result, error) {
		started(rio)
		in, err := io.ReadAll(rio.Stdin)
		fmt.Fprintf(rio.Stdout, "%s %s %d ", ref, in, *req.OutputLimit)
		n, err2 := rio.Stderr.Write(bytes.Repeat([]byte("e"), 100))
		return &runtime.Result{StderrBytes: int64(n)}, errors.Join(err, err2)
	}}
	limit := int64(20)
	c := rawExecs(t, f)
	r, err := c.Exec(t.Context(), connect.NewRequest(&caissonv1.ExecRequest{
		Ref: "a", Stdin: []byte("in"), Exec: &caissonv1.ExecSpec{Args: []string{"x"}, Stdin: true, OutputLimitBytes: &limit},
	}))
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Repeat("e", 10) + api.Mark(80) + strings.Repeat("e", 10)
	if string(r.Msg.Stdout) != "a in 20 " || string(r.Msg.Stderr) != want || r.Msg.Exec != "exec" || r.Msg.Result.StderrBytes != 100 {
		t.Errorf("got %v", r.Msg)
	}
	f.OnExec = func(_ context.Context, _ string, req plan.ExecRequest, rio runtime.IO) (*runtime.Result, error) {
		if *req.OutputLimit != 1<<20 || rio.Stdin != nil {
			return nil, fmt.Errorf("limit %d, input %v", *req.OutputLimit, rio.Stdin)
		}
		return &runtime.Result{}, nil
	}
	if _, err := c.Exec(t.Context(), connect.NewRequest(&caissonv1.ExecRequest{Ref: "a", Exec: &caissonv1.ExecSpec{Args: []string{"x"}}})); err != nil {
		t.Error(err)
	}
}

// dialogue sends messages to a command that waits for its end, and returns what
// the call ends with.
func dialogue(t *testing.T, messages ...*caissonv1.StreamExecRequest) error {
	t.Helper()
	waiting := func(ctx context.Context, rio runtime.IO) (*runtime.Result, error) {
		started(rio)
		<-ctx.Done()
		return nil, ctx.Err()
	}
	f := &servertest.Fake{
		OnExec: func(ctx context.Context, _ string, _ plan.ExecRequest, rio runtime.IO) (*runtime.Result, error) {
			return waiting(ctx, rio)
		},
		OnAttach: func(ctx context.Context, _, _ string, _ runtime.AttachOptions, rio runtime.IO) (*runtime.Result, error) {
			return waiting(ctx, rio)
		},
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	stream := rawExecs(t, f).StreamExec(ctx)
	defer stream.CloseResponse()
	for _, m := range messages {
		if err := stream.Send(m); err != nil {
			break
		}
	}
	if len(messages) == 0 {
		stream.CloseRequest()
	}
	for {
		if _, err := stream.Receive(); err != nil {
			return err
		}
	}
}

func execStart(tty *caissonv1.WinSize) *caissonv1.StreamExecRequest {
	return &caissonv1.StreamExecRequest{Kind: &caissonv1.StreamExecRequest_Start{
		Start: &caissonv1.StreamExecStart{Ref: "a", Exec: &caissonv1.ExecSpec{Args: []string{"x"}, Tty: tty}},
	}}
}

func execAttach(a *caissonv1.Attach) *caissonv1.StreamExecRequest {
	return &caissonv1.StreamExecRequest{Kind: &caissonv1.StreamExecRequest_Attach{Attach: a}}
}

func execResize(s *caissonv1.WinSize) *caissonv1.StreamExecRequest {
	return &caissonv1.StreamExecRequest{Kind: &caissonv1.StreamExecRequest_Resize{Resize: s}}
}

func TestStreamExecRefuses(t *testing.T) {
	type messages = []*caissonv1.StreamExecRequest
	size := &caissonv1.WinSize{Rows: 24, Cols: 80}
	input := &caissonv1.StreamExecRequest{Kind: &caissonv1.StreamExecRequest_Stdin{Stdin: []byte("x")}}
	signal := &caissonv1.StreamExecRequest{Kind: &caissonv1.StreamExecRequest_Signal{Signal: 65}}
	good := &caissonv1.Attach{Ref: "a", Exec: "e"}
	tests := map[string]struct {
		messages messages
		want     string
	}{
		"nothing at all":             {nil, "ended before its first message"},
		"input first":                {messages{input}, "must hold start or attach"},
		"an empty start":             {messages{{Kind: &caissonv1.StreamExecRequest_Start{}}}, "is not a name"},
		"an empty attach":            {messages{{Kind: &caissonv1.StreamExecRequest_Attach{}}}, "is not a name"},
		"start twice":                {messages{execStart(nil), execStart(nil)}, "start was sent after the first message"},
		"attach after start":         {messages{execStart(nil), execAttach(good)}, "attach was sent after the first message"},
		"an empty message":           {messages{execStart(nil), {}}, "a message holds nothing"},
		"unannounced input":          {messages{execStart(nil), input}, "did not set stdin"},
		"unannounced input, attach":  {messages{execAttach(good), input}, "did not set stdin"},
		"a signal that is none":      {messages{execStart(nil), signal}, "65 is not a signal"},
		"resize without a terminal":  {messages{execStart(nil), execResize(size)}, "the command has no terminal"},
		"resize of an attached pipe": {messages{execAttach(good), execResize(size)}, "the command has no terminal"},
		"a size of nothing":          {messages{execStart(size), execResize(nil)}, "0 rows and 0 columns"},
		"a size too large":           {messages{execStart(size), execResize(&caissonv1.WinSize{Rows: 1 << 16, Cols: 1})}, "65536 rows"},
		"an offset below 0":          {messages{execAttach(&caissonv1.Attach{Ref: "a", Exec: "e", StdoutOffset: -1})}, "stdout_offset is -1"},
		"the other one":              {messages{execAttach(&caissonv1.Attach{Ref: "a", Exec: "e", StderrOffset: -1})}, "stderr_offset is -1"},
		"no sandbox":                 {messages{execAttach(&caissonv1.Attach{Exec: "e"})}, "is not a name"},
		"no command":                 {messages{execAttach(&caissonv1.Attach{Ref: "a"})}, "exec \"\" is not a name"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if err := dialogue(t, tt.messages...); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

// TestStreamExecPassesAll sends one of everything and hears one of everything.
func TestStreamExecPassesAll(t *testing.T) {
	f := &servertest.Fake{OnExec: func(ctx context.Context, _ string, req plan.ExecRequest, rio runtime.IO) (*runtime.Result, error) {
		rio.Started(runtime.Info{}, runtime.ExecInfo{ID: "e", TTY: req.TTY != nil})
		in := make([]byte, 2)
		if _, err := io.ReadFull(rio.Stdin, in); err != nil {
			return nil, err
		}
		var signal syscall.Signal
		var size plan.WinSize
		for signal == 0 || size.Rows == 0 {
			select {
			case signal = <-rio.Signals:
			case size = <-rio.Resizes:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		rest, err := io.ReadAll(rio.Stdin)
		fmt.Fprintf(rio.Stdout, "%s%s %d %v", in, rest, signal, size)
		fmt.Fprint(rio.Stderr, "err")
		return &runtime.Result{ExitCode: 5}, err
	}}
	c := api.Dial(servertest.Listen(t, f))
	defer c.Close()
	signals, sizes := make(chan syscall.Signal, 1), make(chan api.Size, 1)
	signals <- syscall.SIGHUP
	sizes <- api.Size{Rows: 3, Cols: 4}
	var stdout, stderr bytes.Buffer
	result, err := c.Exec(t.Context(), "a", &caissonv1.ExecSpec{Args: []string{"x"}, Tty: &caissonv1.WinSize{Rows: 1, Cols: 2}}, api.IO{
		Stdin: strings.NewReader("input"), Stdout: &stdout, Stderr: &stderr, Signals: signals, Resizes: sizes,
	})
	if err != nil || result.ExitCode != 5 || stdout.String() != "input 1 {3 4}" || stderr.String() != "err" {
		t.Errorf("%v, %v, %q %q", result, err, &stdout, &stderr)
	}
}

// TestMarks checks that a client writes what the daemon's store would.
func TestMarks(t *testing.T) {
	if api.Mark(7) != output.Mark(7) {
		t.Errorf("%q and %q", api.Mark(7), output.Mark(7))
	}
}

func TestSandboxCalls(t *testing.T) {
	var grace *time.Duration
	info := runtime.Info{ID: "id", State: runtime.StateRunning}
	same := func(string) (runtime.Info, error) { return info, nil }
	f := &servertest.Fake{
		OnCreate: func(req plan.CreateRequest) (runtime.Info, error) {
			return runtime.Info{ID: "id", Name: req.Name + req.Key}, nil
		},
		OnUpdate: func(string, runtime.UpdateRequest) (runtime.Info, error) { return info, nil },
		OnPause:  same, OnResume: same,
		OnStop: func(_ string, g *time.Duration) (runtime.Info, error) { grace = g; return info, nil },
		Counts: runtime.Stats{Execs: 3},
	}
	c := api.Dial(servertest.Listen(t, f))
	defer c.Close()
	ctx := t.Context()
	if s, err := c.Create(ctx, &caissonv1.CreateRequest{Spec: &caissonv1.SandboxSpec{Name: "n"}, IdempotencyKey: "k"}); err != nil || s.Name != "nk" {
		t.Errorf("%v, %v", s, err)
	}
	zero := time.Duration(0)
	for name, call := range map[string]func() (*caissonv1.Sandbox, error){
		"update": func() (*caissonv1.Sandbox, error) {
			return c.Update(ctx, &caissonv1.UpdateRequest{Ref: "id", Labels: map[string]string{"a": ""}})
		},
		"pause":  func() (*caissonv1.Sandbox, error) { return c.Pause(ctx, "id") },
		"resume": func() (*caissonv1.Sandbox, error) { return c.Resume(ctx, "id") },
		"stop":   func() (*caissonv1.Sandbox, error) { return c.Stop(ctx, "id", &zero) },
	} {
		if s, err := call(); err != nil || s.GetId() != "id" {
			t.Errorf("%s: %v, %v", name, s, err)
		}
	}
	if grace == nil || *grace != 0 {
		t.Errorf("a grace of 0 arrived as %v", grace)
	}
	if s, err := c.Stats(ctx); err != nil || s.Execs != 3 {
		t.Errorf("%v, %v", s, err)
	}
}
