package cgroups

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"
)

// shell is a process in a group that starts others there.
type shell struct {
	t   *testing.T
	pid int
	in  io.Writer
	out io.Reader
	r   *bufio.Reader
}

// do runs a line of shell.
func (s *shell) do(line string) {
	s.t.Helper()
	if _, err := io.WriteString(s.in, line+"\n"); err != nil {
		s.t.Fatal(err)
	}
}

// start runs a command in the background and returns its process.
func (s *shell) start(command string) int {
	s.t.Helper()
	s.do(command + " >/dev/null & echo $!")
	pid, err := strconv.Atoi(s.line())
	if err != nil {
		s.t.Fatal(err)
	}
	return pid
}

// line reads what the shell says.
func (s *shell) line() string {
	s.t.Helper()
	if s.r == nil {
		s.r = bufio.NewReader(s.out)
	}
	line, err := s.r.ReadString('\n')
	if err != nil {
		s.t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

// stateOf is the state of a process as proc_pid_stat(5) shows it, "" if it is gone.
func stateOf(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	return strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))[0]
}
