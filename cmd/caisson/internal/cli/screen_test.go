package cli_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/server/servertest"
)

// hostile retitles a window, reverses text and clears the screen.
const hostile = "\x1b]0;mine\a\u202e\u009b2J"

// toTerminal runs caisson with a terminal as its output, and returns what the terminal got.
func toTerminal(t *testing.T, f *servertest.Fake, args ...string) string {
	t.Helper()
	code, got := terminalRun(t, f, args...)
	if code != 0 {
		t.Fatalf("%q ended with %d: %s", args, code, got)
	}
	return got
}

func terminalRun(t *testing.T, f *servertest.Fake, args ...string) (code int, got string) {
	t.Helper()
	t.Setenv("CAISSON_SOCKET", servertest.Listen(t, f))
	master, slave := openPTY(t)
	if _, err := cli.MakeRaw(slave); err != nil { // else the terminal itself would change line ends
		t.Fatal(err)
	}
	code = whole.Run(t.Context(), args, strings.NewReader(""), slave, slave)
	slave.Close()
	all, err := io.ReadAll(master) // ends with EIO, as the other end is closed
	if len(all) == 0 {
		t.Fatal(err)
	}
	return code, string(all)
}

func TestTerminalGetsNoControls(t *testing.T) {
	f := running(func(_ context.Context, _ plan.ExecRequest, rio runtime.IO) (*runtime.Result, error) {
		_, err := io.WriteString(rio.Stdout, hostile)
		return &runtime.Result{Reason: runtime.ReasonExited, StdoutBytes: int64(len(hostile))}, err
	})
	f.OnLogs = func(_ context.Context, _ string, _ runtime.LogOptions, stdout, _ io.Writer) error {
		_, err := io.WriteString(stdout, hostile)
		return err
	}
	const escaped = `\x1b]0;mine\x07\u202e\u009b2J`
	for line, want := range map[string]string{
		"exec box -- x":       escaped,
		"exec --raw box -- x": hostile,
		"exec -t box -- x":    hostile,
		"logs box":            escaped,
		"logs --raw box":      hostile,
	} {
		if got := toTerminal(t, f, strings.Fields(line)...); got != want {
			t.Errorf("%s: the terminal got %q, want %q", line, got, want)
		}
	}
	if _, stdout, _ := invoke(t, f, "", "exec", "box", "--", "x"); stdout != hostile {
		t.Errorf("a pipe got %q", stdout)
	}
	for _, line := range []string{"exec --json box -- x", "exec --stream jsonl box -- x", "logs --json box"} {
		got := toTerminal(t, f, strings.Fields(line)...)
		if strings.ContainsFunc(got, cli.IsControl) || !strings.Contains(got, `\u202e`) {
			t.Errorf("%s: the terminal got %q", line, got)
		}
		for d := json.NewDecoder(strings.NewReader(got)); ; {
			var v any
			if err := d.Decode(&v); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %q is no JSON: %v", line, got, err)
			}
		}
	}
}

func TestCpWritesNoArchiveToATerminal(t *testing.T) {
	code, got := terminalRun(t, &servertest.Fake{}, "cp", "box:/etc", "-")
	if code != cli.ExitRuntime || !strings.Contains(got, "redirect") {
		t.Errorf("ended with %d: %s", code, got)
	}
}
