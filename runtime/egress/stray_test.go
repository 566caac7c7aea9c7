package egress

import (
	"context"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/gateway/proxy"
	"github.com/caisson-run/caisson/sbxerr"
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

// What a sandbox sends by a link of its own is recorded, whoever serves: here all that
// leaves is UDP to one address, and all that is refused UDP to the pool.
func TestWatch(t *testing.T) {
	w := newWorld(t, fast)
	b, sockets := newBox(t)
	out := netip.MustParseAddrPort("9.9.9.9:443")
	b.Do(func() {
		for _, line := range []string{"ip route add local 9.9.9.9 dev lo", "iptables -w -A OUTPUT -p udp -d 9.9.9.9 -j NFLOG --nflog-group 2"} {
			args := strings.Fields(line)
			if said, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
				t.Errorf("%s: %v: %s", line, err, said)
			}
		}
	})
	strays, ended := sockets.Strays, false
	sockets.Strays = nil
	if err := sockets.Close(); err != nil {
		t.Fatal(err)
	}
	end := func() error { // keeps nobody waiting for what others ask for
		ended = true
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := w.SetPolicy(ctx, "two", w.allow("web.example")); sbxerr.Of(err) != sbxerr.NotFound {
			t.Errorf("while it ends: %v", err)
		}
		return nil
	}
	if err := w.Watch(t.Context(), Watched{ID: "one", Before: Counters{Allowed: 10}, Strays: strays, End: end}); err != nil {
		t.Fatal(err)
	}
	b.send(t, out, 1)
	b.send(t, netip.MustParseAddrPort("198.18.0.9:53"), 1)
	until(t, "both records", func() bool { records, _ := w.seen.strays(); return len(records) == 2 })
	records, _ := w.seen.strays()
	if a := records[0]; a.Sandbox != "one" || a.Verdict != proxy.Allowed || a.Address != out || !a.Left || a.Rule != "mode bridge" {
		t.Errorf("recorded %+v", a)
	}
	if a := records[1]; a.Verdict != proxy.Refused || a.Address.IsValid() || a.Left || a.Rule != "mode bridge: 198.18.0.0/15" {
		t.Errorf("recorded %+v", a)
	}
	if err := unix.Kill(w.pid(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	b.send(t, out, 1)
	until(t, "the record of the next process", func() bool { records, _ := w.seen.strays(); return len(records) == 3 })
	if v, ok := w.View("one"); !ok || v.Failure != nil || v.Counters.Allowed != 12 || v.Counters.Refused != 1 {
		t.Errorf("%+v", v)
	}
	for i := range uint64(20) { // what is asked for is there at once
		b.send(t, out, 1)
		if err := w.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		if v, _ := w.View("one"); v.Counters.Allowed != 13+i {
			t.Fatalf("packet %d: %+v", i, v.Counters)
		}
	}
	if err := w.Remove(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	if _, there := w.View("one"); there || !ended {
		t.Error("it is there after it was removed")
	}
}
