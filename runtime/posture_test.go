package runtime

import (
	"strings"
	"testing"

	"github.com/caisson-run/caisson/cgroups"
	"github.com/caisson-run/caisson/runtime/plan"
)

// What cannot be read of a cgroup is a difference, and is reported in the place of
// the value that is declared.
func TestLimitsThatAreNotThere(t *testing.T) {
	host, err := cgroups.Detect()
	if err != nil {
		t.Fatal(err)
	}
	group, err := cgroups.Open(host, "/caisson-absent/"+idA1)
	if err != nil {
		t.Fatal(err)
	}
	limits := plan.DefaultLimits().Cgroup()
	c := compareLimits(group, limits, host)
	if want := len(limits.Files(host)); want == 0 || len(c.checks) != want {
		t.Fatalf("%d checks of %d files", len(c.checks), want)
	}
	for _, check := range c.checks {
		if !strings.HasPrefix(check.Live, "unreadable: ") || check.Declared == "" || !strings.Contains(c.err.Error(), check.Name+" is ") {
			t.Errorf("%+v, in the error %v", check, c.err)
		}
	}
}
