package main

import (
	"io"
	"strconv"
	"testing"

	"github.com/caisson-run/caisson/gateway/control"
	"github.com/caisson-run/caisson/gateway/lookup"
)

// What the daemon does not read is bounded, for one sandbox and for all, and the next
// report says how much is missing.
func TestOutboxIsBounded(t *testing.T) {
	o := newOutbox(io.Discard)
	happens := func(id string, times int) {
		for range times {
			o.event(id, control.Report{Query: &lookup.Query{Sandbox: id}})
		}
	}
	happens("one", maxSandboxOwn+3)
	happens("two", 1)
	if q := o.take(); len(q) != maxSandboxOwn+1 || q[maxSandboxOwn].Lost != 0 {
		t.Fatalf("%d are kept, the last one after %d", len(q), q[len(q)-1].Lost)
	}
	happens("one", 1)
	if q := o.take(); len(q) != 1 || q[0].Lost != 3 {
		t.Errorf("%d are kept, the last one after %d", len(q), q[len(q)-1].Lost)
	}
	for i := range maxEvents + 3 {
		happens(strconv.Itoa(i), 1)
	}
	if q := o.take(); len(q) != maxEvents {
		t.Errorf("%d of all sandboxes are kept", len(q))
	}
}
