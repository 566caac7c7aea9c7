// Package need says what a test needs of the host. Without it the test is skipped.
// Under CAISSON_TEST_STRICT, which CI sets, it fails: a skip there is a test that
// never runs.
package need

import (
	"os"
	"os/exec"
	"testing"
)

// Root needs the test to be root's. Why says what for.
func Root(t testing.TB, why string) {
	t.Helper()
	if os.Geteuid() != 0 {
		Missing(t, "root: "+why)
	}
}

// Env needs the variable to be set, and returns its value. What says what it names.
func Env(t testing.TB, name, what string) string {
	t.Helper()
	value := os.Getenv(name)
	if value == "" {
		Missing(t, name+", "+what)
	}
	return value
}

// Bin needs the directory of the built programs, and returns it.
func Bin(t testing.TB) string {
	t.Helper()
	return Env(t, "CAISSON_BIN_DIR", "the directory of our programs and the engine's")
}

// Tools needs programs of the host.
func Tools(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := exec.LookPath(name); err != nil {
			Missing(t, name)
		}
	}
}

// Missing ends a test for which something is not there.
func Missing(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("CAISSON_TEST_STRICT") != "" {
		t.Fatal("needs " + what)
	}
	t.Skip("needs " + what)
}
