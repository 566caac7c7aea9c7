package server

import (
	"context"
	"fmt"

	"github.com/caisson-run/caisson/api"
	"github.com/caisson-run/caisson/runtime/peer"
)

// How many bytes of output the calls with wait hold, which are sent when their commands end.
// Their messages take up to three times as much.
const (
	maxAnswersUser = 96 << 20
	maxAnswersBox  = 32 << 20  // of one sandbox that makes others
	maxAnswersRest = 256 << 20 // of all but root
	spareAnswers   = 64 << 20  // of the last, for callers that hold little
	littleAnswer   = 1 << 20
)

func answersOf(ctx context.Context) []bound {
	c, known := peer.FromContext(ctx)
	own := bound{c.String(), maxAnswersUser, 0}
	switch {
	case !known || c.IsHostRoot():
		return nil
	case c.Sandbox != "":
		own.most = maxAnswersBox
	}
	return []bound{own, {"not root", maxAnswersRest, spareAnswers}}
}

// finishedOutput is the output of a command until it ends. What the calls of its caller have no room
// for is left out, as is the middle of a long stream.
type finishedOutput struct {
	stdout, stderr *heldOutput
}

func newFinishedOutput(ctx context.Context, held *amounts, limit int64) *finishedOutput {
	bounds := answersOf(ctx)
	stream := func() *heldOutput {
		return &heldOutput{Kept: api.NewKept(limit), all: held, bounds: bounds, limit: limit}
	}
	return &finishedOutput{stream(), stream()}
}

// release gives back what the answer held.
func (a *finishedOutput) release() {
	for _, s := range []*heldOutput{a.stdout, a.stderr} {
		if s.held > 0 {
			s.all.give(s.bounds, s.held)
		}
	}
}

// warning says that output is left out which the caller asked for.
func (a *finishedOutput) warning() []string {
	if !a.stdout.short && !a.stderr.short {
		return nil
	}
	return []string{fmt.Sprintf("output is left out of the answer: calls with wait hold at most %d MiB for a user and %d for all but root; logs has the output", maxAnswersUser>>20, maxAnswersRest>>20)}
}

// heldOutput is one stream of an answer.
type heldOutput struct {
	*api.Kept
	all    *amounts
	bounds []bound // none for root
	limit  int64
	held   int
	short  bool // there was no room
}

// Write implements io.Writer. It never fails.
func (h *heldOutput) Write(p []byte) (int, error) {
	if len(h.bounds) == 0 {
		return h.Kept.Write(p)
	}
	more := int(min(int64(h.held+len(p)), h.limit+h.limit/2)) - h.held // Kept holds no more
	if more > 0 && !h.all.take(h.bounds, more) {
		h.short = true
		return len(p), h.Skip(int64(len(p)))
	}
	h.held += max(more, 0)
	return h.Kept.Write(p)
}
