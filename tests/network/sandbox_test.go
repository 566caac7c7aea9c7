package network

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caisson-run/caisson/tests/harness"
)

var built struct {
	sync.Once
	dir string
	err error
}

// clientDir is the directory of the client: it is the sandboxes' workspace.
func clientDir(t *testing.T) string {
	t.Helper()
	built.Do(func() {
		built.dir = filepath.Join(host.dir, "client")
		if built.err = os.Mkdir(built.dir, 0o755); built.err != nil {
			return
		}
		cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", filepath.Join(built.dir, "client"), "./client")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Logf("%s", out)
			built.err = err
		}
	})
	if built.err != nil {
		t.Fatalf("build the client: %v", built.err)
	}
	return built.dir
}

// outside runs the client in the world without a sandbox around it.
func outside(t *testing.T, args ...string) string {
	t.Helper()
	return host.try(filepath.Join(clientDir(t), "client"), args...)
}

// sandbox is a live one.
type sandbox struct {
	id string
	of *harness.Daemon
}

// create makes a sandbox with the given flags, which goes with t.
func create(t *testing.T, flags ...string) sandbox {
	t.Helper()
	return createFor(t, daemon, flags...)
}

// createFor makes a sandbox of d, which goes with t.
func createFor(t *testing.T, d *harness.Daemon, flags ...string) sandbox {
	t.Helper()
	s := createOn(t, d, flags...)
	t.Cleanup(func() {
		d.Run(t, "rm", "-f", s.id)
		host.settle(t)
	})
	host.inside[d].of(t, s) // fails if nobody looks
	return s
}

// createOn makes a sandbox of d.
func createOn(t *testing.T, d *harness.Daemon, flags ...string) sandbox {
	t.Helper()
	args := append([]string{"create", "--workspace", clientDir(t) + ":ro"}, flags...)
	return sandbox{strings.TrimSpace(d.Run(t, args...).Stdout), d}
}

// netns is where the daemon has bound the network namespace of s.
func (s sandbox) netns() string { return filepath.Join(s.of.State, "sandboxes", s.id, "netns") }

// try runs the client in s.
func (s sandbox) try(args ...string) string {
	line := append([]string{"exec", "-q", s.id, "--", "/workspace/client"}, args...)
	r := s.of.Try(line...)
	return strings.TrimSpace(r.Stdout + r.Stderr)
}

// await repeats the client until it says want: the gateway comes back by itself.
func (s sandbox) await(t *testing.T, atMost time.Duration, want string, args ...string) {
	t.Helper()
	var said string
	if !until(atMost, func() bool { said = s.try(args...); return strings.Contains(said, want) }) {
		t.Fatalf("%q: %q for %s, want %q", args, said, atMost, want)
	}
}

// until repeats done until it says true, for what nothing announces, and reports whether
// that came in time.
func until(atMost time.Duration, done func() bool) bool {
	for begin := time.Now(); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Since(begin) > atMost {
			return false
		}
	}
	return true
}

// script runs a script of the client in s.
func (s sandbox) script(t *testing.T, text string) {
	t.Helper()
	s.of.Try("exec", s.id, "--", "sh", "-c", "cd /workspace; "+text)
}
