package network

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"
)

// A transfer, of which neither direction fits between its ends, nor can be taken for the
// other.
const (
	sent     = 3_000_001
	received = 5_000_003
	pause    = 100 * time.Millisecond // before the answer
)

// transfer takes one connection, reads it to its end, answers, and returns for how long
// it had it.
func transfer(l net.Listener) (took time.Duration, err error) {
	c, err := l.Accept()
	if err != nil {
		return 0, err
	}
	defer c.Close()
	begin := time.Now()
	if n, err := io.Copy(io.Discard, c); err != nil || n != sent {
		return 0, fmt.Errorf("%d bytes came, want %d (%w)", n, sent, err)
	}
	time.Sleep(pause) // it lasts for longer than the bytes take
	_, err = c.Write(bytes.Repeat([]byte("x"), received))
	return time.Since(begin), err
}

// The record of a connection has the bytes of each direction, the rule, and the time that
// it took; that of one which was refused has the rule, why, and no bytes.
func TestRecord(t *testing.T) {
	reaches(t, "db.example:7000")
	l, err := host.far.listenSoon(public + ":7000")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	served := make(chan time.Duration, 1)
	go func() {
		took, _ := transfer(l) // who fails answers nothing
		served <- took
	}()
	s := create(t, "--allow", "db.example:7000", "--allow", "93.184.215.96/29:80", "--deny", elsewhere)
	begin := time.Now()
	if said := daemon.Run(t, "exec", s.id, "--", "sh", "-c", fmt.Sprintf("head -c %d /dev/zero | nc db.example 7000 | wc -c", sent)).Stdout; said != fmt.Sprintln(received) {
		t.Fatalf("%q bytes came back", said)
	}
	carried := s.connection(t, "db.example:7000")
	took := time.Since(begin)
	if carried.Verdict != "allowed" || carried.Address != public || carried.Rule != "allow db.example:7000" || carried.Code != "" || carried.Sent != sent || carried.Received != received {
		t.Errorf("carried: %+v", carried)
	}
	checkDuration(t, carried, <-served, took)
	for _, tt := range []struct{ target, rule, reason, remedy string }{
		{"db.example:80", "mode allow", "db.example:80 is allowed by no rule", "allow it with --allow db.example:80"},
		{elsewhere + ":80", "deny " + elsewhere, elsewhere + ":80 is denied", "nothing allows it while the rule \"deny " + elsewhere + "\" is there"},
	} {
		begin := time.Now()
		said := s.try("http", "http://"+tt.target+"/")
		refused := s.connection(t, tt.target)
		took := time.Since(begin)
		if refused.Verdict != "refused" || refused.Code != "SBX-701" || refused.Rule != tt.rule || !strings.Contains(refused.Reason, tt.reason) || refused.Sent != 0 || refused.Received != 0 {
			t.Errorf("%s: %+v", tt.target, refused)
		}
		if !strings.HasPrefix(said, "403 SBX-701 "+refused.Reason) || !strings.Contains(said, tt.remedy) {
			t.Errorf("%s: the client is told %q", tt.target, said)
		}
		checkDuration(t, refused, 0, took)
	}
}

// connection is the only record of one to a target, HOST:PORT.
func (s sandbox) connection(t *testing.T, target string) entry {
	t.Helper()
	var found []entry
	s.recorded(t, func(list []entry) bool {
		found = slices.DeleteFunc(list, func(e entry) bool {
			return e.Kind != "connection" || fmt.Sprintf("%s:%d", e.Name, e.Port) != target && fmt.Sprintf("%s:%d", e.Address, e.Port) != target
		})
		return len(found) > 0
	})
	if len(found) != 1 {
		t.Fatalf("records of %s: %+v", target, found)
	}
	return found[0]
}

// checkDuration fails t unless a connection lasted longer than what it was a part of, and
// not longer than what was a part of it.
func checkDuration(t *testing.T, e entry, atLeast, atMost time.Duration) {
	t.Helper()
	if took := e.Duration.Duration; took <= 0 || took < atLeast-time.Microsecond || took > atMost { // it is rounded
		t.Errorf("%s:%d took %s, want %s to %s", e.Name, e.Port, took, atLeast, atMost)
	}
}
