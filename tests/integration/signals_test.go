package integration

import (
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
