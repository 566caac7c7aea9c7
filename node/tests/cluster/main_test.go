// Package cluster runs caisson-node against a real control plane: one of tools/kubernetes on
// loopback, two daemons and two node programs, in a network namespace of their own.
package cluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
)

// inside says that this process is the one in the namespace.
const inside = "CAISSON_TEST_NETNS"

// site is the cluster of all tests.
var site *cluster

func TestMain(m *testing.M) {
	switch {
	case os.Getenv("CAISSON_KUBERNETES") == "" || os.Getenv("CAISSON_BIN_DIR") == "":
		fmt.Println("skipped: CAISSON_KUBERNETES and CAISSON_BIN_DIR name no programs; run make test-kubernetes")
	case os.Getenv(inside) == "":
		os.Exit(enter())
	default:
		os.Exit(run(m))
	}
}

// enter runs this program again where addresses, ports and rules are nobody else's.
func enter() int {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), inside+"=1")
	runtime.LockOSThread() // the death signal comes with the end of the thread
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGTERM}
	if err := cmd.Run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func run(m *testing.M) (code int) {
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGTERM, syscall.SIGINT)
	var err error
	site, err = start()
	go func() {
		<-told // who ran the tests is gone, or wants no more
		_ = site.end()
		os.Exit(1)
	}()
	if err == nil {
		code = m.Run()
	}
	err = errors.Join(err, site.end())
	if err != nil {
		fmt.Fprintln(os.Stderr, "FAIL:", err)
		return 1
	}
	return code
}

// program returns the path of a built program.
func program(variable, name string) string { return filepath.Join(os.Getenv(variable), name) }
