// Package escape attacks sandboxes from inside, and the daemon from where
// hostile input reaches it, and asserts that every attack fails.
//
// The attempts of the prober are made a second time unconfined: there they have
// to succeed, or they prove nothing. At the end a line for each section says
// how many were held.
package escape

import (
	"fmt"
	"os"
	"testing"

	"github.com/caisson-run/caisson/tests/harness"
)

// daemon serves all tests that need nothing special of one.
var daemon *harness.Daemon

func TestMain(m *testing.M) {
	code := harness.Main(m, &daemon)
	fmt.Print(scores.summary())
	if path := os.Getenv("CAISSON_ESCAPE_SUMMARY"); path != "" { // go test shows the output of failed packages only
		if err := os.WriteFile(path, []byte(scores.summary()), 0o644); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}
