package network

import (
	"bufio"
	"context"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-run/caisson/tests/harness"
)

// held starts a command in s that holds a connection, and returns when it does.
// What it says in the end comes in the channel.
func (s sandbox) held(t *testing.T, address string) <-chan string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return holds(t, s.of.Command(ctx, "exec", s.id, "--", "/workspace/client", "hold", address))
}

// holds is held for any command that runs the client.
func holds(t *testing.T, cmd *exec.Cmd) <-chan string {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "held" {
		t.Fatalf("%q: %q", cmd.Args, lines.Text())
	}
	end := make(chan string, 1)
	go func() {
		lines.Scan()
		end <- lines.Text()
		_ = cmd.Wait() // its line says how it went
	}()
	return end
}

// P101: a rule that goes takes its connections with it, within a second; others
// stay.
//
//caisson:kernel
func TestUpdateCuts(t *testing.T) {
	reaches(t, "web.example:5432", "db.example:5432")
	s := create(t, "--allow", "web.example:5432", "--allow", "db.example:5432")
	web, db := s.held(t, "web.example:5432"), s.held(t, "db.example:5432")
	daemon.Run(t, "update", "--allow", "db.example:5432", s.id)
	begin := time.Now()
	select {
	case said := <-web:
		if took := time.Since(begin); took > time.Second {
			t.Errorf("it ended after %s", took)
		}
		if said != "ended" && !strings.Contains(said, "reset") {
			t.Errorf("it ended with %q", said)
		}
	case <-time.After(10 * time.Second):
		t.Error("a connection that is no longer allowed goes on")
	}
	select {
	case said := <-db:
		t.Errorf("one that is still allowed ended: %q", said)
	case <-time.After(200 * time.Millisecond):
	}
	if said := s.try("echo", "web.example:5432"); !strings.Contains(said, "error:") {
		t.Errorf("what is no longer allowed: %q", said)
	}
	daemon.Run(t, "update", "--allow", "", s.id)
	if said := s.try("echo", "db.example:5432"); !strings.Contains(said, "error:") {
		t.Errorf("with no rule left: %q", said)
	}
	daemon.Run(t, "update", "--network", "open", s.id)
	if said := s.try("echo", "web.example:5432"); said != "echo ping" {
		t.Errorf("opened: %q", said)
	}
}

// An address range is led to the gateway when a rule names it, and no longer when
// the rule goes.
func TestAddressRules(t *testing.T) {
	reaches(t, elsewhere+":5432")
	s := create(t, "--allow", "web.example")
	literal := []string{"echo", elsewhere + ":5432"}
	if said := s.try(literal...); !strings.Contains(said, "refused") {
		t.Errorf("before there is a rule: %q", said)
	}
	daemon.Run(t, "update", "--allow", "93.184.215.96/29:5432", s.id)
	if said := s.try(literal...); said != "echo ping" {
		t.Errorf("with the rule: %q", said)
	}
	if said := s.try("http", "http://"+elsewhere+"/"); !strings.Contains(said, "SBX-701") {
		t.Errorf("another port of the range: %q", said)
	}
	daemon.Run(t, "update", "--allow", "web.example", s.id)
	if said := s.try(literal...); !strings.Contains(said, "refused") {
		t.Errorf("without the rule again: %q", said)
	}
}

// A policy that is not one changes nothing.
func TestBadUpdates(t *testing.T) {
	reaches(t, "web.example:80")
	s := create(t, "--allow", "web.example")
	for _, rule := range []string{"*.com", "web.example:0", "web.example:70000", "10.0.0.1/8:80,private", "no name"} {
		daemon.Refused(t, "SBX-404", "update", "--json", "--allow", rule, s.id)
	}
	daemon.Refused(t, "SBX-403", "update", "--json", "--network", "none", s.id)
	if said := s.try("http", "http://web.example/"); !strings.Contains(said, "200") {
		t.Errorf("the old policy is gone: %q", said)
	}
	closed := create(t)
	daemon.Refused(t, "SBX-403", "update", "--json", "--allow", "web.example", closed.id)
}

