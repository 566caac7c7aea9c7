// Package errtest compares errors with what a test expects.
package errtest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// Want fails t unless err has the code and says each of the words.
func Want(t testing.TB, err error, code sbxerr.Code, words ...string) {
	t.Helper()
	if sbxerr.Of(err) != code {
		t.Errorf("%v: code %q, want %q", err, sbxerr.Of(err), code)
		return
	}
	for _, w := range words {
		if !strings.Contains(fmt.Sprint(err), w) {
			t.Errorf("%v: does not say %q", err, w)
		}
	}
}
