package integration

import (
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/tests/harness"
)

// limited is the part of a result that tells of limits.
type limited struct {
	ExitCode     int      `json:"exit_code"`
	LimitsHit    []string `json:"limits_hit"`
	FullTmpfs    []string `json:"full_tmpfs"`
	ReadOnlyHint bool     `json:"read_only_hint"`
	Usage        struct {
		Throttled harness.Duration `json:"cpu_throttled"`
	} `json:"usage"`
}

// TestResultTellsLimits: a result names the limits that the command hit, of a run and of a
// command of a session.
//
//caisson:kernel
func TestResultTellsLimits(t *testing.T) {
	d := harness.Start(t)
	d.Run(t, "create", "--name", "box", "--tmpfs", "1M")
	for _, tt := range []struct {
		script   string
		hit      []string
		full     []string
		readOnly bool
		hint     string
	}{
		{"true", nil, nil, false, ""},
		{"exit 3", nil, nil, false, ""},
		{"echo x > /etc/x", nil, nil, true, "the root, which is read-only"},
		{"echo x > /etc/x; true", nil, nil, false, ""},
		{"head -c 2000000 /dev/zero > /tmp/big", []string{"tmpfs"}, []string{"/tmp"}, false, "no space was left in /tmp"},
		{"head -c 2000000 /dev/zero > /tmp/big; true", nil, nil, false, ""},
		{"head -c 2000000 /dev/zero > /tmp/big; rm /tmp/big; false", nil, nil, false, ""},
	} {
		for _, begin := range [][]string{{"run", "--tmpfs", "1M", "--"}, {"exec", "box"}} {
			command := slices.Concat(begin[1:], []string{"sh", "-c", tt.script})
			var r limited
			d.Try(slices.Concat(begin[:1], []string{"--json"}, command)...).JSONIn(t, "result", &r)
			r.LimitsHit = slices.DeleteFunc(r.LimitsHit, func(l string) bool { return l == "cpu" }) // as a busy host has it
			if !slices.Equal(r.LimitsHit, tt.hit) || !slices.Equal(r.FullTmpfs, tt.full) || r.ReadOnlyHint != tt.readOnly {
				t.Errorf("%s %s: %+v", begin[0], tt.script, r)
			}
			said := d.Try(slices.Concat(begin[:1], command)...).Stderr
			if tt.hint != "" && !strings.Contains(said, tt.hint) || tt.hint == "" && strings.Contains(said, "caisson:") {
				t.Errorf("%s %s: says %q", begin[0], tt.script, said)
			}
			d.Run(t, "exec", "box", "--", "rm", "-f", "/tmp/big")
		}
	}
	var r limited
	d.Try("run", "--json", "--cpus", "0.1", "--timeout", "500ms", "--", "sh", "-c", "while :; do :; done").JSONIn(t, "result", &r)
	if !slices.Equal(r.LimitsHit, []string{"cpu"}) || r.Usage.Throttled.Milliseconds() < 100 {
		t.Errorf("throttled: %+v", r)
	}
	d.Try("run", "--json", "--mount", "type=tmpfs,dst=/scratch,size=64K", "--", "sh", "-c", "head -c 100000 /dev/zero > /scratch/big").JSONIn(t, "result", &r)
	if !slices.Equal(r.FullTmpfs, []string{"/scratch"}) {
		t.Errorf("a mount: %+v", r)
	}
}
