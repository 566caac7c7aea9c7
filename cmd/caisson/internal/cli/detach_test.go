package cli_test

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/server/servertest"
)

// Detach keys leave a command of exec that is on a terminal as it is. A closed terminal kills it
// when it does not act on its HUP, and an end by itself is told.
func TestLeavingExec(t *testing.T) {
	const detached = "caisson: detached; the command runs on: caisson attach -it box e1\n"
	for name, tt := range map[string]struct {
		args   string
		typed  string // empty closes the terminal
		killed bool
		code   int
		says   string
	}{
		"exec":        {"exec -it --detach-keys ctrl-p,ctrl-q box -- sh", "\x10\x11", false, 0, detached},
		"shell":       {"shell --detach-keys ctrl-a box", "\x01", false, 0, detached},
		"no keys":     {"exec -it box -- sh", "\x10\x11\x04", false, 6, ""},
		"other keys":  {"exec -it --detach-keys ctrl-a box -- sh", "\x10\x11\x04", false, 6, ""},
		"closed":      {"exec -it --detach-keys ctrl-a box -- sh", "", true, 129, ""},
		"closed exec": {"exec -it box -- sh", "", true, 129, ""},
		"closed, run": {"run -it -- sh", "", false, 129, ""}, // the end of its call is the end of the sandbox
	} {
		t.Run(name, func(t *testing.T) {
			began, killed := make(chan struct{}), make(chan struct{}, 1)
			input := servertest.NewInput()
			f := running(func(ctx context.Context, _ plan.ExecRequest, _ runtime.IO) (*runtime.Result, error) {
				close(began)
				for b := make([]byte, 1); b[0] != 4; { // ctrl-d
					if _, err := input.Read(b); err != nil {
						<-ctx.Done()
						return nil, ctx.Err()
					}
				}
				return &runtime.Result{ExitCode: 6}, nil
			})
			f.OnRun = func(ctx context.Context, r plan.Request, rio runtime.IO) (*runtime.Result, error) {
				return f.OnExec(ctx, "box", r.Exec, rio)
			}
			f.OnInput = input.Send
			f.OnSignal = func(_, _ string, req runtime.SignalRequest) error {
				if req.All {
					killed <- struct{}{}
				}
				return nil
			}
			master, slave := openPTY(t)
			t.Setenv("CAISSON_SOCKET", servertest.Listen(t, f))
			var stderr bytes.Buffer
			a := cli.NewApp(whole, slave, io.Discard, &stderr)
			a.Grace = 10 * time.Millisecond
			code := make(chan int, 1)
			go func() { code <- a.Run(t.Context(), strings.Fields(tt.args)) }()
			await(t, "the command", began)
			if _, err := master.WriteString(tt.typed); err != nil {
				t.Fatal(err)
			}
			if tt.typed == "" {
				master.Close()
			}
			if got := await(t, "the end", code); got != tt.code || stderr.String() != tt.says {
				t.Errorf("code %d: %q, want %d: %q", got, &stderr, tt.code, tt.says)
			}
			if len(killed) == 1 != tt.killed {
				t.Errorf("killed: %v", len(killed) == 1)
			}
		})
	}
}

// What was typed before the keys reaches the command, however long that takes within reason.
func TestTypedBeforeLeaving(t *testing.T) {
	begun, got := make(chan struct{}), make(chan string, 2)
	f := running(func(ctx context.Context, _ plan.ExecRequest, _ runtime.IO) (*runtime.Result, error) {
		close(begun)
		<-ctx.Done()
		return nil, ctx.Err()
	})
	f.OnInput = func(ctx context.Context, _, _ string, req runtime.InputRequest) (runtime.InputState, error) {
		if len(req.Data) > 0 {
			select {
			case <-time.After(50 * time.Millisecond): // a busy host
				got <- string(req.Data)
			case <-ctx.Done():
				got <- "the call ended"
			}
		}
		return runtime.InputState{}, nil
	}
	master, slave := openPTY(t)
	t.Setenv("CAISSON_SOCKET", servertest.Listen(t, f))
	code := make(chan int, 1)
	go func() {
		code <- cli.NewApp(whole, slave, io.Discard, io.Discard).Run(t.Context(), strings.Fields("exec -it --detach-keys ctrl-p,ctrl-q box -- sh"))
	}()
	await(t, "the command", begun)
	if _, err := master.WriteString("typed\x10\x11"); err != nil {
		t.Fatal(err)
	}
	if sent := await(t, "the input", got); sent != "typed" {
		t.Errorf("the command got %q", sent)
	}
	await(t, "the end", code)
}
