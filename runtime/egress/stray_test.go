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

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/control"
	"github.com/caisson-run/caisson/gateway/dns"
	"github.com/caisson-run/caisson/gateway/proxy"
	"github.com/caisson-run/caisson/netns"
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
	if err := unix.Kill(w.pid(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	b.send(t, netip.AddrPortFrom(addr, 444), 1)
	until(t, "the record of the next process", func() bool { records, _ := w.seen.strays(); return len(records) == 2 })
}

// A flood is bounded in records, and counted.
func TestStraysFlood(t *testing.T) {
	w := newWorld(t, fast)
	b := w.add(t, Sandbox{ID: "one", Policy: w.allow("web.example")})
	addr, _ := b.lookup(t, "web.example")
	const many = 20000
	begun := time.Now()
	b.send(t, netip.AddrPortFrom(addr, 443), many)
	var records []proxy.Attempt
	var skipped uint64
	until(t, "the record of the last one", func() bool { records, skipped = w.seen.strays(); return uint64(len(records))+skipped >= many })
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
	if last := w.seen.queries[len(w.seen.queries)-1]; last.Verdict != dns.Refused || last.Name != "web.example" || last.Rule != "limit of questions" {
		t.Errorf("the last record is %+v", last)
	}
}

// What a sandbox sends by a link of its own is recorded, whoever serves: here all that
// leaves is UDP to one address, and all that is refused UDP to the pool.
func TestWatch(t *testing.T) {
	w := newWorld(t, fast)
	b, sockets := newBox(t)
	if err := sockets.Close(); err != nil { // it is no gate
		t.Fatal(err)
	}
	var by *netns.Overheard
	b.Do(func() {
		var err error
		if by, err = netns.OpenOverheard(); err != nil {
			t.Error(err)
			by = &netns.Overheard{}
		}
	})
	out := netip.MustParseAddrPort("9.9.9.9:443")
	b.Do(func() {
		for _, line := range []string{"ip route add local 9.9.9.9 dev lo", "iptables -w -A OUTPUT -p udp -d 9.9.9.9 -j NFLOG --nflog-group 2"} {
			args := strings.Fields(line)
			if said, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
				t.Errorf("%s: %v: %s", line, err, said)
			}
		}
	})
	ended := false
	end := func() error { // keeps nobody waiting for what others ask for
		ended = true
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := w.SetPolicy(ctx, "two", w.allow("web.example")); sbxerr.Of(err) != sbxerr.NotFound {
			t.Errorf("while it ends: %v", err)
		}
		return nil
	}
	if err := w.Watch(t.Context(), Watched{ID: "one", Before: Counters{Allowed: 10}, By: *by, End: end}); err != nil {
		t.Fatal(err)
	}
	b.send(t, out, 1)
	until(t, "the record of what left", func() bool { records, _ := w.seen.strays(); return len(records) == 1 })
	b.send(t, netip.MustParseAddrPort("198.18.0.9:53"), 1) // which is told on another socket
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
		if err := w.Refresh(t.Context(), "one"); err != nil {
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

// The sum of many ends adds bytes, and no attempts: each was counted when it left.
func TestSumOfEnds(t *testing.T) {
	g := New(Options{})
	g.sandboxes["one"] = &entry{}
	g.event(control.Report{Attempt: &proxy.Attempt{Sandbox: "one", Left: true, Ended: true, Verdict: proxy.Allowed, Sent: 5, Received: 6, Skipped: 3}})
	if v, _ := g.View("one"); v.Counters != (Counters{Sent: 5, Received: 6}) {
		t.Errorf("counted %+v", v.Counters)
	}
}
