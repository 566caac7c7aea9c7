package runtime

import (
	"os"
	"testing"

	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/runtime/posture"
)

// TestRlimitNames: a request can name every limit that the kernel tells of.
func TestRlimitNames(t *testing.T) {
	text, err := os.ReadFile("/proc/self/limits")
	if err != nil {
		t.Fatal(err)
	}
	have, err := posture.ParseLimits(string(text))
	if err != nil || len(have) != plan.MaxRlimits || len(plan.RlimitNumbers) != plan.MaxRlimits {
		t.Fatalf("the kernel has %d limits, %d are known by name, %d may be given: %v", len(have), len(plan.RlimitNumbers), plan.MaxRlimits, err)
	}
	seen := map[int]bool{}
	for _, l := range have {
		n, ok := plan.RlimitNumbers[l.Type]
		if !ok || seen[n] {
			t.Errorf("%s is not known, or %d is two limits", l.Type, n)
		}
		seen[n] = true
	}
}
