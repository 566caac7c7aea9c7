package egress

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/gateway/proxy"
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

// strays are the records of what nothing carries, and how many there are without one.
func (s *seen) strays() (records []proxy.Attempt, skipped uint64) {
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
func TestStrays(t *testing.T) {
	w := newWorld(t, fast)
	b := w.add(t, Sandbox{ID: "one", Policy: w.allow("web.example")})
	addr, _ := b.lookup(t, "web.example")
	b.send(t, netip.AddrPortFrom(addr, 443), 1)
	until(t, "the record", func() bool { records, _ := w.seen.strays(); return len(records) == 1 })
	records, _ := w.seen.strays()
	if a := records[0]; a.Sandbox != "one" || a.Name != "web.example" || a.Protocol != "udp" || a.Verdict != proxy.Refused || a.Asked.Port() != 443 {
		t.Errorf("recorded %+v", a)
	}
	if v, _ := w.View("one"); v.Counters.Refused != 1 {
		t.Errorf("counted %+v", v.Counters)
	}
	until(t, "nothing to be heard of", func() bool { return w.Heard("one") })
	if err := unix.Kill(w.pid(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	b.send(t, netip.AddrPortFrom(addr, 444), 1)
	until(t, "the record of the next process", func() bool { records, _ := w.seen.strays(); return len(records) == 2 })
	if w.Heard("two") {
		t.Error("of a sandbox that is not there, all is heard")
	}
}

// A flood is bounded in records, and counted.
func TestStraysFlood(t *testing.T) {
	w := newWorld(t, fast)
	b := w.add(t, Sandbox{ID: "one", Policy: w.allow("web.example")})
	addr, _ := b.lookup(t, "web.example")
	const many = 20000
	begun := time.Now()
	b.send(t, netip.AddrPortFrom(addr, 443), many)
	until(t, "nothing to be heard of", func() bool { return w.Heard("one") })
	time.Sleep(100 * time.Millisecond) // there is room for a record again
	b.send(t, netip.AddrPortFrom(addr, 444), 1)
	until(t, "the last record", func() bool {
		records, _ := w.seen.strays()
		return records[len(records)-1].Asked.Port() == 444
	})
	records, skipped := w.seen.strays()
	most := 200 + 50*int(time.Since(begun)/time.Second+2)
	if uint64(len(records))+skipped != many+1 || len(records) > most {
		t.Errorf("%d records, at most %d, and %d without one; want %d together", len(records), most, skipped, many+1)
	}
	if v, _ := w.View("one"); v.Counters.Refused != many+1 {
		t.Errorf("counted %+v", v.Counters)
	}
}
