package escape

import (
	"bufio"
	"fmt"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// shareUser is a user of the host that nobody is.
const shareUser = 54321

// What the kernel counts for each user, it counts for the owners of all user
// namespaces around that user as well (namespaces(7), /proc/sys/user). A sandbox
// that uses up its share must not use up root's, which is everybody's.
func TestShareIsOnesOwn(t *testing.T) {
	withProber(t)
	t.Run("control", func(t *testing.T) {
		// A namespace inside which all is used up, and its owner outside.
		cmd := asShareUser(prober(t), "nest")
		out, err := cmd.StdoutPipe()
		must(t, err)
		must(t, cmd.Start())
		defer func() {
			must(t, cmd.Process.Kill())
			_ = cmd.Wait() // killed by us
		}()
		if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || usedUp(t, line) == 0 {
			t.Fatalf("inside: %q, %v", line, err)
		}
		if text, err := asShareUser(prober(t), "bomb", "inotify").CombinedOutput(); err != nil || usedUpBy(t, string(text)) != 0 {
			t.Fatalf("the owner outside could still have some: %q, %v", text, err)
		}
	})
	held(t, "P128", "use up the inotify instances of the host and of siblings")
	d := detached(t, "--image", proberImage, "--", proberPath, "exhaust")
	said := ""
	await(t, "the end of all instances", func() bool {
		said = daemon.Run(t, "logs", d.ID).Stdout
		return said != ""
	})
	if usedUp(t, said) == 0 {
		t.Fatalf("the sandbox had none: %q", said)
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		t.Fatalf("the host has none left: %v", err)
	}
	must(t, unix.Close(fd))
	if what, n, _ := bombed(t, "inotify"); what != "EMFILE" || n < 16 {
		t.Errorf("a sibling had %d, then %s", n, what)
	}
}

func asShareUser(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: shareUser, Gid: shareUser}, Pdeathsig: syscall.SIGKILL}
	return cmd
}

// usedUp reads what the mode exhaust said.
func usedUp(t *testing.T, said string) (n int) {
	t.Helper()
	var what string
	if _, err := fmt.Sscan(said, &n, &what); err != nil || what != "EMFILE" {
		t.Fatalf("it said %q: %v", said, err)
	}
	return n
}

// usedUpBy reads what a bomb said.
func usedUpBy(t *testing.T, said string) (n int) {
	t.Helper()
	var what string
	if _, err := fmt.Sscan(said, &what, &n); err != nil || what != "EMFILE" {
		t.Fatalf("it said %q: %v", said, err)
	}
	return n
}
