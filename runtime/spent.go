package runtime

import (
	"cmp"
	"context"
	"fmt"

	"github.com/caisson-run/caisson/gateway/route/budget"
	"github.com/caisson-run/caisson/runtime/events"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/runtime/spend"
)

// billOf says which accounts the requests of a sandbox by routes are counted in. Those of a child
// are its parent's: it may name its session as it likes.
func billOf(p *plan.Sandbox, r record) budget.Bill {
	if p.Bill != (budget.Bill{}) {
		return p.Bill
	}
	b := budget.Bill{Sandbox: p.ID, Profile: fmt.Sprintf("%d/%s", r.OwnerUID, p.ProfileName)}
	if r.Session != "" {
		b.Session = fmt.Sprintf("%d/%s", r.OwnerUID, r.Session)
	}
	return b
}

// aboutSpending is r as the book has it.
func (r record) aboutSpending() spend.About {
	bill := r.Bill
	bill.Sandbox = cmp.Or(bill.Sandbox, r.ID) // an older daemon's has none
	return spend.About{Sandbox: r.ID, Name: r.Name, Owner: r.OwnerUID, Parent: r.Parent, Session: r.Session, Profile: r.Profile, Bill: bill}
}

// Spending tells what requests by routes took.
type Spending struct{ Fleet *Manager }

// List returns the accounts of those sandboxes, live and gone, that the caller may see, the
// newest first.
func (s Spending) List(ctx context.Context) ([]spend.Row, error) {
	m := s.Fleet
	defer m.Busy()()
	g, err := m.grant(ctx)
	if err != nil {
		return nil, err
	}
	if m.opts.Egress != nil {
		_ = m.refreshEgress(ctx, "") // it is logged
	}
	return m.opts.Spending.List(func(a spend.About) bool { return g.Sees(a.Owner, a.Parent) }), nil
}

// addSpent adds to d what requests of a sandbox by routes took that are over.
func (h *host) addSpent(ctx context.Context, id string, d *events.Data) {
	_ = h.refreshEgress(ctx, id) // it is logged
	a := h.opts.Spending.Total(id)
	d.InputTokens, d.OutputTokens, d.Cost = count(a.Tokens.Input), count(a.Tokens.Output), float64(a.Micros)/spend.Micro
}
