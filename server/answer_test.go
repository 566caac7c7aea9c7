package server

import (
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api"
	"github.com/caisson-run/caisson/runtime/peer"
)

// What a caller's waiting calls have no room for is left out and said, and others have theirs.
func TestAnswersAreBounded(t *testing.T) {
	all := newAmounts(10)
	stream := func(user string, limit int64) *heldOutput {
		return &heldOutput{Kept: api.NewKept(limit), all: all, bounds: []bound{{user, 100, 0}, {"not root", 150, 20}}, limit: limit}
	}
	write := func(h *heldOutput, n int, want bool) {
		t.Helper()
		if _, err := h.Write([]byte(strings.Repeat("x", n))); err != nil || h.short == want {
			t.Errorf("%d bytes after %d: short %v, %v", n, h.held, h.short, err)
		}
	}
	first, second := stream("ann", 1000), stream("ann", 1000)
	write(first, 60, true)
	write(second, 50, false)
	if kept, skipped := second.Bytes(50); len(kept) != 0 || skipped != 50 {
		t.Errorf("%d kept, %d skipped", len(kept), skipped)
	}
	write(stream("bob", 1000), 80, false) // the spare part is for those who hold little
	little := stream("bob", 1000)
	write(little, 5, true)
	long := stream("eve", 10)
	for range 100 {
		write(long, 7, true)
	}
	if long.held != 15 {
		t.Errorf("a long stream counts %d bytes", long.held)
	}
	a := finishedOutput{stdout: first, stderr: second}
	if len(a.warning()) != 1 || !strings.Contains(a.warning()[0], "logs has the output") {
		t.Errorf("%q", a.warning())
	}
	a.release()
	(&finishedOutput{stdout: little, stderr: long}).release()
	if len(all.held) != 0 {
		t.Errorf("left %v", all.held)
	}
	for _, uid := range []uint32{0, 7} {
		ctx := peer.NewContext(t.Context(), peer.User(uid, uid, nil, 1))
		if bounded := len(answersOf(ctx)) > 0; bounded != (uid != 0) {
			t.Errorf("uid %d: %v", uid, bounded)
		}
	}
}
