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
	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/server/servertest"
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
		"input of nothing":   {"ExecService/SendInput", `{"id":"e"}`, `is not a name`},
		"input for a path":   {"ExecService/SendInput", `{"ref":"a","id":"../x"}`, `id \"../x\" is not a name`},
		"input before 0":     {"ExecService/SendInput", `{"ref":"a","id":"e","offset":"-1"}`, `offset is -1`},
		"resize of nothing":  {"ExecService/Resize", `{"ref":"a","size":{"rows":1,"cols":1}}`, `id \"\" is not a name`},
		"resize to nothing":  {"ExecService/Resize", `{"ref":"a","id":"e"}`, `there is no size`},
		"resize too large":   {"ExecService/Resize", `{"ref":"a","id":"e","size":{"rows":1,"cols":65536}}`, `65536 columns`},
		"list of nothing":    {"ExecService/List", `{}`, `is not a name`},
		"wait for a path":    {"ExecService/Wait", `{"ref":"a","id":"../x"}`, `id \"../x\" is not a name`},
		"signal 0":           {"ExecService/Signal", `{"ref":"a","id":"e"}`, `\"\" is not a signal`},
		"signal 65":          {"ExecService/Signal", `{"ref":"a","id":"e","signal":"65"}`, `\"65\" is not a signal`},
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
	for _, req := range []*caissonv1.LogsRequest{{Ref: "a", StdoutOffset: -1}, {Ref: "a", StderrOffset: -1}, {Ref: "a", ExecId: "/"}} {
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

// TestWait has more output than is asked for, and an input.
func TestWait(t *testing.T) {
	f := &servertest.Fake{OnExec: func(_ context.Context, ref string, req plan.ExecRequest, rio runtime.IO) (*runtime.Result, error) {
		started(rio)
		fmt.Fprintf(rio.Stdout, "%s %s %d ", ref, rio.Stdin, *req.OutputLimit)
		n, err := rio.Stderr.Write(bytes.Repeat([]byte("e"), 100))
		return &runtime.Result{StderrBytes: int64(n)}, err
	}}
	limit := int64(20)
	c := api.Dial(servertest.Listen(t, f))
	defer c.Close()
	r, err := c.Output(t.Context(), "a", &caissonv1.ExecSpec{Args: []string{"x"}, OutputLimitBytes: &limit}, []byte("in"))
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Repeat("e", 20)
	if string(r.Stdout) != "a in 20 " || string(r.Stderr) != want || r.Id != "exec" || r.Result.StderrBytes != 100 || r.StderrSkipped != 80 {
		t.Errorf("got %v", r)
	}
	const most = 10 << 20
	f.OnExec = func(_ context.Context, _ string, req plan.ExecRequest, rio runtime.IO) (*runtime.Result, error) {
		if req.OutputLimit != nil || rio.Stdin != nil {
			return nil, fmt.Errorf("limit %v, input %v", req.OutputLimit, rio.Stdin)
		}
		n, err := rio.Stdout.Write(make([]byte, most+1))
		return &runtime.Result{StdoutBytes: int64(n)}, err
	}
	if r, err := c.Output(t.Context(), "a", &caissonv1.ExecSpec{Args: []string{"x"}}, nil); err != nil || len(r.Stdout) != most || r.StdoutSkipped != 1 {
		t.Errorf("%d bytes, %d left out, %v", len(r.GetStdout()), r.GetStdoutSkipped(), err)
	}
}

// TestWaitWithoutInput: a command that is to have an input finds its end.
func TestWaitWithoutInput(t *testing.T) {
	f := &servertest.Fake{OnExec: func(_ context.Context, _ string, _ plan.ExecRequest, rio runtime.IO) (*runtime.Result, error) {
		if rio.Stdin == nil {
			return nil, errors.New("there is no input")
		}
		return &runtime.Result{}, nil
	}}
	got := followed(t, f, "ExecService/Start", `{"ref":"a","exec":{"args":["x"],"stdin":true},"wait":true}`)
	if len(got) != 2 || !strings.HasPrefix(got[0], `{"finished":`) {
		t.Errorf("got %q", got)
	}
}

// TestStreamInput sends input in many messages. The first one names the command.
func TestStreamInput(t *testing.T) {
	var got []string
	f := &servertest.Fake{OnInput: func(_ context.Context, ref, exec string, req runtime.InputRequest) (runtime.InputState, error) {
		if req.Offset != nil {
			got = append(got, fmt.Sprint("from ", *req.Offset))
		}
		got = append(got, fmt.Sprint(ref, " ", exec, " ", string(req.Data), " ", req.Close))
		return runtime.InputState{Offset: int64(len(got)), Closed: req.Close}, nil
	}}
	for _, http2 := range []bool{false, true} {
		got = nil
		tr := transport(servertest.Listen(t, f), http2)
		stream := caissonv1connect.NewExecServiceClient(&http.Client{Transport: tr}, "http://x").StreamInput(t.Context())
		offset := int64(7)
		for _, m := range []*caissonv1.SendInputRequest{{Ref: "a", Id: "e", Offset: &offset, Data: []byte("one")}, {Data: []byte("two")}, {Close: true}} {
			if err := stream.Send(m); err != nil {
				t.Fatal(err)
			}
		}
		r, err := stream.CloseAndReceive()
		if err != nil || r.Msg.Offset != 6 || !r.Msg.Closed {
			t.Errorf("%v, %v", r, err)
		}
		if text := fmt.Sprintf("%q", got); text != `["from 7" "a e one false" "from 10" "a e two false" "from 13" "a e  true"]` {
			t.Errorf("got %s", text)
		}
		tr.CloseIdleConnections()
	}
}

func TestStreamInputRefuses(t *testing.T) {
	type messages = []*caissonv1.SendInputRequest
	first := &caissonv1.SendInputRequest{Ref: "a", Id: "e"}
	negative := int64(-1)
	for name, tt := range map[string]struct {
		messages messages
		want     string
	}{
		"nothing at all":    {nil, "ended before its first message"},
		"no names":          {messages{{Data: []byte("x")}}, "is not a name"},
		"an offset below 0": {messages{{Ref: "a", Id: "e", Offset: &negative}}, "offset is -1"},
		"names twice":       {messages{first, first}, "belong into the first message alone"},
		"a large message":   {messages{first, {Data: make([]byte, 5<<20)}}, "larger than configured max"},
	} {
		t.Run(name, func(t *testing.T) {
			f := &servertest.Fake{OnInput: func(context.Context, string, string, runtime.InputRequest) (runtime.InputState, error) {
				return runtime.InputState{}, nil
			}}
			stream := rawExecs(t, f).StreamInput(t.Context())
			for _, m := range tt.messages {
				_ = stream.Send(m) // the answer below says why it fails
			}
			if _, err := stream.CloseAndReceive(); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

// TestExecPassesAll has a command with a terminal that gets input, a signal and a size.
func TestExecPassesAll(t *testing.T) {
	input := servertest.NewInput()
	signals, sizes := make(chan syscall.Signal, 1), make(chan plan.WinSize, 1)
	f := &servertest.Fake{
		OnInput:  input.Send,
		OnSignal: func(_, _ string, req runtime.SignalRequest) error { signals <- req.Signal; return nil },
		OnResize: func(_, _ string, size plan.WinSize) error { sizes <- size; return nil },
		OnExec: func(_ context.Context, _ string, req plan.ExecRequest, rio runtime.IO) (*runtime.Result, error) {
			rio.Started(runtime.Info{}, runtime.ExecInfo{ID: "e", TTY: req.TTY != nil})
			in, err := io.ReadAll(input)
			fmt.Fprintf(rio.Stdout, "%s %d %v", in, <-signals, <-sizes)
			fmt.Fprint(rio.Stderr, "err")
			return &runtime.Result{ExitCode: 5}, err
		},
	}
	c := api.Dial(servertest.Listen(t, f))
	defer c.Close()
	signal, size := make(chan syscall.Signal, 1), make(chan api.Size, 1)
	signal <- syscall.SIGHUP
	size <- api.Size{Rows: 3, Cols: 4}
	var stdout, stderr bytes.Buffer
	result, err := c.Exec(t.Context(), "a", &caissonv1.ExecSpec{Args: []string{"x"}, Tty: &caissonv1.WinSize{Rows: 1, Cols: 2}}, api.IO{
		Stdin: strings.NewReader("input"), Stdout: &stdout, Stderr: &stderr, Signals: signal, Resizes: size,
	})
	if err != nil || result.ExitCode != 5 || stdout.String() != "input 1 {3 4}" || stderr.String() != "err" {
		t.Errorf("%v, %v, %q %q", result, err, &stdout, &stderr)
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
		OnPause:  same, OnResume: same, OnRestart: same,
		OnStop: func(_ string, g *time.Duration) (runtime.Info, error) { grace = g; return info, nil },
		Counts: runtime.HostInfo{Execs: 3},
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
	if s, err := c.Info(ctx); err != nil || s.Execs != 3 {
		t.Errorf("%v, %v", s, err)
	}
}
