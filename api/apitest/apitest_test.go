package apitest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api"
	"github.com/caisson-run/caisson/api/apitest"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
)

// TestSession is what a caller's test does.
func TestSession(t *testing.T) {
	d := apitest.New(t)
	d.OnCommand = func(c apitest.Command) apitest.Outcome {
		if c.Spec.Args[0] == "gone" {
			return apitest.Outcome{Err: sbxerr.New(sbxerr.EngineDown, "test.exec", "no engine")}
		}
		return apitest.Outcome{Stdout: fmt.Appendf(nil, "%s in %s, %d bytes", c.Spec.Args[0], c.Sandbox.Name, len(c.Stdin)), Stderr: []byte("!"), ExitCode: 3}
	}
	c := d.Client()
	defer c.Close()
	ctx := t.Context()
	create := &caissonv1.CreateRequest{Spec: &caissonv1.SandboxSpec{Name: "box", Labels: map[string]string{"a": "b"}}, Ensure: true}
	box, err := c.Create(ctx, create)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := c.Create(ctx, create); err != nil || again.Id != box.Id {
		t.Errorf("ensure: %v, %v", again, err)
	}
	if _, err := c.Create(ctx, &caissonv1.CreateRequest{Spec: create.Spec}); !errors.Is(err, sbxerr.Exists) {
		t.Errorf("twice: %v", err)
	}
	spec := &caissonv1.ExecSpec{Args: []string{"make"}}
	out, err := c.Output(ctx, "box", spec, []byte("in"))
	if err != nil || string(out.Stdout) != "make in box, 2 bytes" || out.Result.ExitCode != 3 {
		t.Errorf("%v, %v", out, err)
	}
	var stdout, stderr bytes.Buffer
	result, err := c.Exec(ctx, box.Id, spec, api.IO{Stdout: &stdout, Stderr: &stderr})
	if err != nil || stdout.String() != "make in box, 0 bytes" || stderr.String() != "!" || result.ExecId != "2" {
		t.Errorf("%q %q %v, %v", &stdout, &stderr, result, err)
	}
	started, err := c.Start(ctx, "box", spec)
	if err != nil {
		t.Fatal(err)
	}
	stdout.Reset()
	result, err = c.Attach(ctx, "box", started.Id, api.AttachOptions{StdoutOffset: 5}, api.IO{Stdout: &stdout})
	if err != nil || stdout.String() != "in box, 0 bytes" || result.ExitCode != 3 {
		t.Errorf("%q %v, %v", &stdout, result, err)
	}
	if e, err := c.WaitExec(ctx, "box", started.Id); err != nil || e.State != "exited" {
		t.Errorf("%v, %v", e, err)
	}
	if list, err := c.Execs(ctx, "box"); err != nil || len(list) != 3 {
		t.Errorf("%v, %v", list, err)
	}
	if _, err := c.Output(ctx, "box", &caissonv1.ExecSpec{Args: []string{"gone"}}, nil); !errors.Is(err, sbxerr.EngineDown) || !api.Explain(err).Retryable {
		t.Errorf("an error of the test: %v", err)
	}
	list, err := c.List(ctx, &caissonv1.ListRequest{Labels: map[string]string{"a": "b"}})
	if err != nil || len(list.Sandboxes) != 1 {
		t.Errorf("%v, %v", list, err)
	}
	if _, err := c.Remove(ctx, &caissonv1.RemoveRequest{Ref: "box"}); !errors.Is(err, sbxerr.State) {
		t.Errorf("removed while it runs: %v", err)
	}
	if _, err := c.Remove(ctx, &caissonv1.RemoveRequest{Ref: "box", Force: true}); err != nil {
		t.Error(err)
	}
	if _, err := c.Inspect(ctx, &caissonv1.InspectRequest{Ref: "box"}); !errors.Is(err, sbxerr.NotFound) {
		t.Errorf("after its end: %v", err)
	}
}

// TestRun: a sandbox for one command is gone after it.
func TestRun(t *testing.T) {
	d := apitest.New(t)
	c := d.Client()
	defer c.Close()
	result, err := c.Run(t.Context(), &caissonv1.RunSpec{Exec: &caissonv1.ExecSpec{Args: []string{"true"}}}, api.IO{})
	if err != nil || result.Reason != "exited" {
		t.Errorf("%v, %v", result, err)
	}
	if list, err := c.List(t.Context(), &caissonv1.ListRequest{}); err != nil || len(list.Sandboxes) != 0 {
		t.Errorf("%v, %v", list, err)
	}
}

