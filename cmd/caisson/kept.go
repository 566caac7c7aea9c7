package main

import (
	"fmt"
	"slices"

	"github.com/caisson-run/caisson/api"
)

// keptOutput is the output of a command that is told as one object.
type keptOutput struct{ stdout, stderr kept }

// newKeptOutput keeps limit bytes of each stream; nil is the default.
func newKeptOutput(limit *int64) *keptOutput {
	n := int64(api.DefaultOutputLimit)
	if limit != nil {
		n = *limit
	}
	return &keptOutput{stdout: kept{limit: n}, stderr: kept{limit: n}}
}

// kept is a stream within a bound: its first half and its last half. The
// daemon bounds what it keeps, but passes on the first part as it comes, before
// it can know whether the bound will be passed: so more than the bound arrives.
type kept struct {
	limit      int64
	head, tail []byte // tail may grow to twice its half before it is cut
	passed     int64  // bytes that arrived
}

// Write implements io.Writer. It never fails.
func (k *kept) Write(p []byte) (int, error) {
	n := len(p)
	k.passed += int64(n)
	room := min(k.limit-k.limit/2-int64(len(k.head)), int64(n))
	k.head = append(k.head, p[:room]...)
	k.tail = append(k.tail, p[room:]...)
	if half := k.limit / 2; int64(len(k.tail)) > 2*half {
		k.tail = slices.Delete(k.tail, 0, len(k.tail)-int(half))
	}
	return n, nil
}

// bytes returns what was kept of a stream of total bytes, with the daemon's own
// mark in the place of what was not. A stream within the bound is as it came.
func (k *kept) bytes(total int64) []byte {
	if k.passed <= k.limit {
		return slices.Concat(k.head, k.tail)
	}
	tail := k.tail[max(0, int64(len(k.tail))-k.limit/2):]
	mark := fmt.Sprintf("\n[caisson: %d bytes left out]\n", max(total, k.passed)-k.limit)
	return slices.Concat(k.head, []byte(mark), tail)
}
