package harness

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/netns"
)

// Namespace is a network namespace that stands for the host's, or for the world's: a
// daemon in it has nothing of this machine's own to touch. Namespaces of netns.Create
// have their loopback device up, and nothing else.
type Namespace struct {
	*netns.Namespace
	Path string
}

// NewNamespace makes one that goes with t.
func NewNamespace(t testing.TB) Namespace {
	t.Helper()
	path := filepath.Join(t.TempDir(), "netns")
	if err := netns.Create(path); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := netns.Remove(path); err != nil {
			t.Error(err)
		}
	})
	ns, err := netns.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ns.Close(); err != nil {
			t.Error(err)
		}
	})
	return Namespace{ns, path}
}

// Enter is what is put before a command line that is to run in n.
func (n Namespace) Enter() []string { return []string{"nsenter", "--net=" + n.Path, "--"} }

// Run runs a command of the operator in n.
func (n Namespace) Run(t testing.TB, command string) string {
	t.Helper()
	return runIn(t, n.Enter(), command)
}

func runIn(t testing.TB, enter []string, command string) string {
	t.Helper()
	line := append(enter, strings.Fields(command)...)
	out, err := exec.Command(line[0], line[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%q: %v\n%s", line, err, out)
	}
	return string(out)
}

// NetworkTraces is all that the namespace which enter leads to has of a network, but
// for what happened in it: links, addresses, routes and rules. The empty tables and
// chains that iptables makes when it is first asked are left out.
func NetworkTraces(t testing.TB, enter []string) string {
	t.Helper()
	all := ""
	for _, line := range []string{"ip -o link", "ip -o addr", "ip rule", "ip route show table all", "ip -6 rule", "ip -6 route show table all"} {
		all += runIn(t, enter, line)
	}
	for _, line := range []string{"iptables-save", "ip6tables-save"} {
		for rule := range strings.Lines(runIn(t, enter, line)) {
			if strings.HasPrefix(rule, "-A") || strings.Contains(rule, "CAISSON") {
				all += rule
			}
		}
	}
	return all
}
