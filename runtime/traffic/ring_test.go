package traffic

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/attempt"
	"github.com/caisson-run/caisson/gateway/lookup"
)

// TestRotation writes more than is kept and reads on across the change of files.
func TestRotation(t *testing.T) {
	l, dir := newLog(t)
	var c Cursor
	const all = 12_000
	var seen int64
	for n := range int64(all) {
		l.Attempted(tried("x.example", n))
		if n%1000 != 0 {
			continue
		}
		entries, gone, err := l.Entries("a", &c)
		if err != nil || gone != (Gone{}) {
			t.Fatalf("%+v, %v: it was read all along", gone, err)
		}
		for _, e := range entries {
			if e.Sent != seen {
				t.Fatalf("entry %d after %d", e.Sent, seen-1)
			}
			seen++
		}
	}
	kept, gone, err := l.Entries("a", &Cursor{})
	if err != nil || gone != (Gone{Entries: true, Reached: true}) {
		t.Errorf("%+v, %v: who reads late is told", gone, err)
	}
	if got, err := l.Counts("a"); err != nil || got != (Counts{Allowed: all, Sent: all * (all - 1) / 2}) {
		t.Errorf("counts %+v, %v", got, err)
	}
	if len(kept) == 0 || len(kept) == all || kept[len(kept)-1].Sent != all-1 {
		t.Errorf("%d entries of %d are kept", len(kept), all)
	}
	for _, name := range []string{"carried", "carried.1"} {
		info, err := os.Stat(filepath.Join(dir, "a", name))
		if err != nil || info.Size() > maxFile+4096 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
}

// Nothing that costs a sandbox nothing makes the log forget a connection: attempts that
// came to nothing, lookups, packets. What is dropped of them is told.
func TestFloodDropsNoConnection(t *testing.T) {
	l, _ := newLog(t)
	l.Attempted(tried("first.example", 1))
	refused, failed := tried("x.example", 0), tried("x.example", 0)
	refused.Verdict, failed.Verdict = attempt.Refused, attempt.Failed
	reason := strings.Repeat("because ", 20)
	for range 2000 {
		for _, verdict := range []lookup.Verdict{lookup.Refused, lookup.Answered, lookup.Absent} {
			l.Queried(lookup.Query{Sandbox: "a", Name: "nope.example", Type: "A", Verdict: verdict, Reason: reason})
		}
		l.Attempted(refused)
		l.Attempted(failed)
		l.Attempted(attempt.Attempt{Sandbox: "a", Protocol: "udp", Asked: netip.MustParseAddrPort("8.8.8.8:53"), Verdict: attempt.Refused, Reason: reason})
		l.Arrived(attempt.Arrival{Sandbox: "a", Verdict: attempt.Failed, Reason: reason})
	}
	l.Attempted(tried("last.example", 1))
	entries, gone, err := l.Entries("a", &Cursor{})
	if err != nil || gone != (Gone{Entries: true}) {
		t.Errorf("%+v, %v", gone, err)
	}
	var names []string
	for _, e := range entries {
		if _, ok := e.Seen(); ok {
			names = append(names, e.Name)
		}
	}
	if fmt.Sprint(names) != "[first.example last.example]" || len(entries) == 14002 {
		t.Errorf("kept %v of %d entries", names, len(entries))
	}
	want := Counts{Allowed: 2, Refused: 4000, Failed: 2000, Sent: 2, Answered: 2000, Denied: 2000}
	if got, err := l.Counts("a"); err != nil || got != want {
		t.Errorf("counts %+v, %v, want %+v", got, err, want)
	}
	if again, gone, err := l.Entries("a", &Cursor{}); err != nil || len(again) != len(entries) || !gone.Entries {
		t.Errorf("a second reader: %d, %+v, %v", len(again), gone, err)
	}
}

// The entries of both rings are told in the order of what they tell of.
func TestEntriesAreMerged(t *testing.T) {
	l, _ := newLog(t)
	begun := time.Now()
	for i := range 6 {
		name := fmt.Sprint("n", i, ".example")
		a := tried(name, 1)
		a.Begun, a.Duration = begun.Add(-time.Hour), time.Hour+time.Duration(i)*time.Second // by their ends
		if i%3 != 0 {
			a.Verdict = attempt.Refused
		}
		l.Attempted(a)
	}
	var c Cursor
	for i, e := range read(t, l, &c) {
		if e.Name != fmt.Sprint("n", i, ".example") {
			t.Errorf("the entry %d is of %s", i, e.Name)
		}
	}
}

// A reader that comes back too late is told, one that is in time is not.
func TestGoneWhileFollowed(t *testing.T) {
	l, _ := newLog(t)
	var early, late Cursor
	for n := range int64(6000) {
		l.Attempted(tried("x.example", n))
		if n == 0 {
			read(t, l, &late)
		}
		if n%1000 != 0 {
			continue
		}
		if _, gone, _ := l.Entries("a", &early); gone != (Gone{}) {
			t.Errorf("in time, at %d: %+v", n, gone)
		}
	}
	if entries, gone, err := l.Entries("a", &late); err != nil || !gone.Reached || entries[len(entries)-1].Sent != 5999 {
		t.Errorf("late: %d, %+v, %v", len(entries), gone, err)
	}
	if _, gone, _ := l.Entries("a", &late); gone != (Gone{}) {
		t.Errorf("told twice: %+v", gone)
	}
}

// earlier writes a file as an earlier daemon did: one for entries of all kinds, without
// positions.
func earlier(t *testing.T, dir, name, first string, entries ...string) {
	t.Helper()
	text := first
	for _, name := range entries {
		text += fmt.Sprintf(`{"time":"2026-01-01T00:00:00Z","kind":"connection","verdict":"allowed","name":%q,"port":443,"address":"9.9.9.9"}`+"\n", name)
	}
	if err := os.WriteFile(filepath.Join(dir, "a", name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// What an earlier daemon wrote is read, and it is told when that is no longer there.
func TestEntriesOfAnEarlierDaemon(t *testing.T) {
	l, dir := newLog(t)
	earlier(t, dir, "traffic.1", "", "one.example", "two.example")
	earlier(t, dir, "traffic", `{"before":{"allowed":2}}`+"\n", "three.example")
	var c Cursor
	if got := read(t, l, &c); len(got) != 3 || got[0].Name != "one.example" || got[2].Name != "three.example" {
		t.Errorf("read %+v", got)
	}
	l.Attempted(tried("four.example", 0))
	for range 12_000 {
		l.Queried(lookup.Query{Sandbox: "a", Name: "nope.example", Type: "A", Verdict: lookup.Refused})
	}
	if got, gone, err := l.Entries("a", &c); err != nil || !gone.Entries || got[0].Name != "four.example" && got[len(got)-1].Name != "four.example" {
		t.Errorf("%d more, %+v, %v", len(got), gone, err)
	}
	if _, gone, err := l.Entries("a", &Cursor{}); err != nil || !gone.Reached {
		t.Errorf("those of the earlier daemon are gone: %+v, %v", gone, err)
	}
	if got, err := l.Counts("a"); err != nil || got != (Counts{Allowed: 4, Denied: 12_000}) {
		t.Errorf("counts %+v, %v", got, err)
	}
}

// A follower goes on where an earlier daemon's file is put aside.
func TestFollowAcrossAnEarlierDaemonsFile(t *testing.T) {
	l, dir := newLog(t)
	earlier(t, dir, "traffic.1", `{"before":{"allowed":7}}`+"\n", "one.example")
	full := make([]string, maxFile/100)
	for i := range full {
		full[i] = "many.example"
	}
	earlier(t, dir, "traffic", `{"before":{"allowed":8}}`+"\n", full...)
	var c Cursor
	if got, gone, err := l.Entries("a", &c); err != nil || !gone.Reached || len(got) != 1+len(full) {
		t.Errorf("%d entries, %+v, %v", len(got), gone, err)
	}
	l.Queried(lookup.Query{Sandbox: "a", Name: "next.example", Type: "A", Verdict: lookup.Refused})
	if got, gone, err := l.Entries("a", &c); err != nil || gone != (Gone{}) || len(got) != 1 || got[0].Name != "next.example" {
		t.Errorf("%+v, %+v, %v", got, gone, err)
	}
}

// A file whose begin was lost with the power costs what it said of those before it, once
// they are gone, and nothing else: it has its place, and who reads is told.
func TestTornFirstLine(t *testing.T) {
	l, dir := newLog(t)
	carried := filepath.Join(dir, "a", "carried")
	sent := int64(0)
	rotate := func() {
		t.Helper()
		before, _ := os.Stat(carried)
		for {
			l.Attempted(tried("x.example", sent))
			sent++
			if now, err := os.Stat(carried); err != nil || before != nil && !os.SameFile(before, now) {
				return
			}
			before, _ = os.Stat(carried)
		}
	}
	for range 2 { // so that some are gone
		rotate()
	}
	text, err := os.ReadFile(carried)
	if err != nil {
		t.Fatal(err)
	}
	end := strings.IndexByte(string(text), '\n')
	if err := os.WriteFile(carried, append([]byte(strings.Repeat("\x00", end)), text[end:]...), 0o600); err != nil {
		t.Fatal(err)
	}
	var middle Cursor
	kept, gone, err := l.Entries("a", &middle)
	if err != nil || !gone.Reached || len(kept) == 0 {
		t.Fatalf("%d, %+v, %v", len(kept), gone, err)
	}
	next := kept[len(kept)-1].Sent + 1
	rotate() // the torn one is the older by now
	late, gone, err := l.Entries("a", &Cursor{})
	if err != nil || gone != (Gone{Entries: true, Reached: true}) || len(late) == 0 || late[len(late)-1].Sent != sent-1 {
		t.Errorf("a late reader: %d, %+v, %v", len(late), gone, err)
	}
	for _, e := range read(t, l, &middle) {
		if e.Sent != next {
			t.Fatalf("entry %d, want %d", e.Sent, next)
		}
		next++
	}
	if next != sent {
		t.Errorf("read up to %d of %d", next, sent)
	}
	// The file before it, which was still there, said what it said.
	if got, err := l.Counts("a"); err != nil || got.Allowed != uint64(sent) {
		t.Errorf("%d of %d are counted, %v", got.Allowed, sent, err)
	}
}

// TestCounts: as runtime/egress counts, and also where a daemon was killed between two
// files.
func TestCounts(t *testing.T) {
	l, dir := newLog(t)
	if got, err := l.Counts("a"); err != nil || got != (Counts{}) {
		t.Errorf("counts before there is anything: %+v, %v", got, err)
	}
	for _, verdict := range []attempt.Verdict{attempt.Allowed, attempt.Cut, attempt.Refused, attempt.Failed} {
		a := tried("x.example", 5)
		a.Verdict, a.Received, a.Skipped = verdict, 2, 1
		l.Attempted(a)
	}
	undialled := tried("x.example", 0)
	undialled.Verdict, undialled.Address = attempt.Stopped, netip.AddrPort{}
	l.Attempted(undialled)
	for _, verdict := range []lookup.Verdict{lookup.Answered, lookup.Refused} {
		l.Queried(lookup.Query{Sandbox: "a", Name: "y.example", Type: "A", Verdict: verdict, Skipped: 3})
	}
	l.Arrived(attempt.Arrival{Sandbox: "a", Verdict: attempt.Allowed, Sent: 9})
	l.Attempted(attempt.Attempt{Sandbox: "a", Protocol: "udp", Asked: netip.MustParseAddrPort("9.9.9.9:53"), Verdict: attempt.Refused, Skipped: 2})
	want := Counts{Allowed: 2, Refused: 8, Failed: 2, Sent: 29, Received: 8, Answered: 1, Denied: 7}
	wantCounts(t, l, want, "at first")
	carried, rest := filepath.Join(dir, "a", "carried"), filepath.Join(dir, "a", "traffic")
	for _, path := range []string{carried, rest} {
		if err := os.Rename(path, Older(path)); err != nil {
			t.Fatal(err)
		}
		wantCounts(t, l, want, "between two files")
	}
	refused := tried("x.example", 0)
	refused.Verdict = attempt.Refused
	l.Attempted(tried("x.example", 5))
	l.Attempted(refused)
	want.Allowed, want.Refused, want.Sent = want.Allowed+1, want.Refused+1, want.Sent+5
	wantCounts(t, l, want, "of both files")
	for _, path := range []string{carried, rest} {
		if err := os.Remove(Older(path)); err != nil {
			t.Fatal(err)
		}
		wantCounts(t, l, want, "when the older file is gone")
	}
}

func wantCounts(t *testing.T, l *Log, want Counts, when string) {
	t.Helper()
	if got, err := l.Counts("a"); err != nil || got != want {
		t.Errorf("counts %s: %+v, %v, want %+v", when, got, err, want)
	}
}

// A reader goes on exactly after any entry, also with a later daemon.
func TestBegin(t *testing.T) {
	l, _ := newLog(t)
	for n := range int64(6) {
		a := tried("x.example", n)
		a.Begun = time.Unix(n, 0)
		if n%3 == 0 {
			a.Verdict = attempt.Refused
		}
		l.Attempted(a)
	}
	all := read(t, l, &Cursor{})
	if len(all) != 6 {
		t.Fatalf("%d entries", len(all))
	}
	later := New(l.files, l.log)
	for i, e := range all {
		c, err := later.Begin("a", e.Cursor.String())
		if err != nil {
			t.Fatal(err)
		}
		if rest := read(t, later, &c); len(rest) != len(all)-i-1 || len(rest) > 0 && rest[0] != all[i+1] {
			t.Errorf("after entry %d: %+v, want %+v", i, rest, all[i+1:])
		}
	}
	if c, err := later.Begin("a", ""); err != nil || c != (Cursor{}) {
		t.Errorf("the begin: %v, %v", c, err)
	}
	for _, bad := range []string{"x", "1", "-1-0", "0-999999", "1-2 ", "01-2"} {
		if c, err := later.Begin("a", bad); sbxerr.Of(err) != sbxerr.APIUsage {
			t.Errorf("%q: %v, %v", bad, c, err)
		}
	}
}
