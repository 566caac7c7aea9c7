package execs

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"time"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
)

// TestCutObjectOfAHungCall: also a call that does not return is told of.
func TestCutObjectOfAHungCall(t *testing.T) {
	var out bytes.Buffer
	a := cli.NewApp(cli.Program{}, nil, &out, nil)
	a.Output, a.Stuck = cli.FormatJSON, 250*time.Millisecond
	exit := make(chan int, 1)
	a.Exit = func(code int) { exit <- code }
	o := newObjectOutput(a, Task{})
	o.start(&caissonv1.Started{Exec: &caissonv1.Exec{SandboxId: "id", Id: "e1"}})
	if _, err := io.WriteString(o.stdout, "so far\n"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer a.LeaveWhenStuck(ctx, func() error { return o.failed(sbxerr.New(sbxerr.Canceled, "a.b", "no")) })()
	cancel()
	if code := <-exit; code != cli.ExitRuntime || !strings.Contains(out.String(), `"stdout_text": "so far\n"`) {
		t.Errorf("exit code %d, %s", code, &out)
	}
}
