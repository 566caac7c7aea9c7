package harness

import (
	"fmt"
	"os"
	"sync"
	"testing"
)

// exceptions counts what a host could not do, by reason. There is no silent
// skip: each is printed at the end, and none is possible where it was not
// foreseen.
var exceptions = struct {
	sync.Mutex
	list []string
}{}

// Except ends t as a named exception where it was foreseen, and fails it
// otherwise.
func Except(t testing.TB, reason string, foreseen bool) {
	t.Helper()
	if !foreseen {
		t.Fatal(reason)
	}
	exceptions.Lock()
	exceptions.list = append(exceptions.list, fmt.Sprintf("%s: %s", t.Name(), reason))
	exceptions.Unlock()
	t.Skip("exception: " + reason)
}

// printExceptions tells them all.
func printExceptions() {
	exceptions.Lock()
	defer exceptions.Unlock()
	fmt.Fprintf(os.Stderr, "exceptions: %d\n", len(exceptions.list))
	for _, e := range exceptions.list {
		fmt.Fprintf(os.Stderr, "  %s\n", e)
	}
}
