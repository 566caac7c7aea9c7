package need

import (
	"os"
	"strconv"
	"testing"
)

// turns is how many runs it takes to go through all of a sweep, where CAISSON_TEST_TURN gives
// each run another number.
const turns = 3

// Turn is what of a sweep this run takes: each third of all, from one that the variable chooses,
// or all without it. Sweeps take most of the time of the suites.
func Turn[T any](t testing.TB, all []T) []T {
	t.Helper()
	text := os.Getenv("CAISSON_TEST_TURN")
	if text == "" || len(all) < turns {
		return all
	}
	number, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		t.Fatalf("CAISSON_TEST_TURN: %v", err)
	}
	var some []T
	for i := int(number % turns); i < len(all); i += turns {
		some = append(some, all[i])
	}
	return some
}
