package escape

import (
	"flag"
	"fmt"
	"os"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files again")

// TestSweep makes every system call with invalid arguments in a real sandbox:
// what was proved of the filter's program has to be what runc loads. The file has the
// numbers that strict refuses with EPERM: all but prlimit64 whatever their arguments are.
//
//caisson:kernel
func TestSweep(t *testing.T) {
	held(t, "P045", "every system call")
	withProber(t)
	refused := func(profile string) []string {
		var numbers []string
		out := daemon.Run(t, "run", "--image", proberImage, "--profile", profile, "--", proberPath, "sweep").Stdout
		if n := strings.Count(out, "\n"); n < 400 {
			t.Fatalf("%s: only %d calls were made:\n%s", profile, n, out)
		}
		for line := range strings.Lines(out) {
			number, got, _ := strings.Cut(strings.TrimSpace(line), " ")
			if got == "EPERM" {
				numbers = append(numbers, number)
			}
			if got == "no answer" || got == "thread killed" {
				t.Errorf("%s: call %s: %s", profile, number, got)
			}
		}
		return numbers
	}
	strict := refused("strict")
	got := strings.Join(strict, "\n") + "\n"
	golden := "testdata/refused_" + goruntime.GOARCH + ".golden"
	if *update {
		must(t, os.WriteFile(golden, []byte(got), 0o644))
	} else if want, err := os.ReadFile(golden); err != nil || got != string(want) {
		t.Errorf("strict refuses\n%s\nwant\n%s%v", got, want, err)
	}
	for _, profile := range []string{"debug", "compat"} {
		more := slices.DeleteFunc(refused(profile), func(n string) bool { return slices.Contains(strict, n) })
		if len(more) > 0 {
			t.Errorf("%s refuses calls that strict allows: %q", profile, more)
		}
	}
	if len(strict) < 90 {
		t.Errorf("strict refuses only %d calls: %s", len(strict), fmt.Sprint(strict))
	}
}
