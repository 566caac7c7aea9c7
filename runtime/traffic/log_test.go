package traffic

import (
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/attempt"
	"github.com/caisson-run/caisson/gateway/lookup"
	"github.com/caisson-run/caisson/gateway/policy"
)

// newLog keeps what it is told in a directory for each sandbox, of which "a" has
// one.
func newLog(t *testing.T) (*Log, string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "a"), 0o700); err != nil {
		t.Fatal(err)
	}
	in := func(name string) func(string) string {
		return func(id string) string { return filepath.Join(dir, id, name) }
	}
	return New(Files{Carried: in("carried"), Rest: in("traffic"), Names: in("names")}, slog.New(slog.DiscardHandler)), dir
}

func tried(name string, sent int64) attempt.Attempt {
	return attempt.Attempt{
		Sandbox: "a", Name: policy.Name(name), Asked: netip.MustParseAddrPort("198.18.0.9:443"), Address: netip.MustParseAddrPort("10.1.2.3:443"),
		Rule: "allow " + name, Verdict: attempt.Allowed, Sent: sent, Begun: time.Unix(1, 0), Duration: time.Second,
	}
}

func read(t *testing.T, l *Log, c *Cursor) []Entry {
	t.Helper()
	entries, gone, err := l.Entries("a", c)
	if err != nil {
		t.Fatal(err)
	}
	if gone != (Gone{}) {
		t.Errorf("some are gone: %+v", gone)
	}
	return entries
}

func TestEntries(t *testing.T) {
	l, dir := newLog(t)
	var c Cursor
	if got := read(t, l, &c); len(got) != 0 {
		t.Fatalf("%d entries before there is one", len(got))
	}
	l.Attempted(tried("x.example", 5))
	l.Queried(lookup.Query{Sandbox: "a", Name: "y.example", Type: "A", Verdict: lookup.Refused, Code: sbxerr.EgressDenied, Reason: "no"})
	l.Arrived(attempt.Arrival{Sandbox: "a", Peer: netip.MustParseAddrPort("127.0.0.1:4000"), Port: 8080, Verdict: attempt.Failed, Code: sbxerr.EgressDial, Sent: 1, Received: 2})
	l.Attempted(attempt.Attempt{Sandbox: "a", Protocol: "udp", Asked: netip.MustParseAddrPort("8.8.8.8:53"), Verdict: attempt.Refused, Code: sbxerr.EgressDenied})
	got := read(t, l, &c)
	if len(got) != 4 || got[0].Name != "x.example" || got[0].Port != 443 || got[0].Address != "10.1.2.3" || !got[0].Private || got[0].Sent != 5 {
		t.Fatalf("got %+v", got)
	}
	if got[1].Kind != Lookup || got[1].Code != sbxerr.EgressDenied || got[1].Verdict != "refused" {
		t.Errorf("got %+v", got[1])
	}
	if e := got[2]; e.Kind != Inbound || e.Peer != "127.0.0.1:4000" || e.Port != 8080 || e.Verdict != "failed" || e.Code != sbxerr.EgressDial || e.Sent != 1 || e.Received != 2 {
		t.Errorf("got %+v", e)
	}
	if e := got[3]; e.Kind != Packet || e.Type != "udp" || e.Address != "8.8.8.8" || e.Port != 53 || e.Verdict != "refused" || e.Code != sbxerr.EgressDenied {
		t.Errorf("got %+v", e)
	}
	if counts, err := l.Counts("a"); err != nil || counts.Refused != 1 {
		t.Errorf("counted %+v, %v", counts, err)
	}
	if again := read(t, l, &c); len(again) != 0 {
		t.Errorf("the same %d entries again", len(again))
	}
	f, err := os.OpenFile(filepath.Join(dir, "a", "traffic"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"kind":"conn`); err != nil || f.Close() != nil {
		t.Fatal(err)
	}
	if torn := read(t, l, &c); len(torn) != 0 {
		t.Errorf("a torn line is the entry %+v", torn)
	}
}

// Of what left through a proxy, that one's address says nothing of the destination.
func TestProxied(t *testing.T) {
	named := tried("x.example", 5)
	named.Proxied = true
	literal := named
	literal.Name, literal.Asked = "", netip.MustParseAddrPort("9.9.9.9:22")
	for _, tt := range []struct {
		of      attempt.Attempt
		address string
		want    policy.Seen
	}{
		{named, "10.1.2.3", policy.Seen{Name: "x.example", Port: 443}},
		{literal, "9.9.9.9", policy.Seen{Address: netip.MustParseAddr("9.9.9.9"), Port: 22}},
	} {
		e := entryOfAttempt(tt.of)
		if seen, ok := e.Seen(); e.Address != tt.address || seen != tt.want || !ok {
			t.Errorf("%+v: %+v, %v", e, seen, ok)
		}
	}
}

// What the gateway found to be the host's own is not public, whatever it looks like.
func TestHostsOwnNeedsPrivate(t *testing.T) {
	for _, own := range []bool{false, true} {
		a := tried("x.example", 5)
		a.Address, a.Private = netip.MustParseAddrPort("9.9.9.9:443"), own
		if seen, ok := entryOfAttempt(a).Seen(); !ok || seen.Private != own {
			t.Errorf("%v: %+v, %v", own, seen, ok)
		}
	}
}

// A rule for a mapped name needs no private, whatever ended the connection.
func TestMappedIsLearnt(t *testing.T) {
	for _, mapped := range []bool{false, true} {
		a := tried("x.example", 5)
		a.Mapped, a.Verdict, a.Rule = mapped, attempt.Stopped, "end of the sandbox"
		if e := entryOfAttempt(a); e.Private == mapped {
			t.Errorf("mapped: %v, private: %v", mapped, e.Private)
		} else if seen, ok := e.Seen(); !ok || seen.Private == mapped {
			t.Errorf("mapped: %v, learnt: %v, %+v", mapped, ok, seen)
		}
	}
}

func TestNext(t *testing.T) {
	l, _ := newLog(t)
	next := l.Next("a")
	select {
	case <-next:
		t.Fatal("woken before there is anything")
	default:
	}
	l.Attempted(tried("x.example", 1))
	<-next
	gone := l.Next("a")
	l.Forget("a")
	<-gone
}

// TestGoneSandbox shows that nothing is made for a sandbox that has no
// directory.
func TestGoneSandbox(t *testing.T) {
	l, dir := newLog(t)
	a := tried("x.example", 1)
	a.Sandbox = "gone"
	l.Attempted(a)
	l.Named("gone", "x.example", netip.MustParseAddr("198.18.0.7"))
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("%v, %v", entries, err)
	}
}

