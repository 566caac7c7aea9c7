package integration

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/tests/harness"
)

// A daemon that is a unit of systemd says when it is ready, lives and ends, and the programs
// that it starts do not speak for it.
func TestService(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	messages := make(chan string, 1000)
	go func() { // all the time: the kernel queues few, and then the daemon would wait
		defer close(messages)
		for buf := make([]byte, 128); ; {
			n, err := conn.Read(buf)
			if err != nil {
				return
			}
			messages <- string(buf[:n])
		}
	}()
	told := func(want string) {
		t.Helper()
		for {
			select {
			case got := <-messages:
				if got == want {
					return
				}
				if got != "WATCHDOG=1" { // comes until the end
					t.Fatalf("told %q, want %q", got, want)
				}
			case <-time.After(time.Minute):
				t.Fatalf("%s was not told", want)
			}
		}
	}
	d := harness.New(t)
	d.Env = []string{"NOTIFY_SOCKET=" + path, "WATCHDOG_USEC=100000"}
	d.Launch(t)
	told("READY=1")
	told("WATCHDOG=1")
	d.Run(t, "create", "--name", "box")

	family := append([]int{d.PID()}, children(t, d.PID())...)
	if len(family) < 2 {
		t.Fatalf("the daemon has no child: %v", family)
	}
	for i, pid := range append(family, inspect(t, d, "box").PID) {
		environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err != nil {
			t.Fatal(err)
		}
		if got, own := bytes.Contains(environ, []byte("NOTIFY_SOCKET=")), i == 0; got != own { // what a process was started with stays there
			t.Errorf("process %d has NOTIFY_SOCKET: %v, want %v", pid, got, own)
		}
	}
	d.Stop(t)
	told("STOPPING=1")
}

// children returns the processes that a process started.
func children(t *testing.T, pid int) (pids []int) {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended
		}
		for _, field := range strings.Fields(string(text)) {
			child, err := strconv.Atoi(field)
			if err != nil {
				t.Fatal(err)
			}
			pids = append(pids, child)
		}
	}
	return pids
}
