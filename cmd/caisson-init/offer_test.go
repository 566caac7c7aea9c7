package main

import (
	"bufio"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// What a command forked before it was looked at is offered with it.
func TestOffer(t *testing.T) {
	cmd := exec.Command("sh", "-c", "sleep 1000 & echo $!; wait")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	child, convErr := strconv.Atoi(strings.TrimSpace(line))
	defer func() {
		_ = cmd.Process.Kill()
		if p, err := os.FindProcess(child); err == nil && child > 0 {
			_ = p.Kill()
		}
		_ = cmd.Wait() // killed
	}()
	if err != nil || convErr != nil {
		t.Fatalf("got %q, %v", line, err)
	}
	score := func(pid int) string {
		data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/oom_score_adj")
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(data))
	}
	offer(cmd.Process.Pid, 0) // the control
	if command, kept := score(cmd.Process.Pid), score(child); command != "1000" || kept == "1000" {
		t.Errorf("the command has %s, its child %s", command, kept)
	}
	offer(cmd.Process.Pid, maxDescent)
	if got := score(child); got != "1000" {
		t.Errorf("its child has %s", got)
	}
	offer(1<<30, maxDescent) // nobody
}
