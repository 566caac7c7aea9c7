package egress

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// resident is how much memory the process pid has, in bytes.
func resident(t testing.TB, pid int) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	n, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n << 10
}

// needTime skips what takes longer than a unit test may, where nobody asked for
// all there is.
func needTime(t testing.TB) {
	t.Helper()
	if os.Getenv("CAISSON_TEST_STRICT") == "" {
		t.Skip("takes a while: make test-cover runs it")
	}
}

// openFiles is how many descriptors this process may have.
func openFiles(t testing.TB) int {
	t.Helper()
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		t.Fatal(err)
	}
	return int(l.Max)
}

// Ten thousand connections that carried a word each and wait cost the gateway
// about 100 MB; a tenth more is what the collector of a busy host leaves behind. Where a process may not have the descriptors for that many, it is
// told by as many as there can be.
func TestMemoryOfConnections(t *testing.T) {
	needTime(t)
	const wanted, most = 10000, 110 << 20
	w := newWorld(t, usual)
	type place struct {
		box
		addr netip.Addr
	}
	places := make([]place, 10) // one may have 1024 connections
	for i := range places {
		places[i].box = w.add(t, Sandbox{ID: fmt.Sprint("box", i), Policy: w.allow("web.example")})
		places[i].addr, _ = places[i].lookup(t, "web.example")
	}
	n := min(wanted, openFiles(t)/5*2*9/10-100) // each has two descriptors, here and in the gateway, which keeps some and has places for all but the last tenth
	before := resident(t, w.pid())
	for i := range n {
		p := places[i%len(places)]
		c, err := p.dial(p.addr, w.web.Port())
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		defer c.Close()
		if err := echo(c); err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
	}
	after := resident(t, w.pid())
	t.Logf("%d connections: %.1f MB resident, %.1f MB before; %d bytes each", n, float64(after)/(1<<20), float64(before)/(1<<20), (after-before)/int64(n))
	if all := before + (after-before)*wanted/int64(n); all > most {
		t.Errorf("%d connections would take %d MB, more than %d", wanted, all>>20, most>>20)
	}
}

// Where 500 sandboxes have a policy each, to change one takes 2 ms at most. A busy host slows
// most changes, so the quickest tenth counts.
func TestTimeOfAnUpdate(t *testing.T) {
	needTime(t)
	const sandboxes, updates, most = 500, 200, 2 * time.Millisecond
	w := newWorld(t, usual)
	s := w.allow("web.example", "other.example")
	for i := range 50 {
		s.Allow = append(s.Allow, fmt.Sprintf("*.service%d.example:443+8443", i))
	}
	for i := range sandboxes {
		sockets, err := deadSockets()
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Add(t.Context(), Sandbox{ID: fmt.Sprint("box", i), Policy: s}, sockets); err != nil {
			t.Fatal(err)
		}
	}
	var took []time.Duration
	for i := range updates {
		begun := time.Now()
		if err := w.SetPolicy(t.Context(), fmt.Sprint("box", i%sandboxes), s); err != nil {
			t.Fatal(err)
		}
		took = append(took, time.Since(begun))
	}
	slices.Sort(took)
	t.Logf("an update takes %v at p50, %v at p95", took[updates/2], took[updates*95/100])
	if took[updates/10] > most {
		t.Errorf("an update takes %v", took[updates/10])
	}
}
