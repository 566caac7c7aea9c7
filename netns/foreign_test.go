package netns

import (
	"bufio"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
)

// foreignNamespace starts a process in a user and a network namespace of its
// own and returns the path of the latter. The process ends with the test.
func foreignNamespace(t *testing.T) string {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", "echo ready; read _")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Skipf("needs user namespaces: %v", err)
	}
	t.Cleanup(func() {
		_ = stdin.Close() // ends the read, and with it the process
		_ = cmd.Wait()
	})
	if _, err := bufio.NewReader(stdout).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	return "/proc/" + strconv.Itoa(cmd.Process.Pid) + "/ns/net"
}
