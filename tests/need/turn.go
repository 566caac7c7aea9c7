package need

import (
	"fmt"
	"os"
	"testing"
)

// Turn is what of a sweep this run takes: with CAISSON_TEST_TURN=NUMBER/TURNS each of as many runs
// as TURNS takes another part, and without it each takes all. Sweeps take most of the time of the
// suites.
func Turn[T any](t testing.TB, all []T) (some []T) {
	t.Helper()
	text := os.Getenv("CAISSON_TEST_TURN")
	if text == "" {
		return all
	}
	var number, turns int
	if _, err := fmt.Sscanf(text+"\n", "%d/%d\n", &number, &turns); err != nil || number < 0 || turns < 1 {
		t.Fatalf("CAISSON_TEST_TURN is %q, not NUMBER/TURNS", text)
	}
	if len(all) < turns {
		return all
	}
	for i := number % turns; i < len(all); i += turns {
		some = append(some, all[i])
	}
	return some
}
