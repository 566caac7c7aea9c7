package harness

import (
	"fmt"
	"os"
	"runtime"
	"testing"
)

// Main runs the tests of a package with one shared daemon, and then proves
// that nothing is left on the host, neither of the daemon nor of a test.
func Main(m *testing.M, shared **Daemon) int { return MainWith(m, shared, func(*Daemon) {}) }

// MainWith is Main with a daemon that prepare may change before it is started.
func MainWith(m *testing.M, shared **Daemon, prepare func(*Daemon)) int {
	if os.Geteuid() != 0 || os.Getenv("CAISSON_BIN_DIR") == "" {
		fmt.Fprintln(os.Stderr, "these tests need root and CAISSON_BIN_DIR: run make test")
		return 1
	}
	t := &mainT{name: "shared daemon"}
	*shared = New(t)
	prepare(*shared)
	code := 1
	if t.do(func() { (*shared).start(t) }); !t.Failed() {
		code = m.Run()
		printExceptions()
	}
	t.do(t.finish)
	if t.Failed() {
		return 1
	}
	return code
}

// mainT lets the helpers, which speak testing.TB, be used around all tests.
type mainT struct {
	testing.TB
	name     string
	failed   bool
	cleanups []func()
}

func (t *mainT) Helper()          {}
func (t *mainT) Name() string     { return t.name }
func (t *mainT) Failed() bool     { return t.failed }
func (t *mainT) Cleanup(f func()) { t.cleanups = append(t.cleanups, f) }
func (t *mainT) Log(args ...any)  { fmt.Fprintln(os.Stderr, args...) }

func (t *mainT) Logf(format string, args ...any) { t.Log(fmt.Sprintf(format, args...)) }

func (t *mainT) Error(args ...any) {
	t.failed = true
	t.Log(args...)
}

func (t *mainT) Errorf(format string, args ...any) { t.Error(fmt.Sprintf(format, args...)) }

func (t *mainT) Fatal(args ...any) {
	t.Error(args...)
	runtime.Goexit()
}

func (t *mainT) Fatalf(format string, args ...any) { t.Fatal(fmt.Sprintf(format, args...)) }

// do does f until its end or a Fatal.
func (t *mainT) do(f func()) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f()
	}()
	<-ended
}

func (t *mainT) finish() {
	for len(t.cleanups) > 0 {
		last := t.cleanups[len(t.cleanups)-1]
		t.cleanups = t.cleanups[:len(t.cleanups)-1]
		last()
	}
}