// TestInput: a command gets all input that its caller sends, before it ends.
func TestInput(t *testing.T) {
	d := apitest.New(t)
	d.OnCommand = func(c apitest.Command) apitest.Outcome { return apitest.Outcome{Stdout: c.Stdin, ExitCode: 4} }
	c := d.Client()
	defer c.Close()
	box, err := c.Create(t.Context(), &caissonv1.CreateRequest{})
	if err != nil {
		t.Fatal(err)
	}
	input := strings.Repeat("0123456789abcdef", 1<<17)
	spec := &caissonv1.ExecSpec{Args: []string{"cat"}}
	var stdout strings.Builder
	result, err := c.Exec(t.Context(), box.Id, spec, api.IO{Stdin: strings.NewReader(input), Stdout: &stdout})
	if err != nil || result.ExitCode != 4 || stdout.String() != input {
		t.Errorf("exec: %d bytes of %d, %v, %v", stdout.Len(), len(input), result, err)
	}
	stdout.Reset()
	result, err = c.Run(t.Context(), &caissonv1.RunSpec{Exec: spec}, api.IO{Stdin: strings.NewReader("in"), Stdout: &stdout})
	if err != nil || result.ExitCode != 4 || stdout.String() != "in" {
		t.Errorf("run: %q, %v, %v", &stdout, result, err)
	}
	spec.Stdin = true
	out, err := c.Output(t.Context(), box.Id, spec, []byte("whole"))
	if err != nil || string(out.Stdout) != "whole" {
		t.Errorf("output: %v, %v", out, err)
	}
	started, err := c.Start(t.Context(), box.Id, spec)
	if err != nil || started.State != "running" {
		t.Fatalf("%v, %v", started, err)
	}
	for i, part := range []string{"a", "b"} {
		at := int64(i)
		if _, err := c.SendInput(t.Context(), &caissonv1.SendInputRequest{Ref: box.Id, Id: started.Id, Offset: &at, Data: []byte(part), Close: part == "b"}); err != nil {
			t.Error(err)
		}
	}
	stdout.Reset()
	if _, err := c.Attach(t.Context(), box.Id, started.Id, api.AttachOptions{}, api.IO{Stdout: &stdout}); err != nil || stdout.String() != "ab" {
		t.Errorf("attach: %q, %v", &stdout, err)
	}
}

// TestEndsOfAWaitingCommand: a command whose input stays open ends by a signal, with its
// caller, and with its sandbox.
func TestEndsOfAWaitingCommand(t *testing.T) {
	c := apitest.New(t).Client()
	defer c.Close()
	box, err := c.Create(t.Context(), &caissonv1.CreateRequest{})
	if err != nil {
		t.Fatal(err)
	}
	start := func() *caissonv1.Exec {
		t.Helper()
		e, err := c.Start(t.Context(), box.Id, &caissonv1.ExecSpec{Args: []string{"cat"}, Stdin: true})
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	e := start()
	if err := c.Kill(t.Context(), box.Id, e.Id, syscall.SIGTERM, false); err != nil {
		t.Error(err)
	}
	if e, err := c.WaitExec(t.Context(), box.Id, e.Id); err != nil || e.Result.ExitCode != 143 || e.Result.Reason != "signaled" {
		t.Errorf("killed: %v, %v", e, err)
	}
	if err := c.Kill(t.Context(), box.Id, e.Id, syscall.SIGTERM, false); !errors.Is(err, sbxerr.State) {
		t.Errorf("killed again: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	never, _ := io.Pipe()
	if _, err := c.Exec(ctx, box.Id, nil, api.IO{Stdin: never}); !errors.Is(err, sbxerr.Deadline) {
		t.Errorf("the caller leaves: %v", err)
	}
	left := start()
	if _, err := c.Remove(t.Context(), &caissonv1.RemoveRequest{Ref: box.Id, Force: true}); err != nil {
		t.Error(err)
	}
	if _, err := c.WaitExec(t.Context(), box.Id, left.Id); !errors.Is(err, sbxerr.NotFound) {
		t.Errorf("after its sandbox: %v", err)
	}
}
