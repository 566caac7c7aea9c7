package network

import (
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// command runs a command of root's in the namespace of s.
func (s sandbox) command(t *testing.T, line string) {
	t.Helper()
	args := append(s.enter(), strings.Fields(line)...)
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%q: %v\n%s", args, err, out)
	}
}

// Whoever changes the rules of a sandbox's namespace by hand changes them until the next
// daemon: it replaces rules that differ, and ends the sandbox where something else is left.
// Both are said, with the code.
func TestRulesChangedByHand(t *testing.T) {
	reaches(t, "web.example:80")
	changes := []struct {
		line   string
		mended bool
	}{
		{"iptables -w -F", true},
		{"ip6tables -w -F OUTPUT", true},
		{"iptables -w -t nat -F OUTPUT", true},
		{"iptables -w -I OUTPUT -j ACCEPT", true},
		{"ip6tables -w -I INPUT -j ACCEPT", true},
		{"iptables -w -R OUTPUT 4 -j ACCEPT", true},
		{"iptables -w -t nat -I OUTPUT -p tcp --dport 5432 -j RETURN", true},
		{"iptables -w -N MINE", false},
		{"iptables -w -t mangle -A OUTPUT -j ACCEPT", false},
		{"iptables -w -P FORWARD DROP", false},
	}
	boxes, before := make([]sandbox, len(changes)), make([]string, len(changes))
	for i := range changes {
		boxes[i] = createOn(t, daemon, "--allow", "web.example")
		t.Cleanup(func() { daemon.Try("rm", "-f", boxes[i].id) })
		before[i] = boxes[i].rules(t, "iptables") + boxes[i].rules(t, "ip6tables")
	}
	daemon.Kill(t)
	for i, c := range changes {
		boxes[i].command(t, c.line)
		if now := boxes[i].rules(t, "iptables") + boxes[i].rules(t, "ip6tables"); now == before[i] {
			t.Fatalf("the control: %s shows no difference", c.line)
		}
	}
	daemon.Launch(t)
	for i, c := range changes {
		s := boxes[i]
		if !c.mended {
			daemon.Refused(t, "SBX-107", "inspect", "--json", s.id)
			if !said(daemon.Log(), "do not go on", s.id) {
				t.Errorf("%s: it is not said why the sandbox is gone", c.line)
			}
			continue
		}
		if now := s.rules(t, "iptables") + s.rules(t, "ip6tables"); now != before[i] {
			t.Errorf("%s: the next daemon left\n%s\nof\n%s", c.line, now, before[i])
		}
		if !said(daemon.Log(), "somebody changed the rules", s.id) {
			t.Errorf("%s: it is not said that the rules were replaced", c.line)
		}
		s.await(t, 10*time.Second, "200 I am "+public, "http", "http://web.example/")
		check(t, s, []attempt{
			{"a literal address", []string{"http", "http://" + public + "/"}, "error:"},
			{"UDP", []string{"query", resolver + ":53", "web.example", "A"}, "error:"},
		})
	}
}

// said reports whether a line of the log has the text, the sandbox, and the code of a
// difference.
func said(log, text, id string) bool {
	for line := range strings.Lines(log) {
		if strings.Contains(line, text) && strings.Contains(line, id) && strings.Contains(line, "SBX-605") {
			return true
		}
	}
	return false
}

// Many sandboxes at once, of which none finds a namespace ready, have each its own rules.
//
//caisson:host an emulated processor is too slow for many at once
func TestManyAtOnceWithNothingReady(t *testing.T) {
	reaches(t, "web.example:80")
	daemon.Kill(t)
	daemon.Launch(t)
	const many = 16
	boxes := make([]sandbox, many)
	var wg sync.WaitGroup
	for i := range boxes {
		wg.Go(func() {
			r := daemon.Try("create", "--name", fmt.Sprintf("many-%d", i), "--allow", "web.example")
			if r.Code != 0 {
				t.Errorf("%+v", r)
				return
			}
			boxes[i].id = strings.TrimSpace(r.Stdout)
		})
	}
	wg.Wait()
	for i := range boxes {
		name := fmt.Sprintf("many-%d", i)
		t.Cleanup(func() { daemon.Try("rm", "-f", name) })
		out := daemon.Try("exec", name, "--", "wget", "-qO-", "http://web.example/")
		refused := daemon.Try("exec", name, "--", "wget", "-T", "2", "-qO-", "http://"+public+"/")
		if !strings.Contains(out.Stdout, "I am "+public) || refused.Code == 0 {
			t.Errorf("%s: %+v, and a literal address %+v", name, out, refused)
		}
	}
}
