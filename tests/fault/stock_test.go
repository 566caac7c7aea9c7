package fault

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/tests/harness"
	"github.com/caisson-run/caisson/tests/need"
)

// heldNamespaces are the network namespaces that the daemon has descriptors of.
func heldNamespaces(t *testing.T, d *harness.Daemon) (held []string) {
	t.Helper()
	for _, fd := range glob(t, fmt.Sprintf("/proc/%d/fd/*", d.PID())) {
		if target, err := os.Readlink(fd); err == nil && strings.HasPrefix(target, "net:[") {
			held = append(held, target)
		}
	}
	return held
}

// holders lists what holds one of the namespaces on the host: processes and mounts.
func holders(t *testing.T, namespaces []string) (found []string) {
	t.Helper()
	for _, link := range slices.Concat(glob(t, "/proc/[0-9]*/ns/net"), glob(t, "/proc/[0-9]*/fd/*")) {
		if target, err := os.Readlink(link); err == nil && slices.Contains(namespaces, target) {
			found = append(found, link+" "+read(filepath.Join(filepath.Dir(filepath.Dir(link)), "cmdline")))
		}
	}
	for line := range strings.Lines(read("/proc/self/mountinfo")) {
		for _, n := range namespaces {
			if strings.Contains(line, " "+n+" ") {
				found = append(found, line)
			}
		}
	}
	return found
}

// Namespaces that wait for a sandbox are gone with the daemon, whenever that is killed, and
// one that was handed out is its sandbox's alone.
func TestKilledWithStock(t *testing.T) {
	b := newBreakable(t, "")
	create := func(name string) { t.Helper(); b.Run(t, "create", "--name", name, "--allow", "web.example") }
	most := 0
	for _, after := range append(need.Turn(t, []time.Duration{0, 4, 8, 12, 16, 24, 32, 48, 96, 150, 200}), 800) {
		name := fmt.Sprintf("after-%d", after)
		create(name)
		time.Sleep(after * time.Millisecond)
		held := heldNamespaces(t, b.Daemon)
		for late := time.Now().Add(20 * time.Second); after == 800 && len(held) < 4 && time.Now().Before(late); held = heldNamespaces(t, b.Daemon) {
			time.Sleep(50 * time.Millisecond) // a busy host makes them slowly
		}
		if len(held) > 0 && len(holders(t, held)) == 0 {
			t.Fatalf("the control: nobody holds %v", held)
		}
		most = max(most, len(held))
		b.Kill(t)
		deadline := time.Now().Add(10 * time.Second) // a command of iptables may still end
		for left := holders(t, held); len(left) > 0; left = holders(t, held) {
			if time.Now().After(deadline) {
				t.Fatalf("killed after %d ms, it left %q", after, left)
			}
			time.Sleep(10 * time.Millisecond)
		}
		b.Launch(t, b.flags...)
		checkSound(t, b.Daemon)
		// No resolver knows the name: the gateway's answer says so.
		if r := b.Try("exec", name, "--", "nslookup", "-type=a", "web.example"); !strings.Contains(r.Stdout, "NXDOMAIN") {
			t.Errorf("the sandbox that was made %d ms before: %+v", after, r)
		}
		b.empty(t)
	}
	if most < 4 {
		t.Errorf("at most %d waited, want 4", most)
	}
	t.Run("filled", func(t *testing.T) {
		b.arm(t, "stock/filled=kill")
		r := begin(t, b.Daemon, "create", "--name", "filled", "--allow", "web.example")
		b.died(t, "stock/filled")
		r.end(t)
		checkSound(t, b.Daemon)
		b.empty(t)
	})
	t.Run("fails", func(t *testing.T) {
		b.arm(t, "stock/filled=error")
		create("fails")
		b.disarm(t)
		b.empty(t)
	})
}
