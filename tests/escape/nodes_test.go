package escape

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// sharedNodes are device nodes that nobody on the host locks. The last one is opened
// to end the wait.
var sharedNodes = []string{"full", "random", "zero"}

const lockedAll = "locked [full random zero]"

// TestDeviceNodesAreOnesOwn: flock(2) and inotify(7) work on inodes. By a node that
// two sandboxes share, or a sandbox and the host, each tells the other something.
func TestDeviceNodesAreOnesOwn(t *testing.T) {
	withProber(t)
	t.Run("control", func(t *testing.T) {
		cmd := exec.Command(prober(t), append([]string{"nodes", "watch"}, sharedNodes...)...)
		out, err := cmd.StdoutPipe()
		must(t, err)
		must(t, cmd.Start())
		defer func() {
			must(t, cmd.Process.Kill())
			_ = cmd.Wait() // killed by us
		}()
		lines := bufio.NewScanner(out)
		if !lines.Scan() || lines.Text() != lockedAll {
			t.Fatalf("the first process: %q", lines.Text())
		}
		if text, err := exec.Command(prober(t), append([]string{"nodes"}, sharedNodes...)...).Output(); err != nil || string(text) != "locked []\n" {
			t.Fatalf("the second process: %q, %v", text, err)
		}
		if !lines.Scan() || lines.Text() != "opened full" {
			t.Fatalf("the first process saw %q", lines.Text())
		}
	})
	held(t, "P068", "lock and watch the device nodes of the host and of siblings")
	d := detached(t, append([]string{"--image", proberImage, "--", proberPath, "nodes", "watch"}, sharedNodes...)...)
	said := func() string { return daemon.Run(t, "logs", d.ID).Stdout }
	await(t, "the locks", func() bool { return said() != "" })
	sibling := append([]string{"run", "--image", proberImage, "--", proberPath, "nodes"}, sharedNodes...)
	if got := daemon.Run(t, sibling...).Stdout; got != lockedAll+"\n" {
		t.Errorf("a sibling: %q", got)
	}
	if text, err := exec.Command(prober(t), append([]string{"nodes"}, sharedNodes...)...).Output(); err != nil || string(text) != lockedAll+"\n" {
		t.Errorf("the host: %q, %v", text, err)
	}
	f, err := os.Open("/dev/full")
	must(t, err)
	must(t, f.Close())
	daemon.Run(t, "exec", d.ID, "--", proberPath, "nodes", "zero") // told after all that came before
	await(t, "what the sandbox opened itself", func() bool { return strings.Contains(said(), "opened zero") })
	if got := said(); got != lockedAll+"\nopened zero\n" {
		t.Errorf("the sandbox: %q", got)
	}
}
