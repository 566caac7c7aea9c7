package posture

import (
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// PID 1 may be in its leaf on v2, a command in a group of its own anywhere; nothing
// may be elsewhere.
func TestCompareCgroupsBelow(t *testing.T) {
	for _, tt := range []struct {
		lines   string
		command bool
		want    bool
	}{
		{"0::/caisson/one\n", false, true},
		{"0::/caisson/one/init\n", false, true},
		{"0::/caisson/one/init\n", true, true},
		{"0::/caisson/one/e1\n", true, true},
		{"0::/caisson/one/e1\n", false, false},
		{"0::/caisson/one/init/x\n", false, false},
		{"0::/caisson/one/e1/x\n", true, false},
		{"0::/caisson/one/\n", true, false},
		{"0::/caisson/onetwo\n", true, false},
		{"0::/caisson/two/init\n", false, false},
		{"0::/caisson\n", true, false},
		{"4:memory:/caisson/one\n1:pids:/caisson/one\n0::/\n", false, true},
		{"4:memory:/caisson/one/e1\n1:pids:/caisson/one/e1\n0::/caisson/one/e1\n", true, true},
		{"4:memory:/caisson/one/e1\n1:devices:/caisson/one\n0::/\n", true, true},
		{"4:memory:/caisson/one/init\n1:pids:/caisson/one\n0::/\n", false, false},
		{"4:memory:/caisson/two/e1\n0::/\n", true, false},
	} {
		cgroups, err := parseCgroups(tt.lines)
		if err != nil {
			t.Fatal(err)
		}
		w := want{
			Declared: Declared{Command: tt.command, Spec: &specs.Spec{Linux: &specs.Linux{CgroupsPath: "/caisson/one"}}},
			host:     host{Surroundings: &Surroundings{unified: "/"}}, live: live{cgroups: cgroups},
		}
		ok := true
		results := compareCgroups(w)
		for _, r := range results {
			ok = ok && r.OK
		}
		if ok != tt.want {
			t.Errorf("%q, a command: %v: %+v; want %v", tt.lines, tt.command, results, tt.want)
		}
	}
}
