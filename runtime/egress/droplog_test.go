package egress

import (
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/gateway/attempt"
	"github.com/caisson-run/caisson/gateway/lookup"
	"github.com/caisson-run/caisson/netns"
	"github.com/caisson-run/caisson/runtime/traffic"
)

// send sends UDP from inside, which is refused.
func (b box) send(t testing.TB, to netip.AddrPort, times int) {
	t.Helper()
	b.Do(func() {
		c, err := net.ListenUDP("udp4", nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		for range times {
			_, _ = c.WriteToUDPAddrPort([]byte("hello"), to)
		}
	})
}

// dropped are the records of refused packets, and how many packets there are without one.
func (s *seen) dropped() (records []attempt.Attempt, skipped uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.attempts {
		if a.Protocol != "" {
			records, skipped = append(records, a), skipped+a.Skipped
		}
	}
	return records, skipped
}

// What nothing carries is recorded, also by the next process, which hears of what was
// sent while there was none.
func TestDropLog(t *testing.T) {
	w := newWorld(t, fast)
	b := w.add(t, Sandbox{ID: "one", Policy: w.allow("web.example")})
	addr, _ := b.lookup(t, "web.example")
	b.send(t, netip.AddrPortFrom(addr, 443), 1)
	until(t, "the record", func() bool { records, _ := w.seen.dropped(); return len(records) == 1 })
	records, _ := w.seen.dropped()
	if a := records[0]; a.Sandbox != "one" || a.Name != "web.example" || a.Protocol != "udp" || a.Verdict != attempt.Refused || a.Asked.Port() != 443 {
		t.Errorf("recorded %+v", a)
	}
	if v, _ := w.View("one"); v.Counters.Refused != 1 {
		t.Errorf("counted %+v", v.Counters)
	}
	if err := unix.Kill(w.pid(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	b.send(t, netip.AddrPortFrom(addr, 444), 1)
	until(t, "the record of the next process", func() bool { records, _ := w.seen.dropped(); return len(records) == 2 })
}

// A flood is bounded in records, and counted.
func TestDropLogFlood(t *testing.T) {
	w := newWorld(t, fast)
	b := w.add(t, Sandbox{ID: "one", Policy: w.allow("web.example")})
	addr, _ := b.lookup(t, "web.example")
	const many = 20000
	begun := time.Now()
	b.send(t, netip.AddrPortFrom(addr, 443), many)
	var records []attempt.Attempt
	var skipped uint64
	until(t, "the record of the last one", func() bool { records, skipped = w.seen.dropped(); return uint64(len(records))+skipped >= many })
	most := 200 + 50*int(time.Since(begun)/time.Second+2)
	if uint64(len(records))+skipped != many || len(records) > most {
		t.Errorf("%d records, at most %d, and %d without one; want %d together", len(records), most, skipped, many)
	}
	if v, _ := w.View("one"); v.Counters.Refused != many {
		t.Errorf("counted %+v", v.Counters)
	}
	b.send(t, netip.AddrPortFrom(addr, 444), 3)
	if err := w.Refresh(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	if v, _ := w.View("one"); v.Counters.Refused != many+3 {
		t.Errorf("when it is asked for, %+v are counted", v.Counters)
	}
}

// Questions past the rate are counted, also when none follows them.
func TestQuestionsFlood(t *testing.T) {
	w := newWorld(t, fast)
	b := w.add(t, Sandbox{ID: "one", Policy: w.allow("web.example")})
	const many = 1500
	begun, asked, refused, lastRefused := time.Now(), 0, 0, false
	for ; asked < many || !lastRefused && asked < 2*many; asked++ { // until the last one was too many
		_, rcode := b.lookup(t, "web.example")
		if lastRefused = rcode != 0; lastRefused {
			refused++
		}
	}
	if !lastRefused {
		t.Fatalf("in %v %d were too many, and the last one not", time.Since(begun), refused)
	}
	if err := w.Refresh(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	if v, _ := w.View("one"); v.Counters.Denied != uint64(refused) || v.Counters.Answered != uint64(asked-refused) || v.Counters.Lost != 0 {
		t.Errorf("counted %+v, want %d refused of %d", v.Counters, refused, asked)
	}
	w.seen.mu.Lock()
	defer w.seen.mu.Unlock()
	if last := w.seen.queries[len(w.seen.queries)-1]; last.Verdict != lookup.Refused || last.Name != "web.example" || last.Rule != "limit of questions" {
		t.Errorf("the last record is %+v", last)
	}
}

// Refused packets of a sandbox with a link of its own are recorded, whichever process
// serves. Packets that leave are not.
func TestWatch(t *testing.T) {
	w := newWorld(t, fast)
	b, sockets := newBox(t)
	if err := sockets.Close(); err != nil { // it is no gate
		t.Fatal(err)
	}
	var log *os.File
	b.Do(func() {
		var err error
		if log, err = netns.OpenDropLog(); err != nil {
			t.Error(err)
		}
	})
	if err := w.Watch(t.Context(), "one", traffic.Counts{Refused: 10}, log); err != nil {
		t.Fatal(err)
	}
	refused, other := netip.MustParseAddrPort("198.18.0.9:53"), netip.MustParseAddrPort("127.0.0.1:9")
	b.send(t, other, 1)
	b.send(t, refused, 1)
	until(t, "the record", func() bool { records, _ := w.seen.dropped(); return len(records) == 1 })
	records, _ := w.seen.dropped()
	if a := records[0]; a.Sandbox != "one" || a.Verdict != attempt.Refused || a.Asked != refused || a.Address.IsValid() || a.Rule != "mode bridge: 198.18.0.0/15" {
		t.Errorf("recorded %+v", a)
	}
	if err := unix.Kill(w.pid(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	b.send(t, refused, 1)
	until(t, "the record of the next process", func() bool { records, _ := w.seen.dropped(); return len(records) == 2 })
	if v, ok := w.View("one"); !ok || v.Failure != nil || v.Counters != (Counters{Counts: traffic.Counts{Refused: 12}}) {
		t.Errorf("%+v", v)
	}
	for i := range uint64(20) { // what is asked for is there at once
		b.send(t, refused, 1)
		if err := w.Refresh(t.Context(), "one"); err != nil {
			t.Fatal(err)
		}
		if v, _ := w.View("one"); v.Counters.Refused != 13+i {
			t.Fatalf("packet %d: %+v", i, v.Counters)
		}
	}
	if err := w.Remove(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	if _, there := w.View("one"); there {
		t.Error("it is there after it was removed")
	}
}
