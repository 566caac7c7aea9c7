package dns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	miekg "github.com/miekg/dns"
	"golang.org/x/sys/unix"
)

// soon is well below the time that a question or an answer may take.
const soon = time.Second

// A resolver ends at once, whatever is going on: the gateway serves other sandboxes
// after that.
func TestServeEndsSoon(t *testing.T) {
	for name, tc := range map[string]struct {
		zone func(*zone)
		busy func(*testing.T, *bench)
	}{
		"a question that nobody answers": {func(z *zone) { z.mute = "udp" }, askAndWait},
		"one that goes on over TCP":      {func(z *zone) { z.big, z.mute = true, "tcp" }, askAndWait},
		"a client that reads nothing":    {func(*zone) {}, askAndReadNothing},
	} {
		t.Run(name, func(t *testing.T) {
			b := start(t, allowed, func(c *Config) { c.Limits.Burst = 1e6 })
			b.zone.change(func() { tc.zone(b.zone) })
			tc.busy(t, b)
			b.stop()
			select {
			case <-b.over:
			case <-time.After(soon):
				t.Error("it goes on")
			}
		})
	}
}

// askAndWait returns when the gateway waits for the answer to a question.
func askAndWait(t *testing.T, b *bench) {
	t.Helper()
	c, err := net.Dial("udp", b.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := (&miekg.Conn{Conn: c}).WriteMsg(question("a.test.", miekg.TypeA)); err != nil {
		t.Fatal(err)
	}
	for len(b.zone.questions()) == 0 {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(100 * time.Millisecond) // over TCP it is asked again
}

// askAndReadNothing returns when the gateway cannot get rid of its answers.
func askAndReadNothing(t *testing.T, b *bench) {
	t.Helper()
	small := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { // with large segments, buffers are large
			_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 1)
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG, 88)
		})
	}}
	c, err := small.Dial("tcp", b.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	conn := &miekg.Conn{Conn: c}
	_ = c.SetWriteDeadline(time.Now().Add(500 * time.Millisecond))
	name := strings.Repeat(strings.Repeat("a", 49)+".", 3) + "example."
	for conn.WriteMsg(question(name, miekg.TypeA)) == nil { // until nothing more is taken
		continue
	}
}

// One that reads nothing is given up: it has one of few connections.
func TestAnswersAreReadInTime(t *testing.T) {
	b := start(t, allowed, func(c *Config) { c.Limits.Burst, c.Limits.Connections = 1e6, 1 })
	askAndReadNothing(t, b)
	if r := b.ask(t, "tcp", question("a.test.", miekg.TypeA)); len(r.Answer) != 1 {
		t.Errorf("the next client got %v", r)
	}
}

// A resolution ends with its context, and says why.
func TestResolveIsCancelled(t *testing.T) {
	for _, network := range []string{"udp", "tcp"} {
		z := &zone{records: dual, mute: network, big: network == "tcp"}
		u := upstream(t, z)
		enough := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := u.Resolve(ctx, "a.test")
			ended <- err
		}()
		for len(z.questions()) == 0 {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(100 * time.Millisecond) // over TCP it is asked again
		begun := time.Now()
		cancel(enough)
		if err := <-ended; time.Since(begun) > soon || !errors.Is(err, enough) {
			t.Errorf("%s: %v after %v", network, err, time.Since(begun))
		}
	}
}

// What was found when its caller left may be half of an answer: the next one, of another
// sandbox maybe, gets the whole.
func TestHalfAnAnswerIsNotKept(t *testing.T) {
	z := &zone{records: dual, silent: miekg.TypeA}
	u := upstream(t, z)
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan []netip.Addr, 1)
	go func() {
		found, _ := u.Resolve(ctx, "a.test")
		left <- found.Addresses
	}()
	for len(z.questions()) < 2 {
		time.Sleep(time.Millisecond) // nothing announces a question
	}
	time.Sleep(100 * time.Millisecond) // for the answer that does come
	cancel()
	if found := <-left; fmt.Sprint(found) != "[2a00::1]" {
		t.Fatalf("who left got %v", found) // else this would show nothing
	}
	z.change(func() { z.silent = 0 })
	if found, err := u.Resolve(t.Context(), "a.test"); err != nil || fmt.Sprint(found.Addresses) != "[9.9.9.9 2a00::1]" {
		t.Errorf("the next got %v, %v", found, err)
	}
}
