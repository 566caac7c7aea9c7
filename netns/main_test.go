package netns

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/caisson-run/caisson/tests/need"
)

// testPrefix marks every directory of these tests, so that TestMain finds
// mounts that were left behind.
const testPrefix = "caisson-netns-test-"

// TestMain fails the package if a test left a mount behind, or a thread of
// this process in a namespace that is not the host's.
func TestMain(m *testing.M) {
	code := m.Run()
	if err := leaks(); err != nil {
		fmt.Fprintln(os.Stderr, "leak:", err)
		code = 1
	}
	os.Exit(code)
}

func leaks() error {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	for line := range bytes.Lines(mounts) {
		if bytes.Contains(line, []byte(testPrefix)) {
			return fmt.Errorf("mount %s", line)
		}
	}
	// Threads end shortly after their goroutines.
	var foreign error
	for range 100 {
		if foreign = foreignThreads(); foreign == nil {
			return nil
		}
		<-time.After(10 * time.Millisecond)
	}
	return foreign
}

func foreignThreads() error {
	own, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return err
	}
	tasks, err := filepath.Glob("/proc/self/task/*/ns/net")
	if err != nil {
		return err
	}
	for _, task := range tasks {
		ns, err := os.Readlink(task)
		if err == nil && ns != own {
			return fmt.Errorf("%s is still in %s, the process is in %s", task, ns, own)
		}
	}
	return nil
}

// needRoot skips t unless network namespaces can be made.
func needRoot(t testing.TB) {
	t.Helper()
	need.Root(t, "it unshares and mounts network namespaces")
}

// newPath returns a path for a namespace in a directory of its own. It is
// removed at the end if the test did not do it.
func newPath(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", testPrefix)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "netns")
	t.Cleanup(func() {
		if err := Remove(path); err != nil {
			t.Error(err)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return path
}

func create(t testing.TB) string {
	t.Helper()
	needRoot(t)
	path := newPath(t)
	if err := Create(path); err != nil {
		t.Fatal(err)
	}
	return path
}

func open(t testing.TB, path string) *Namespace {
	t.Helper()
	n, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() })
	return n
}
