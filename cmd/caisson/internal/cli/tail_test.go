package cli_test

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/server/servertest"
)

// What is left out counts in the offset from which on the rest is followed.
func TestLogsTail(t *testing.T) {
	f := &servertest.Fake{OnLogs: func(_ context.Context, _ string, o runtime.LogOptions, stdout, stderr io.Writer) error {
		text := "one\ntwo\nthree\n"
		if o.Follow {
			text += "four\n"
		}
		_, err := io.WriteString(stdout, text[o.StdoutOffset:])
		return err
	}}
	for line, want := range map[string]string{
		"logs --tail 2 box": "two\nthree\n", "logs -n 1 -f box": "three\nfour\n", "logs --tail all box": "one\ntwo\nthree\n", "logs --tail 0 box": "",
	} {
		if code, got, stderr := invoke(t, f, "", strings.Fields(line)...); code != 0 || got != want {
			t.Errorf("%s: %d, %q, %s", line, code, got, stderr)
		}
	}
	for line, want := range map[string]string{
		"logs --tail x box": "not a number of lines", "logs --tail -1 box": "not a number", "logs --since -5m box": "neither a time such as", "logs --since= box": "--since is empty",
		"logs --json --tail 1 box": "excludes --json", "logs --offset 1 --tail 1 box": "offsets",
	} {
		if code, _, stderr := invoke(t, f, "", strings.Fields(line)...); code != cli.ExitRuntime || !strings.Contains(stderr, want) {
			if _, out, _ := invoke(t, f, "", strings.Fields(line)...); !strings.Contains(out, want) { // --json
				t.Errorf("%s: %d, %s", line, code, stderr)
			}
		}
	}
}
