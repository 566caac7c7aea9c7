package budget

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// assumed is what a request under way counts before one has ended, in tokens.
const assumed = 4096

// Account is what is counted together.
type Account struct {
	Scope Scope  `json:"scope"`
	Of    string `json:"of"`             // the sandbox, session or user and profile
	Route string `json:"route"`          // its name, without the zone
	Hour  int64  `json:"hour,omitempty"` // since 1970, of the scope hour
}

// Bill says which accounts the requests of a sandbox are counted in.
type Bill struct {
	Sandbox string // the outermost one around it, or itself
	Session string // with its user; empty is none
	Profile string // with its user
}

// Account returns the account of a scope and a route at a time.
func (b Bill) Account(s Scope, route string, at time.Time) Account {
	switch s {
	case Session:
		if b.Session != "" {
			return Account{Scope: Session, Of: b.Session, Route: route}
		}
	case Hour:
		return Account{Scope: Hour, Of: b.Profile, Route: route, Hour: at.Unix() / 3600}
	}
	return Account{Scope: Sandbox, Of: b.Sandbox, Route: route}
}

// Ledger is what all requests took.
type Ledger struct {
	mu       sync.Mutex
	accounts map[Account]*entry
}

type entry struct {
	spent   Amount
	running uint64
	largest Amount // of a request
	changed bool   // since it was told
}

// Request is one under way.
type Request struct {
	ledger  *Ledger
	route   string
	charges []charge
}

type charge struct {
	*entry
	Account
	limit Limit
}

// Spent says what is used up of a budget.
type Spent struct{ text string }

// Error says which budget of which route.
func (s *Spent) Error() string { return s.text }

// Begin admits a request, or returns a [*Spent]. Requests under way count as much as the largest
// one before, so that many at once cannot all pass a budget that has room for one.
func (l *Ledger) Begin(b Bill, route string, limits map[Scope]Limit, at time.Time) (*Request, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := &Request{ledger: l, route: route}
	for _, s := range Scopes {
		limit, limited := limits[s]
		if !limited && s != Sandbox {
			continue
		}
		c := charge{Account: b.Account(s, route, at), limit: limit}
		c.entry = l.entry(c.Account)
		if err := c.admits(route); err != nil {
			return nil, err
		}
		if i := slices.IndexFunc(r.charges, func(d charge) bool { return d.Account == c.Account }); i >= 0 { // a sandbox of no session
			r.charges[i].limit = r.charges[i].limit.and(limit)
			continue
		}
		r.charges = append(r.charges, c)
	}
	for _, c := range r.charges {
		c.running++
	}
	return r, nil
}

func (c charge) admits(route string) error {
	if err := spent(route, c.Scope, c.limit, c.spent); err != nil || c.running == 0 {
		return err
	}
	each := c.largest
	if each.Tokens.Total() == 0 {
		each.Tokens.Output = assumed
	}
	what, _, limit := c.limit.over(c.spent.Plus(each.times(c.running)))
	if what == "" {
		return nil
	}
	return &Spent{fmt.Sprintf("what is left of the budget of route %s for %s %s (%s) is held by the %d requests under way", route, what, c.Scope.of(), limit, c.running)}
}

func spent(route string, s Scope, limit Limit, a Amount) error {
	what, used, most := limit.over(a)
	if what == "" {
		return nil
	}
	return &Spent{fmt.Sprintf("the budget of route %s for %s is used up (%s of %s %s)", route, what, used, most, s.of())}
}

func (l *Ledger) entry(a Account) *entry {
	e := l.accounts[a]
	if e == nil {
		if l.accounts == nil {
			l.accounts = map[Account]*entry{}
		}
		e = new(entry)
		l.accounts[a] = e
	}
	return e
}

// Pass counts bytes of a body at once, and returns a [*Spent] when there are too many.
func (r *Request) Pass(n int) error {
	r.ledger.mu.Lock()
	defer r.ledger.mu.Unlock()
	var err error
	for _, c := range r.charges {
		c.spent.Bytes += uint64(max(n, 0))
		c.changed = true
		if c.limit.Bytes > 0 && c.spent.Bytes > c.limit.Bytes {
			err = spent(r.route, c.Scope, Limit{Bytes: c.limit.Bytes}, c.spent)
		}
	}
	return err
}

// End counts what else the request took. Its bytes were counted by Pass.
func (r *Request) End(a Amount) {
	r.ledger.mu.Lock()
	defer r.ledger.mu.Unlock()
	for _, c := range r.charges {
		c.running--
		c.largest = c.largest.largest(a)
		c.changed = true
		bytes := c.spent.Bytes
		c.spent = c.spent.Plus(a)
		c.spent.Bytes = bytes
	}
	r.charges = nil
}

// Entry is an account and what it comes to.
type Entry struct {
	Account Account `json:"account"`
	Amount  Amount  `json:"amount"`
}

// Restore goes on with what was counted before, where less is known.
func (l *Ledger) Restore(entries []Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range entries {
		if have := l.entry(e.Account); have.spent.Requests < e.Amount.Requests || have.spent.Bytes < e.Amount.Bytes {
			have.spent = e.Amount
		}
	}
}

// Changed returns at most so many accounts that changed since it told of them.
func (l *Ledger) Changed(most int) (list []Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for a, e := range l.accounts {
		if len(list) == most {
			break
		}
		if e.changed {
			e.changed = false
			list = append(list, Entry{a, e.spent})
		}
	}
	return list
}

// Keep drops the accounts that no bill leads to at this time.
func (l *Ledger) Keep(bills []Bill, at time.Time) {
	of := map[Account]bool{}
	for _, b := range bills {
		for _, s := range Scopes {
			of[b.Account(s, "", at)] = true
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.accounts, func(a Account, e *entry) bool {
		a.Route = ""
		return e.running == 0 && !e.changed && !of[a]
	})
}
