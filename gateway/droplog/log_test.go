package droplog

import (
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"github.com/caisson-run/caisson/gateway/attempt"
	"github.com/caisson-run/caisson/netns/nflog"
)

type recorder []attempt.Attempt

func (r *recorder) Record(a attempt.Attempt) { *r = append(*r, a) }

// Of too many packets the last one has a record, which counts the others: also those that
// found no room, and when nothing comes after it.
func TestTooManyPackets(t *testing.T) {
	var records recorder
	missed := uint64(0)
	l := newLog(Config{Recorder: &records, Rules: Link{}}, func() uint64 { n := missed; missed = 0; return n })
	l.limit = rate.NewLimiter(0, 2)
	send := func(ports ...uint16) {
		for _, port := range ports {
			l.add(nflog.Packet{Group: nflog.Refused, Protocol: unix.IPPROTO_UDP, Destination: netip.AddrPortFrom(netip.MustParseAddr("10.1.1.1"), port), Read: time.Now()})
		}
	}
	expect := func(when string, port uint16, skipped uint64, count int) {
		t.Helper()
		if len(records) != count || records[count-1].Asked.Port() != port || records[count-1].Skipped != skipped {
			t.Fatalf("%s: %+v; want %d records, the last one to port %d after %d without", when, records, count, port, skipped)
		}
	}
	missed = 4
	send(1, 2)
	expect("as many as have one", 2, 0, 2)
	if records[0].Skipped != 4 {
		t.Errorf("the first one counts %d, want 4", records[0].Skipped)
	}
	missed = 5
	send(3, 4, 5)
	expect("too many", 2, 0, 2)
	l.records.Flush()
	expect("in the end", 5, 7, 3)
	l.records.Flush()
	expect("once more", 5, 7, 3)
	send(6, 7)
	l.limit = rate.NewLimiter(0, 1)
	send(8)
	expect("with one that has a record again", 8, 2, 4)
	l.records.Flush()
	expect("and none waits", 8, 2, 4)
}
