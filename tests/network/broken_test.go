package network

import (
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A socket that ends is no secret: nothing gets out, and who looks is told why.
//
//caisson:kernel
func TestBrokenSocket(t *testing.T) {
	reaches(t, "web.example:80")
	s := create(t, "--allow", "web.example")
	var detail struct {
		Failure string `json:"network_failure"`
	}
	if daemon.Run(t, "inspect", s.id).JSONIn(t, "sandbox", &detail); detail.Failure != "" || !strings.Contains(s.try("http", "http://web.example/"), "200") {
		t.Fatalf("before: %+v", detail)
	}
	s.endListeners(t)
	if !until(10*time.Second, func() bool { daemon.Run(t, "inspect", s.id).JSONIn(t, "sandbox", &detail); return detail.Failure != "" }) {
		t.Fatal("nobody is told")
	}
	if !strings.Contains(detail.Failure, "SBX-707") {
		t.Errorf("inspect: %q", detail.Failure)
	}
	if said := s.try("http", "http://web.example/"); !strings.Contains(said, "error:") {
		t.Errorf("it reaches %q", said)
	}
	var result struct{ Warnings []string }
	daemon.Run(t, "exec", "--json", s.id, "--", "true").JSONIn(t, "result", &result)
	if len(result.Warnings) != 1 || !strings.Contains(result.Warnings[0], "not served") {
		t.Errorf("a result warns %q", result.Warnings)
	}
}

// endListeners ends the TCP listeners in the namespace of s, by the daemon's copies
// of them.
func (s sandbox) endListeners(t *testing.T) {
	t.Helper()
	inodes := s.listeners(t)
	pidfd, err := unix.PidfdOpen(s.of.PID(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pidfd)
	for fd := range 1024 {
		own, err := unix.PidfdGetfd(pidfd, fd, 0)
		if errors.Is(err, unix.EBADF) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		var st unix.Stat_t
		err = unix.Fstat(own, &st)
		if at := slices.Index(inodes, fmt.Sprint(st.Ino)); at >= 0 {
			inodes = slices.Delete(inodes, at, at+1)
			err = errors.Join(err, unix.Shutdown(own, unix.SHUT_RD))
		}
		if err := errors.Join(err, unix.Close(own)); err != nil {
			t.Fatal(err)
		}
	}
	if len(inodes) > 0 {
		t.Fatalf("the daemon has no copy of the sockets %q", inodes)
	}
}

// listeners are the inodes of the TCP listeners in the namespace of s (proc(5),
// /proc/net/tcp).
func (s sandbox) listeners(t *testing.T) []string {
	t.Helper()
	ns := s.netns()
	out, err := exec.Command("nsenter", "--net="+ns, "cat", "/proc/self/net/tcp").Output()
	if err != nil {
		t.Fatal(err)
	}
	var inodes []string
	for line := range strings.Lines(string(out)) {
		if fields := strings.Fields(line); len(fields) > 9 && fields[3] == "0A" {
			inodes = append(inodes, fields[9])
		}
	}
	if len(inodes) == 0 {
		t.Fatalf("nothing listens: %s", out)
	}
	return inodes
}
