package integration

import (
	"encoding/json"
	"fmt"
	"syscall"
	"testing"
	"time"
)

// Signals that a client gets are the command's, with an input and without; one that
// comes while the sandbox is paused waits.
func TestExecSignals(t *testing.T) {
	t.Parallel()
	box(t, daemon, "signalled")
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2} {
		script := fmt.Sprintf("trap 'echo heard; exit 9' %d; echo ready; while :; do usleep 10000; done", sig)
		for _, call := range [][]string{{"exec", "signalled", "--", "sh", "-c", script}, {"exec", "-i", "signalled", "--", "sh", "-c", script}, {"run", "--", "sh", "-c", script}} {
			c := beside(t, daemon, call...)
			c.awaitStdout(t, "ready\n")
			if err := c.cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			if code := c.end(t); code != 9 || c.stdout() != "ready\nheard\n" { // the shell may say what ended its usleep
				t.Errorf("%v to %q: exit code %d, %q %q", sig, call, code, c.stdout(), c.stderr())
			}
		}
	}
	c := beside(t, daemon, "exec", "signalled", "--", "sh", "-c", "trap 'echo heard; exit 9' USR1; echo ready; while :; do usleep 10000; done")
	c.awaitStdout(t, "ready\n")
	daemon.Run(t, "pause", "signalled")
	if err := c.cmd.Process.Signal(syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	time.Sleep(300 * time.Millisecond) // until it was tried
	daemon.Run(t, "resume", "signalled")
	if code := c.end(t); code != 9 || c.stdout() != "ready\nheard\n" {
		t.Errorf("when resumed: exit code %d, %q", code, c.stdout())
	}
}

// A client that is interrupted twice ends its command, and tells what it knew of it.
func TestInterruptedObject(t *testing.T) {
	t.Parallel()
	box(t, daemon, "cut")
	c := beside(t, daemon, "exec", "--json", "cut", "--", "sh", "-c", "trap '' INT; echo so far; while :; do usleep 10000; done")
	var execs []struct {
		ID, State   string
		StdoutBytes int64 `json:"stdout_bytes"`
	}
	running := func() bool {
		daemon.Run(t, "ps", "cut", "-o", "json").JSON(t, &execs)
		return len(execs) == 1 && execs[0].StdoutBytes > 0
	}
	await(t, "output", running)
	for range 2 {
		time.Sleep(200 * time.Millisecond) // for the output to reach the client, and the first signal the command
		if err := c.cmd.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
	}
	code := c.end(t)
	var got struct {
		Error struct{ Code string }
		Exec  struct {
			ID          string
			StdoutBytes int64 `json:"stdout_bytes"`
		}
		Output struct {
			StdoutText string `json:"stdout_text"`
		}
	}
	if err := json.Unmarshal([]byte(c.stdout()), &got); err != nil {
		t.Fatalf("%v: %s%s", err, c.stdout(), c.stderr())
	}
	if code != 130 || got.Error.Code != "SBX-002" || got.Exec.ID != execs[0].ID || got.Output.StdoutText != "so far\n" || got.Exec.StdoutBytes != 7 {
		t.Errorf("exit code %d, %+v", code, got)
	}
	await(t, "end of the command", func() bool { running(); return execs[0].State == "exited" })
}
