package escape

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-run/caisson/tests/harness"
)

// bombed runs a bomb to its end and returns what stopped it, after how much and
// how many milliseconds.
func bombed(t *testing.T, args ...string) (what string, n, ms int) {
	t.Helper()
	r := bomb(t, nil, args...)
	what, n, ms = result(t, r)
	return what, n, ms
}

func bomb(t *testing.T, flags []string, args ...string) harness.RunResult {
	t.Helper()
	withProber(t)
	command := append([]string{"--image", proberImage}, flags...)
	return daemon.RunJSON(t, append(append(command, "--timeout", "100s", "--", proberPath, "bomb"), args...)...)
}

func result(t *testing.T, r harness.RunResult) (what string, n, ms int) {
	t.Helper()
	if _, err := fmt.Sscan(r.Stderr, &what, &n, &ms); err != nil {
		// The reason may be of several words: the numbers are the last two.
		f := strings.Fields(r.Stderr)
		if len(f) < 3 {
			t.Fatalf("the bomb said %q: %+v", r.Stderr, r)
		}
		if _, err := fmt.Sscan(strings.Join(f[len(f)-2:], " "), &n, &ms); err != nil {
			t.Fatalf("the bomb said %q: %v", r.Stderr, err)
		}
		what = strings.Join(f[:len(f)-2], " ")
	}
	return what, n, ms
}

// Everything that can be used up is used up inside only: the bomb is stopped
// by a limit of the sandbox, below what the host has.
func TestBombs(t *testing.T) {
	for _, tt := range []struct {
		name, id, want string
		args           []string
		most           int // of what the bomb counts
	}{
		{"tmpfs", "P121", "ENOSPC", []string{"file", "/tmp"}, 256 << 20},
		{"home", "P121", "ENOSPC", []string{"file", "/home/caisson"}, 256 << 20},
		{"shared memory", "P119", "ENOSPC", []string{"file", "/dev/shm"}, 256 << 20},
		{"run", "P121", "EACCES", []string{"file", "/run"}, 0},
		{"root", "P121", "EROFS", []string{"file", "/usr"}, 0},
		{"inodes", "P119", "ENOSPC", []string{"inodes", "/tmp"}, 100_000},
		{"descriptors", "P128", "EMFILE", []string{"fds"}, 4096},
		{"pipes", "P128", "EMFILE", []string{"pipes"}, 2048},
		{"eventfds", "P128", "EMFILE", []string{"eventfds"}, 4096},
		{"epolls", "P128", "EMFILE", []string{"epolls"}, 4096},
		{"inotify instances", "P128", "EMFILE", []string{"inotify"}, 4096},
		{"inotify watches", "P128", "ENOSPC", []string{"watches", "/tmp"}, 1 << 20},
		{"terminals", "P128", "ENOSPC", []string{"ptys"}, 64},
		{"message queues", "P128", "EMFILE", []string{"mq"}, 0},
		{"locked memory", "P128", "ENOMEM", []string{"mlock"}, 64 << 10},
		{"queued signals", "P128", "EAGAIN", []string{"signals"}, 1024},
		{"timers", "P128", "EAGAIN", []string{"timers"}, 1024},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			held(t, tt.id, "use up "+tt.name)
			if what, n, _ := bombed(t, tt.args...); what != tt.want || n > tt.most {
				t.Errorf("stopped by %s after %d, want %s after at most %d", what, n, tt.want, tt.most)
			}
		})
	}
}

func TestForkBomb(t *testing.T) {
	held(t, "P118", "fork bomb")
	r := bomb(t, []string{"--pids", "64"}, "processes")
	if what, n, _ := result(t, r); what != "EAGAIN" || n > 64 || !r.PIDsLimitHit {
		t.Errorf("stopped by %s after %d: %+v", what, n, r)
	}
	// The host can still fork while a bomb goes off.
	id := strings.TrimSpace(daemon.Run(t, "run", "-d", "--pids", "64", "--", "sh", "-c", "b() { b | b & }; b; sleep 1000").Stdout)
	for range 20 {
		must(t, exec.Command(prober(t), "euid").Run())
	}
	if r := daemon.Try("run", "--", "true"); r.Code != 0 {
		t.Errorf("a sibling cannot run: %+v", r)
	}
	daemon.Run(t, "rm", "--force", id)
	daemon.AwaitNoSandbox(t)
}