func TestSeen(t *testing.T) {
	for _, tt := range []struct {
		e    Entry
		want policy.Seen
		ok   bool
	}{
		{Entry{Kind: Connection, Verdict: "allowed", Name: "x.example", Port: 443}, policy.Seen{Name: "x.example", Port: 443}, true},
		{Entry{Kind: Connection, Verdict: "cut", Address: "9.9.9.9", Port: 53}, policy.Seen{Address: netip.MustParseAddr("9.9.9.9"), Port: 53}, true},
		{Entry{Kind: Connection, Verdict: "refused", Name: "x.example", Port: 443}, policy.Seen{}, false},
		{Entry{Kind: Connection, Verdict: "failed", Name: "x.example", Port: 443}, policy.Seen{}, false},
		{Entry{Kind: Connection, Verdict: "allowed", Address: "nowhere", Port: 443}, policy.Seen{}, false},
		{Entry{Kind: Connection, Verdict: "allowed", Name: "x.example", Port: 443, Mapped: true, Rule: "map x.example=10.0.0.1"}, policy.Seen{Name: "x.example", Port: 443}, true},
		{Entry{Kind: Inbound, Verdict: "allowed", Port: 8080}, policy.Seen{}, false},
		{Entry{Kind: Lookup, Verdict: "answered", Name: "x.example"}, policy.Seen{}, false},
	} {
		if got, ok := tt.e.Seen(); got != tt.want || ok != tt.ok {
			t.Errorf("%+v: %+v, %v", tt.e, got, ok)
		}
	}
}
