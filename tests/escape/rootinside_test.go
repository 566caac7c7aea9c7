package escape

import (
	"strings"
	"testing"
)

// TestRootInsideStaysInside: root of a sandbox signals and changes all that it can of PID 1, and
// writes over its root. PID 1 goes on, and another sandbox of the image is as it was.
func TestRootInsideStaysInside(t *testing.T) {
	held(t, "P005", "root inside")
	const look = "cat /etc/resolv.conf /etc/passwd; grep -c . /etc/hosts; sha256sum /bin/busybox; ls /usr /etc /bin"
	before := daemon.Run(t, "run", "--", "sh", "-c", look).Stdout
	box := strings.TrimSpace(daemon.Run(t, "create", "--profile", "dev").Stdout)
	t.Cleanup(func() { daemon.Run(t, "rm", "--force", box) })
	control := daemon.Run(t, "exec", box, "--", "sh", "-c", "sleep 100 & kill -TERM $!; wait $!; echo $?; echo 7 > /etc/hosts; cat /etc/hosts").Stdout
	if control != "143\n7\n" {
		t.Errorf("a process of its own, and a file: %q", control)
	}
	daemon.Try("exec", box, "--", "sh", "-c", "for s in $(seq 1 64); do kill -$s 1; done")
	if got := daemon.Run(t, "exec", box, "--", "sh", "-c", `
		echo -1000 > /proc/1/oom_score_adj || echo not lower; echo x > /proc/1/comm || echo no name
		renice 19 1; echo -n y > /proc/1/mem || echo no memory; readlink /proc/1/fd/0 || echo no link; cat /proc/1/environ || echo no environment
		rm -rf /bin/sh /usr /etc/passwd; echo x > /bin/new`).Stdout; got != "not lower\nno name\nno memory\nno link\nno environment\n" {
		t.Errorf("of PID 1: %q", got)
	}
	if got := daemon.Run(t, "exec", box, "--", "/bin/busybox", "echo", "alive").Stdout; got != "alive\n" {
		t.Errorf("after all: %q", got)
	}
	if after := daemon.Run(t, "run", "--", "sh", "-c", look).Stdout; after != before {
		t.Errorf("another sandbox: %q, was %q", after, before)
	}
}
