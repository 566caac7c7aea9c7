package integration

import (
	"strings"
	"testing"

	"github.com/caisson-run/caisson/tests/harness"
)

// TestHostname: the name is that of the kernel, of the files and of the environment, and
// stays over a restart of the daemon. The pool is for sandboxes that are named by their ID.
func TestHostname(t *testing.T) {
	t.Parallel()
	d := harness.StartWith(t, "pools: [{size: 1}]\n")
	awaitReady(t, d, 1)
	hits := poolOf(t, d).Hits
	const look = `hostname; cat /etc/hostname; grep -c "localhost $HOSTNAME$" /etc/hosts; echo $HOSTNAME`
	want := strings.ReplaceAll("X\nX\n1\nX\n", "X", "Build-7")
	id := box(t, d, "named", "--hostname", "Build-7")
	if got := d.Run(t, "exec", "named", "--", "sh", "-c", look).Stdout; got != want {
		t.Errorf("named: %q", got)
	}
	if poolOf(t, d).Hits != hits {
		t.Error("a named one came from the pool")
	}
	if got := d.Run(t, "run", "--", "sh", "-c", look).Stdout; strings.Contains(got, "Build-7") || len(strings.Fields(got)[0]) != len(id) {
		t.Errorf("by its ID: %q", got)
	}
	if poolOf(t, d).Hits != hits+1 {
		t.Error("one without a name did not come from the pool")
	}
	d.Kill(t)
	d.Launch(t)
	if got := d.Run(t, "exec", "named", "--", "sh", "-c", look).Stdout; got != want {
		t.Errorf("after a restart: %q", got)
	}
	d.Run(t, "restart", "named")
	if got := d.Run(t, "exec", "named", "--", "sh", "-c", look).Stdout; got != want {
		t.Errorf("made anew: %q", got)
	}
	for _, bad := range []string{"-a", "a-", "a.b", "a b", "a\nb", strings.Repeat("a", 64)} {
		d.Refused(t, "SBX-101", "run", "-o", "json", "--hostname", bad, "--", "true")
	}
	if got := d.Run(t, "run", "--hostname", strings.Repeat("a", 63), "--", "hostname").Stdout; len(got) != 64 {
		t.Errorf("the longest: %q", got)
	}
	box(t, d, "pg", "--expose", "5432")
	d.Refused(t, "SBX-101", "create", "-o", "json", "--hostname", "DB", "--network", "allow", "--link", "db=pg:5432")
}