// gateway returns the process that carries the traffic of d.
func gateway(t *testing.T, d *harness.Daemon) int {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range stats {
		data, _ := os.ReadFile(path) // it may have ended
		name, rest, _ := strings.Cut(string(data), ") ")
		fields := strings.Fields(rest)
		if strings.Contains(name, "(caisson-gatewa") && len(fields) > 1 && fields[1] == strconv.Itoa(d.PID()) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			return pid
		}
	}
	t.Fatal("there is no gateway")
	return 0
}

// F16, F17: without the gateway nothing gets out, and it comes back with all
// policies and the addresses that names had.
func TestGatewayDies(t *testing.T) {
	for _, tt := range []struct {
		name   string
		signal syscall.Signal
		atMost time.Duration
	}{{"killed", syscall.SIGKILL, 5 * time.Second}, {"hangs", syscall.SIGSTOP, 30 * time.Second}} {
		t.Run(tt.name, func(t *testing.T) {
			reaches(t, "web.example:80", "db.example:5432")
			s := create(t, "--allow", "web.example")
			held := create(t, "--allow", "db.example:5432").held(t, "db.example:5432")
			address := s.try("names", "web.example")
			pid := gateway(t, daemon)
			if err := syscall.Kill(pid, tt.signal); err != nil {
				t.Fatal(err)
			}
			select {
			case <-held:
			case <-time.After(tt.atMost):
				t.Error("a connection outlived its gateway")
			}
			s.await(t, tt.atMost, "200 I am "+public, "http", "http://web.example/")
			if again := s.try("names", "web.example"); again != address {
				t.Errorf("web.example was %s and is %s", address, again)
			}
			if now := gateway(t, daemon); now == pid {
				t.Error("it is the same process")
			}
			if said := s.try("http", "http://other.example/"); !strings.Contains(said, "error:") {
				t.Errorf("another name: %q", said)
			}
		})
	}
}

// A killed daemon takes the gateway with it, and the next one opens the same way
// out again, for the same names, and counts on.
func TestDaemonKilled(t *testing.T) {
	reaches(t, "web.example:80")
	s := create(t, "--allow", "web.example")
	address := s.try("names", "web.example")
	if said := s.try("http", "http://web.example/"); !strings.Contains(said, "200") {
		t.Fatalf("%q", said)
	}
	s.try("names", "other.example")
	before := counters(t, s)
	if before["allowed"] != 1 || before["sent_bytes"] == 0 || before["lookups_answered"] == 0 || before["lookups_refused"] == 0 {
		t.Fatalf("counters %v", before)
	}
	pid := gateway(t, daemon)
	daemon.Kill(t)
	if !until(5*time.Second, func() bool { return syscall.Kill(pid, 0) != nil }) {
		t.Fatal("the gateway outlived its daemon")
	}
	daemon.Launch(t)
	if after := counters(t, s); !maps.Equal(after, before) {
		t.Errorf("counters %v, and %v before", after, before)
	}
	s.await(t, 10*time.Second, "200 I am "+public, "http", "http://web.example/")
	if after := counters(t, s); after["allowed"] != 2 {
		t.Errorf("counters %v", after)
	}
	if again := s.try("names", "web.example"); again != address {
		t.Errorf("web.example was %s and is %s", address, again)
	}
	if said := s.try("http", "http://other.example/"); !strings.Contains(said, "error:") {
		t.Errorf("another name: %q", said)
	}
}

// counters are what the daemon counted of s.
func counters(t *testing.T, s sandbox) map[string]int64 {
	t.Helper()
	var detail struct{ Egress map[string]int64 }
	s.of.Run(t, "inspect", s.id).JSONIn(t, "sandbox", &detail)
	return detail.Egress
}
