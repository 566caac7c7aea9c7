package servertest

import (
	"context"
	"slices"

	"github.com/caisson-run/caisson/runtime/spend"
)

type spendingFake struct{ f *Fake }

// List implements server.Spending.
func (s spendingFake) List(context.Context) ([]spend.Row, error) { return slices.Clone(s.f.Spent), nil }
