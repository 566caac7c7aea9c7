package integration

import (
	"testing"

	"github.com/caisson-run/caisson/tests/harness"
)

// TestCPUOfARun: the CPU of a run is its command's, and what that leaves running counts. The
// making of the sandbox takes some 20 ms on an idle host, and is not in it.
func TestCPUOfARun(t *testing.T) {
	d := harness.Start(t)
	least := d.RunJSON(t, "--", "echo", "hi").Usage.CPU.Milliseconds()
	for range 4 {
		least = min(least, d.RunJSON(t, "--", "echo", "hi").Usage.CPU.Milliseconds())
	}
	if least <= 0 || least > 12 {
		t.Errorf("echo took %.1f ms of CPU", least)
	}
	const burn = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done"
	alone := d.RunJSON(t, "--", "sh", "-c", burn).Usage.CPU.Milliseconds()
	for range 2 {
		alone = min(alone, d.RunJSON(t, "--", "sh", "-c", burn).Usage.CPU.Milliseconds())
	}
	beside := d.RunJSON(t, "--", "sh", "-c", "for n in 1 2 3 4; do ("+burn+") & done; "+burn+"; wait").Usage.CPU.Milliseconds()
	if alone < 10*least || beside < 2*alone { // a loop on a busy host takes up to twice as long
		t.Errorf("a loop took %.1f ms, and five of them %.1f ms", alone, beside)
	}
}
