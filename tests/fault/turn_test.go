package fault

import (
	"os"
	"strconv"
	"testing"
)

// turns is how many runs it takes to break at each point of a sweep, where CAISSON_TEST_TURN
// gives each run another number.
const turns = 3

// turn are the points of a sweep at which this run breaks: each third one, or all without
// CAISSON_TEST_TURN. There are 300 of them, and a point takes five seconds of a busy host.
func turn[T any](t *testing.T, all []T) []T {
	t.Helper()
	text := os.Getenv("CAISSON_TEST_TURN")
	if text == "" {
		return all
	}
	number, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("CAISSON_TEST_TURN: %v", err)
	}
	var some []T
	for i, point := range all {
		if i%turns == number%turns || len(all) < turns {
			some = append(some, point)
		}
	}
	return some
}
