package network

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"
)

// enter is what is put before a command line of root's that is to run in the namespace
// of s.
func (s sandbox) enter() []string { return []string{"nsenter", "--net=" + s.netns(), "--"} }

// rules are all of the namespace of s, as the commands that program them save them.
func (s sandbox) rules(t *testing.T, command string) string {
	t.Helper()
	line := append(s.enter(), command+"-save")
	out, err := exec.Command(line[0], line[1:]...).Output()
	if err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	return variable.ReplaceAllString(string(out), "")
}

// variable is what differs each time that rules are saved: comments with the time, and
// counters.
var variable = regexp.MustCompile(`(?m)^#.*\n|\[\d+:\d+\]`)

// flush takes all rules of the namespace of s away, and has its chains accept what comes.
func (s sandbox) flush(t *testing.T, command string) {
	t.Helper()
	all := regexp.MustCompile(`(?m)^-A.*\n`).ReplaceAllString(s.rules(t, command), "")
	all = regexp.MustCompile(`(?m)^(:\S+) DROP`).ReplaceAllString(all, "$1 ACCEPT")
	line := append(s.enter(), command+"-restore")
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Stdin = strings.NewReader(all)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%q: %v\n%s", line, err, out)
	}
}

// Whatever happened to the namespace of a sandbox while no daemon looked, the next one goes
// on with it only when it is as declared: lost rules are there again, and with something
// else in it the sandbox is ended.
func TestNamespaceIsLookedAtAgain(t *testing.T) {
	reaches(t, "web.example:80")
	s := create(t, "--allow", "web.example")
	strange := createOn(t, daemon, "--allow", "web.example")
	t.Cleanup(func() { daemon.Try("rm", "-f", strange.id) }) // where it is there all the same
	commands := []string{"iptables", "ip6tables"}
	before := map[string]string{}
	daemon.Kill(t)
	for _, c := range commands {
		before[c] = s.rules(t, c)
		if s.flush(t, c); s.rules(t, c) == before[c] {
			t.Fatalf("the control: %s shows no difference: %s", c, before[c])
		}
	}
	line := append(strange.enter(), "ip", "addr", "add", "192.0.2.1/32", "dev", "lo")
	if out, err := exec.Command(line[0], line[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%q: %v\n%s", line, err, out)
	}
	daemon.Launch(t)
	for _, c := range commands {
		if after := s.rules(t, c); after != before[c] {
			t.Errorf("the next daemon left\n%s\nof\n%s", after, before[c])
		}
	}
	s.await(t, 10*time.Second, "200 I am "+public, "http", "http://web.example/")
	check(t, s, []attempt{
		{"another name", []string{"http", "http://other.example/"}, "error:"},
		{"a literal address", []string{"http", "http://" + public + "/"}, "error:"},
		{"UDP", []string{"query", resolver + ":53", "web.example", "A"}, "error:"},
		{"IPv6", []string{"echo", "[" + publicV6 + "]:5432"}, "error:"},
	})
	daemon.Refused(t, "SBX-107", "inspect", "--json", strange.id)
	if log := daemon.Log(); !strings.Contains(log, "do not go on with a sandbox of an earlier daemon") || !strings.Contains(log, "192.0.2.1/32") {
		t.Errorf("it is not said why one sandbox is gone:\n%s", log)
	}
}
