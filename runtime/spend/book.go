package spend

import (
	"cmp"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/route/budget"
	"github.com/caisson-run/caisson/owndir"
)

// The bounds of a book.
const (
	maxRows   = 10_000
	maxRoutes = 256 // of one sandbox, session, or user and profile
	maxFile   = 16 << 20
	writeWait = time.Second // from a change to its writing
)

// Amount is what requests took.
type Amount = budget.Amount

// Micro and the scopes are those of package budget.
const (
	Micro   = budget.Micro
	Sandbox = budget.Sandbox
	Hour    = budget.Hour
)

// About is whose requests an account is about.
type About struct {
	Sandbox string      `json:"sandbox"`
	Name    string      `json:"name"`
	Owner   uint32      `json:"owner"`
	Parent  string      `json:"parent,omitempty"`
	Session string      `json:"session,omitempty"`
	Profile string      `json:"profile"`
	Bill    budget.Bill `json:"bill"`
}

// Row is an account and what it comes to.
type Row struct {
	Account budget.Account `json:"account"`
	Amount  budget.Amount  `json:"amount"`
	About   About          `json:"about"` // who used it last
	Updated time.Time      `json:"updated"`
}

// whose is what accounts of several routes have in common.
type whose struct {
	scope budget.Scope
	of    string
}

// Book is the accounts of a host. A nil Book keeps nothing.
type Book struct {
	path string
	age  time.Duration
	log  *slog.Logger

	mu    sync.Mutex
	rows  map[whose]map[budget.Account]*Row
	n     int
	open  map[string]About  // by the ID of a sandbox that may make requests
	since map[string]Amount // by route: what was added since Open
	timer *time.Timer       // of the next writing; nil: nothing changed

	writing sync.Mutex
}

// Open reads the book in the file path. Rows go when they are as old as age, and nobody may add
// to them.
func Open(path string, age time.Duration, log *slog.Logger) (*Book, error) {
	b := &Book{path: path, age: age, log: log, rows: map[whose]map[budget.Account]*Row{}, open: map[string]About{}, since: map[string]Amount{}}
	data, err := owndir.ReadFile(path, maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return b, nil
	}
	var rows []Row
	if err == nil {
		err = json.Unmarshal(data, &rows)
	}
	if err != nil {
		return nil, sbxerr.WithRemedy(sbxerr.StateDir, "spend.open", err, "move the file away: budgets of sessions and of this hour begin anew")
	}
	for _, r := range rows[:min(len(rows), maxRows)] {
		b.put(r)
	}
	return b, nil
}

func (b *Book) put(r Row) {
	w := whose{r.Account.Scope, r.Account.Of}
	if b.rows[w] == nil {
		b.rows[w] = map[budget.Account]*Row{}
	}
	if b.rows[w][r.Account] == nil {
		b.n++
	}
	b.rows[w][r.Account] = &r
}

// Begin says who a sandbox is, before it makes a request.
func (b *Book) Begin(a About) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open[a.Sandbox] = a
}

// End says that a sandbox makes no more requests.
func (b *Book) End(sandbox string) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.open, sandbox)
}

// ofBill are whose accounts a bill leads to.
func ofBill(bill budget.Bill) (list []whose) {
	for _, s := range budget.Scopes {
		a := bill.Account(s, "", time.Time{})
		if w := (whose{a.Scope, a.Of}); !slices.Contains(list, w) {
			list = append(list, w)
		}
	}
	return list
}

// Of returns what the accounts of a bill come to.
func (b *Book) Of(bill budget.Bill) (entries []budget.Entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := hourOf(time.Now())
	for _, w := range ofBill(bill) {
		for a, r := range b.rows[w] {
			if w.scope != budget.Hour || a.Hour == now {
				entries = append(entries, budget.Entry{Account: a, Amount: r.Amount})
			}
		}
	}
	return entries
}

func hourOf(t time.Time) int64 { return budget.Bill{}.Account(budget.Hour, "", t).Hour }

