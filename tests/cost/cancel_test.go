package cost

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/tests/harness"
)

// childrenOf are the processes that a process has started.
func childrenOf(t *testing.T, pid int) (pids []int) {
	t.Helper()
	files, err := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, _ := os.ReadFile(file) // a thread may have ended
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

// workOf is the CPU that the daemon and what it has parse images have had so far.
func workOf(t *testing.T, d *harness.Daemon) (cpu time.Duration) {
	t.Helper()
	cpu, _ = use(t, d.PID())
	for _, child := range childrenOf(t, d.PID()) {
		if name, _ := os.ReadFile("/proc/" + strconv.Itoa(child) + "/comm"); strings.TrimSpace(string(name)) == "caisson-images" {
			used, _ := use(t, child)
			cpu += used
		}
	}
	return cpu
}

// begin sends a request and hangs up soon.
func begin(t *testing.T, d *harness.Daemon, path, body string) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", d.Socket)
	}}}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://caisson"+path, bytes.NewReader([]byte(body)))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if res, err := client.Do(r); err == nil {
		_ = res.Body.Close()
	}
}

// What is done for a caller after it has left takes no more than what 100 ms have of a processor.
func TestCallersThatLeave(t *testing.T) {
	d := harness.Start(t)
	d.Run(t, "run", "--", "true")
	for name, r := range bodies(t) {
		t.Run(name, func(t *testing.T) {
			least := time.Hour
			for n := 0; n < tries && least > mostCPU; n++ {
				begin(t, d, r.path, r.body)
				before := workOf(t, d)
				time.Sleep(300 * time.Millisecond) // what does not end takes most of it
				least = min(least, workOf(t, d)-before)
			}
			t.Logf("%s after the caller left", least)
			if least > mostCPU {
				t.Errorf("%s of work after the caller left", least)
			}
		})
	}
}
