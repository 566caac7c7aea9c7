package spend_test

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/route/budget"
	"github.com/caisson-run/caisson/runtime/spend"
)

func about(id, session string) spend.About {
	return spend.About{Sandbox: id, Name: id, Session: session, Profile: "agent", Bill: budget.Bill{Sandbox: id, Session: session, Profile: "0/agent"}}
}

func open(t *testing.T, path string) *spend.Book {
	t.Helper()
	b, err := spend.Open(path, time.Hour, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func entry(s budget.Scope, a spend.About, requests uint64) budget.Entry {
	return budget.Entry{Account: a.Bill.Account(s, "models", time.Now()), Amount: budget.Amount{Requests: requests}}
}

func all(spend.About) bool { return true }

// What was counted outlives the daemon and the sandbox, and goes to whoever counts next.
func TestBook(t *testing.T) {
	path := filepath.Join(t.TempDir(), "spent.json")
	b := open(t, path)
	one, two := about("one", "work"), about("two", "work")
	b.Begin(one)
	b.Spent([]budget.Entry{entry(budget.Sandbox, one, 3), entry(budget.Session, one, 3), entry(budget.Hour, one, 3), entry(budget.Sandbox, two, 9)})
	b.End("one")
	b.Close()

	next := open(t, path)
	list := next.List(all)
	if len(list) != 3 {
		t.Fatalf("%d rows: %+v", len(list), list)
	}
	for _, r := range list {
		if r.About != one || r.Amount.Requests != 3 || time.Since(r.Updated) > time.Minute {
			t.Errorf("%+v", r)
		}
	}
	if got := next.List(func(a spend.About) bool { return a.Owner == 7 }); len(got) != 0 {
		t.Errorf("another user sees %+v", got)
	}
	if got := next.Of(two.Bill); len(got) != 2 { // the session, and the hour
		t.Errorf("the next sandbox of the session begins with %+v", got)
	}
	if got := next.Of(about("three", "").Bill); len(got) != 1 || got[0].Account.Scope != budget.Hour {
		t.Errorf("one without a session begins with %+v", got)
	}
}

// A session's account is about the sandbox that used it, and a child's about what it is in.
func TestBookOfChildren(t *testing.T) {
	b := open(t, filepath.Join(t.TempDir(), "spent.json"))
	root, child := about("root", "work"), about("child", "other")
	child.Bill, child.Parent = root.Bill, "root"
	b.Begin(child)
	b.Begin(root)
	b.Spent([]budget.Entry{entry(budget.Sandbox, child, 1)})
	if list := b.List(all); len(list) != 1 || list[0].About != root {
		t.Errorf("%+v", list)
	}
}

// Whoever counts can neither fill the book nor write into accounts that nobody has.
func TestBookIsBounded(t *testing.T) {
	b := open(t, filepath.Join(t.TempDir(), "spent.json"))
	one := about("one", "")
	b.Begin(one)
	for i := range 1000 {
		e := entry(budget.Sandbox, one, 1)
		e.Account.Route = fmt.Sprint("r", i)
		b.Spent([]budget.Entry{e, {Account: budget.Account{Scope: budget.Session, Of: fmt.Sprint(i), Route: "x"}}})
	}
	if n := len(b.List(all)); n != 256 || len(b.Routes()) != 256 {
		t.Errorf("%d rows, %d routes", n, len(b.Routes()))
	}
	b.Close()
}

// Each request counts once for its route, since this daemon began, and for what was made first.
func TestSums(t *testing.T) {
	path := filepath.Join(t.TempDir(), "spent.json")
	b := open(t, path)
	root, child, other := about("root", "work"), about("child", "other"), about("other", "work")
	child.Bill, child.Parent = root.Bill, "root"
	b.Begin(child)
	b.Begin(root)
	b.Begin(other)
	for _, n := range []uint64{2, 5} {
		b.Spent([]budget.Entry{entry(budget.Sandbox, child, n), entry(budget.Session, root, n+1), entry(budget.Hour, root, n+1)})
	}
	b.Spent([]budget.Entry{entry(budget.Sandbox, other, 1)})
	if got := b.Routes(); len(got) != 1 || got["models"].Requests != 6 {
		t.Errorf("%+v", got)
	}
	for id, want := range map[string]uint64{"root": 5, "other": 1, "child": 0, "nobody": 0} {
		if got := b.Total(id).Requests; got != want {
			t.Errorf("%s: %d, want %d", id, got, want)
		}
	}
	b.Spent([]budget.Entry{entry(budget.Sandbox, root, 3)}) // who counts forgot some
	if got := b.Routes()["models"].Requests; got != 6 {
		t.Errorf("a counter fell to %d", got)
	}
	b.Close()
	next := open(t, path)
	next.Begin(root)
	next.Spent([]budget.Entry{entry(budget.Sandbox, root, 4)})
	if got := next.Routes()["models"].Requests; got != 1 || next.Total("root").Requests != 4 {
		t.Errorf("the next daemon: %d, %+v", got, next.Total("root"))
	}
}

// What is too old goes, unless a sandbox may add to it; so does each hour when it is over.
func TestBookForgets(t *testing.T) {
	path := filepath.Join(t.TempDir(), "spent.json")
	b, err := spend.Open(path, time.Nanosecond, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	gone, lives := about("gone", ""), about("lives", "")
	b.Begin(gone)
	b.Begin(lives)
	past := entry(budget.Hour, lives, 1)
	past.Account.Hour--
	b.Spent([]budget.Entry{entry(budget.Sandbox, gone, 1), entry(budget.Sandbox, lives, 2), entry(budget.Hour, lives, 2), past})
	b.End("gone")
	b.Close()
	list := open(t, path).List(all)
	if len(list) != 2 || list[0].Amount.Requests != 2 || list[1].Amount.Requests != 2 {
		t.Errorf("%+v", list)
	}
}

func TestBrokenBook(t *testing.T) {
	path := filepath.Join(t.TempDir(), "spent.json")
	if err := os.WriteFile(path, []byte("[{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := spend.Open(path, time.Hour, nil); sbxerr.Of(err) != sbxerr.StateDir || sbxerr.RemedyOf(err) == "" {
		t.Error(err)
	}
	var none *spend.Book
	none.Begin(about("x", ""))
	none.End("x")
	if len(none.List(all)) != 0 || len(none.Routes()) != 0 || none.Total("x") != (spend.Amount{}) {
		t.Error("no book keeps something")
	}
}