// Memory of any kind is the sandbox's own, and running out of it is told.
func TestMemoryBombs(t *testing.T) {
	sibling := detached(t, "--", "sleep", "1000")
	for name, args := range map[string][]string{"anonymous memory": {"memory"}, "tmpfs within the limit of files": {"file", "/tmp"}} {
		t.Run(name, func(t *testing.T) {
			held(t, "P119", name)
			r := bomb(t, []string{"-m", "48M", "--tmpfs", "1G"}, args...)
			if !r.OOMKilled || r.ExitCode != 137 || r.Reason != "oom" || r.Usage.PeakMemory > 48<<20 {
				t.Errorf("result %+v", r)
			}
		})
	}
	t.Run("page cache", func(t *testing.T) {
		held(t, "P119", "page cache")
		dir := workspace(t)
		must(t, os.Chown(dir, 1000, 1000))
		r := daemon.RunJSON(t, "-m", "48M", "--workspace", dir, "--", "sh", "-c", "head -c 150000000 /dev/zero > big; cat big big >/dev/null; rm big; echo done")
		if r.Stdout != "done\n" || r.OOMKilled || r.Usage.PeakMemory > 48<<20 { // the kernel reclaims it
			t.Errorf("result %+v", r)
		}
	})
	if _, err := os.Stat(fmt.Sprintf("/proc/%d", sibling.PID)); err != nil {
		t.Errorf("a sibling was killed: %v", err)
	}
}

// One line of a gigabyte costs the daemon no memory, and is told for what it
// is.
//
//caisson:host the daemon's own affair, the same on every kernel
func TestOutputBomb(t *testing.T) {
	held(t, "P124", "one line of 1 GiB")
	size := int64(1 << 30)
	if os.Getenv("CAISSON_VM") != "" {
		size = 64 << 20 // an emulated processor would take minutes; this is six times what is kept
	}
	bomb(t, nil, "output", "20000000") // what the daemon keeps for reuse, it has afterwards
	before := rss(t)
	stop, peak := make(chan struct{}), make(chan int)
	go func() {
		most := 0
		for {
			select {
			case <-stop:
				peak <- most
				return
			case <-time.After(20 * time.Millisecond): // samples
				most = max(most, rss(t))
			}
		}
	}()
	r := bomb(t, nil, "output", fmt.Sprint(size))
	close(stop)
	if grown := <-peak - before; grown > 48<<10 {
		t.Errorf("the daemon grew by %d kB", grown)
	}
	if !r.Truncated || r.StdoutBytes != size || r.ExitCode != 0 || r.StdoutSkipped == 0 {
		t.Errorf("truncated %v, %d bytes, code %d, %d kept", r.Truncated, r.StdoutBytes, r.ExitCode, len(r.Stdout))
	}
}

// rss is the daemon's resident memory in kB.
func rss(t *testing.T) int {
	for line := range strings.Lines(procFile(t, daemon.PID(), "status")) {
		if v, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			var kb int
			_, err := fmt.Sscan(v, &kb)
			must(t, err)
			return kb
		}
	}
	t.Fatal("no VmRSS")
	return 0
}

// A client that reads nothing holds up nobody else.
//
//caisson:host the daemon's own affair, the same on every kernel
func TestStalledReader(t *testing.T) {
	held(t, "P126", "a client that does not read")
	withProber(t)
	cmd := daemon.Command(t.Context(), "run", "--timeout", "60s", "--image", proberImage, "--", proberPath, "bomb", "output", fmt.Sprint(200<<20))
	out, err := cmd.StdoutPipe() // read by nobody
	must(t, err)
	defer out.Close()
	must(t, cmd.Start())
	must(t, cmd.Process.Signal(syscall.SIGSTOP))
	before := rss(t)
	for range 3 {
		start := time.Now()
		if r := daemon.Try("run", "--", "echo", "through"); r.Stdout != "through\n" || time.Since(start) > 10*time.Second {
			t.Errorf("another run took %s: %+v", time.Since(start), r)
		}
	}
	if grown := rss(t) - before; grown > 48<<10 {
		t.Errorf("the daemon grew by %d kB", grown)
	}
	must(t, cmd.Process.Kill())
	_ = cmd.Wait()
	daemon.AwaitNoSandbox(t)
}