// Spent takes accounts that changed. Those to which no sandbox leads are left out: who counts
// may be in hostile hands.
func (b *Book) Spent(entries []budget.Entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	by := b.usersLocked()
	now := time.Now().Round(0)
	for _, e := range entries {
		w := whose{e.Account.Scope, e.Account.Of}
		about, ok := by[w]
		if !ok || b.rows[w][e.Account] == nil && len(b.rows[w]) >= maxRoutes {
			continue
		}
		if w.scope == budget.Sandbox { // each request is in one of these
			b.addLocked(e, b.rows[w][e.Account])
		}
		b.put(Row{e.Account, e.Amount, about, now})
	}
	if b.timer == nil {
		b.timer = time.AfterFunc(writeWait, b.write)
	}
}

// addLocked adds to the sums of routes how much more e is than before. There are only so many
// sums: who counts may be in hostile hands.
func (b *Book) addLocked(e budget.Entry, before *Row) {
	sum, known := b.since[e.Account.Route]
	if !known && len(b.since) >= maxRoutes {
		return
	}
	if before == nil {
		before = &Row{}
	}
	b.since[e.Account.Route] = sum.Plus(e.Amount.Minus(before.Amount))
}

// Routes returns what requests by each route took since Open.
func (b *Book) Routes() map[string]Amount {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.since)
}

// Total returns what requests of a sandbox took, with those of the sandboxes made inside.
func (b *Book) Total(sandbox string) (sum Amount) {
	if b == nil {
		return sum
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.rows[whose{budget.Sandbox, sandbox}] {
		sum = sum.Plus(r.Amount)
	}
	return sum
}

// usersLocked are the sandboxes that may add to accounts: of several, one that is in no other.
func (b *Book) usersLocked() map[whose]About {
	by := map[whose]About{}
	for _, a := range b.open {
		for _, w := range ofBill(a.Bill) {
			if at, ok := by[w]; !ok || a.Bill.Sandbox == a.Sandbox && at.Bill.Sandbox != at.Sandbox {
				by[w] = a
			}
		}
	}
	return by
}

// dropLocked drops what is too old, and the oldest where there is too much. What is used stays.
func (b *Book) dropLocked(now time.Time) {
	var old []*Row
	used := b.usersLocked()
	for w, rows := range b.rows {
		_, kept := used[w]
		for a, r := range rows {
			switch {
			case w.scope == budget.Hour && a.Hour < hourOf(now):
				b.drop(r)
			case kept:
			case now.Sub(r.Updated) > b.age:
				b.drop(r)
			default:
				old = append(old, r)
			}
		}
	}
	if over := b.n - maxRows; over > 0 {
		slices.SortFunc(old, func(r, s *Row) int { return r.Updated.Compare(s.Updated) })
		for _, r := range old[:min(over, len(old))] {
			b.drop(r)
		}
	}
}

func (b *Book) drop(r *Row) {
	w := whose{r.Account.Scope, r.Account.Of}
	delete(b.rows[w], r.Account)
	if len(b.rows[w]) == 0 {
		delete(b.rows, w)
	}
	b.n--
}

// List returns the rows of those that see says yes to, the newest first.
func (b *Book) List(see func(About) bool) []Row {
	list := []Row{}
	if b == nil {
		return list
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, rows := range b.rows {
		for _, r := range rows {
			if see(r.About) {
				list = append(list, *r)
			}
		}
	}
	slices.SortFunc(list, func(r, s Row) int {
		return cmp.Or(s.Updated.Compare(r.Updated), cmp.Compare(r.Account.Of, s.Account.Of), cmp.Compare(r.Account.Route, s.Account.Route), cmp.Compare(r.Account.Scope, s.Account.Scope))
	})
	return list
}

// Close writes all that there is.
func (b *Book) Close() {
	b.mu.Lock()
	if b.timer != nil {
		b.timer.Stop()
	}
	b.mu.Unlock()
	b.write()
}

func (b *Book) write() {
	b.writing.Lock()
	defer b.writing.Unlock()
	b.mu.Lock()
	b.timer = nil // what changes from now on is written later
	b.dropLocked(time.Now())
	rows := make([]Row, 0, b.n)
	for _, of := range b.rows {
		for _, r := range of {
			rows = append(rows, *r)
		}
	}
	b.mu.Unlock()
	if err := b.save(rows); err != nil {
		b.log.Warn("keep what requests by routes took", "file", b.path, "err", err)
	}
}

func (b *Book) save(rows []Row) error {
	data, err := json.Marshal(rows)
	if err != nil {
		return err
	}
	return owndir.WriteFile(b.path, data)
}
