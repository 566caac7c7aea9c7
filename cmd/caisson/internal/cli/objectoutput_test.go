package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/server/servertest"
)

// writing is a daemon whose commands write, say so, and go on with then.
func writing(written chan<- struct{}, then func(context.Context) error) *servertest.Fake {
	do := func(ctx context.Context, rio runtime.IO) (*runtime.Result, error) {
		rio.Started(runtime.Info{ID: "id"}, runtime.ExecInfo{ID: "e1", SandboxID: "id"})
		_, err := io.WriteString(rio.Stdout, "so far\n")
		_, err2 := io.WriteString(rio.Stderr, "bytes \xff")
		written <- struct{}{}
		return nil, errors.Join(err, err2, then(ctx))
	}
	return &servertest.Fake{
		OnRun: func(ctx context.Context, _ plan.Request, rio runtime.IO) (*runtime.Result, error) {
			return do(ctx, rio)
		},
		OnExec: func(ctx context.Context, _ string, _ plan.ExecRequest, rio runtime.IO) (*runtime.Result, error) {
			return do(ctx, rio)
		},
		OnSignal: func(string, string, runtime.SignalRequest) error { return nil },
	}
}

// untilGone is a command that goes on until its caller leaves.
func untilGone(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

const settleTime = 100 * time.Millisecond // for what was sent to arrive

// TestCutObject: a call that ends before its command tells, beside the error, what was
// known by then, and exits as without --json.
func TestCutObject(t *testing.T) {
	interrupt := func(t *testing.T, _ func()) {
		for range 2 { // one that waits still is all that the kernel keeps of a kind
			time.Sleep(4 * settleTime)
			if err := syscall.Kill(syscall.Getpid(), syscall.SIGINT); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, tt := range []struct {
		name, verb string
		then       func(context.Context) error
		meanwhile  func(t *testing.T, stop func())
		code       int
		error      sbxerr.Code
	}{
		{"interrupted exec", "exec", untilGone, interrupt, 130, sbxerr.Canceled},
		{"interrupted run", "run", untilGone, interrupt, 130, sbxerr.Canceled},
		{"run of a daemon that ends", "run", untilGone, func(_ *testing.T, stop func()) { time.Sleep(settleTime); stop() }, 125, sbxerr.APIBroken},
		{"failed exec", "exec", func(context.Context) error { return sbxerr.New(sbxerr.Deadline, "a.b", "no") }, func(*testing.T, func()) {}, 125, sbxerr.Deadline},
	} {
		t.Run(tt.name, func(t *testing.T) {
			written := make(chan struct{}, 1)
			socket := filepath.Join(t.TempDir(), "s")
			stop := servertest.Start(t, writing(written, tt.then), socket)
			defer stop()
			args := []string{"--socket", socket, tt.verb, "--json", "--", "x"}
			if tt.verb == "exec" {
				args = []string{"--socket", socket, "exec", "--json", "id", "--", "x"}
			}
			var out, errOut bytes.Buffer
			exit := make(chan int, 1)
			go func() { exit <- whole.Run(t.Context(), args, nil, &out, &errOut) }()
			await(t, "output", written)
			tt.meanwhile(t, stop)
			code := await(t, "exit", exit)
			var got struct {
				Error  struct{ Code sbxerr.Code }
				Exec   map[string]any
				Output map[string]any
			}
			if err := json.Unmarshal(out.Bytes(), &got); err != nil || code != tt.code || got.Error.Code != tt.error || errOut.Len() > 0 {
				t.Errorf("exit code %d, %v, %q %q", code, err, &out, &errOut)
			}
			if e := got.Exec; e["sandbox_id"] != "id" || e["id"] != "e1" || e["stdout_bytes"] != 7.0 || e["stderr_bytes"] != 7.0 {
				t.Errorf("got %v", e)
			}
			if o := got.Output; o["stdout_text"] != "so far\n" || o["stdout_skipped"] != 0.0 || o["stderr"] != "Ynl0ZXMg/w==" || o["stderr_text"] != nil {
				t.Errorf("got %v", o)
			}
		})
	}
}

// TestObjectFromAnOffset: what the caller had before is not left out.
func TestObjectFromAnOffset(t *testing.T) {
	f := &servertest.Fake{OnAttach: func(_ context.Context, _, _ string, _ runtime.AttachOptions, rio runtime.IO) (*runtime.Result, error) {
		rio.Started(runtime.Info{ID: "id"}, runtime.ExecInfo{ID: "e1", SandboxID: "id"})
		_, err := io.WriteString(rio.Stdout, "56789")
		return &runtime.Result{StdoutBytes: 10}, err
	}}
	code, stdout, _ := invoke(t, f, "", "attach", "--json", "--offset", "5", "id", "e1")
	var got struct {
		StdoutText string `json:"stdout_text"`
		Result     struct {
			StdoutBytes int64 `json:"stdout_bytes"`
		}
	}
	if err := json.Unmarshal([]byte(stdout), &got); err != nil || code != 0 || got.StdoutText != "56789" || got.Result.StdoutBytes != 10 {
		t.Errorf("exit code %d, %v: %s", code, err, stdout)
	}
}
