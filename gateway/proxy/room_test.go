package proxy

import (
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/gateway/attempt"
	"github.com/caisson-run/caisson/gateway/policy"
)

// pour sends without end.
func pour(c *net.TCPConn) {
	chunk := make([]byte, 64<<10)
	for {
		if _, err := c.Write(chunk); err != nil {
			return
		}
	}
}

// held is what the kernel queues for the connections, in bytes.
func (b *bench) held() (sum int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for f := range b.flows {
		sum += f.seat.queued()
	}
	return sum
}

// settled waits until held does not grow any more, and fails when it passes bound.
func settled(t *testing.T, held func() int, bound int) int {
	t.Helper()
	last := -1
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
		now := held()
		if now > bound {
			t.Fatalf("%d MB are queued, want at most %d", now>>20, bound>>20)
		}
		if now > 1<<20 && now == last {
			break
		}
		last = now
		<-time.After(300 * time.Millisecond)
	}
	return last
}

// Who does not read has little queued, however many connections it has.
func TestQueuesAreBounded(t *testing.T) {
	const count = 300
	const bound = wideConnections*(2*farBuffer+2*nearBuffer) + fewConnections*4*narrow + count*4*narrowest
	b := start(t, allow("a.test:22"), pour, nil)
	for range count {
		b.dial("a.test", 22)
	}
	t.Logf("%d MB are queued, of %d", settled(t, b.held, bound)>>20, bound>>20)
}

// The same for what comes in: the server inside does not read.
func TestQueuesFromOutsideAreBounded(t *testing.T) {
	const count = 100
	const bound = wideConnections*(2*farBuffer+2*nearBuffer) + fewConnections*4*narrow + count*4*narrowest
	e := enterBefore(t, func(c net.Conn) { <-t.Context().Done() }, nil)
	for range count / attempt.Batch {
		e.supply(attempt.Batch)
		for range attempt.Batch {
			go pour(e.dial())
		}
	}
	held := func() (sum int) {
		e.in.mu.Lock()
		defer e.in.mu.Unlock()
		for a := range e.in.arrived {
			sum += a.seat.queued()
		}
		return sum
	}
	t.Logf("%d MB are queued, of %d", settled(t, held, bound)>>20, bound>>20)
}

// Nobody waits for a timer of the kernel where more is sent than the narrowest
// connections hold.
func TestNarrowestDoNotStall(t *testing.T) {
	const size = 1 << 20
	upload := func() time.Duration {
		b := start(t, allow("a.test:22", "b.test:22"), func(c *net.TCPConn) {
			if n, _ := io.CopyN(io.Discard, c, size); n == size {
				_, _ = c.Write([]byte("k"))
			}
			_, _ = io.Copy(io.Discard, c)
		}, nil)
		defer b.stop()
		for range fewConnections {
			b.dial("a.test", 22)
		}
		addr, err := b.pool.Address("b.test")
		if err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		for range 15 { // they are over before places move on
			go func() { b.origins <- netip.AddrPortFrom(addr, 22) }() // the client does not wait for it
			c, err := net.Dial("tcp", b.listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			_, first := c.Write([]byte("x"))
			if got, err := talk(c.(*net.TCPConn), string(make([]byte, size-1))); got != "k" || err != nil || first != nil {
				t.Fatalf("%q, %v, %v", got, err, first)
			}
			_ = c.Close()
		}
		return time.Since(begun)
	}
	const most = 800 * time.Millisecond
	var took []time.Duration
	for range 3 { // for a machine that is busy
		took = append(took, upload())
		if took[len(took)-1] < most {
			return
		}
	}
	t.Errorf("15 uploads of 1 MiB take %v, want less than %v", took, most)
}

// unread is a connection both sides of which are done, and of which the client takes
// nothing. The server's answer of size bytes is more than fits between.
func (b *bench) unread(size int) *net.TCPConn {
	b.t.Helper()
	c := b.dial("a.test", 22)
	if err := c.CloseWrite(); err != nil {
		b.t.Fatal(err)
	}
	for deadline := time.Now().Add(5 * time.Second); b.done() == 0; <-time.After(time.Millisecond) {
		if time.Now().After(deadline) {
			b.t.Fatal("the sides are not done")
		}
	}
	if n := b.Connections(); n != 1 || b.held() < size/4 || len(b.records) > 0 {
		b.t.Errorf("%d connections, %d bytes queued, %d records", n, b.held(), len(b.records))
	}
	return c
}

// done counts the connections both sides of which are.
func (b *bench) done() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for f := range b.flows {
		if f.done {
			n++
		}
	}
	return n
}

func give(size int) func(*net.TCPConn) {
	return func(c *net.TCPConn) { _, _ = c.Write(make([]byte, size)) }
}

// A connection counts, and is not told of, until what its sides were sent is taken. It
// was not delivered if something ends it before, and was if that comes after.
func TestUnreadEndIsCounted(t *testing.T) {
	const size = 300 << 10
	for name, tc := range map[string]struct {
		read    bool
		cut     func(*bench)
		verdict attempt.Verdict
	}{
		"read":                          {true, func(*bench) {}, attempt.Allowed},
		"read, then the rule goes":      {true, func(b *bench) { b.SetPolicy(nil) }, attempt.Allowed},
		"read, then the sandbox ends":   {true, func(b *bench) { b.stop() }, attempt.Allowed},
		"unread, and the rule goes":     {false, func(b *bench) { b.SetPolicy(nil) }, attempt.Cut},
		"unread, and nothing is sent":   {false, func(b *bench) { b.cutIdle(0) }, attempt.Idle},
		"unread, and the sandbox ends":  {false, func(b *bench) { b.stop() }, attempt.Stopped},
		"unread, and the client is off": {false, nil, attempt.Allowed},
	} {
		t.Run(name, func(t *testing.T) {
			b := start(t, allow("a.test:22"), give(size), nil)
			c := b.unread(size)
			if tc.read {
				if got, err := io.ReadAll(c); len(got) != size || err != nil {
					t.Errorf("%d bytes, %v", len(got), err)
				}
			}
			if tc.cut == nil {
				_ = c.Close()
			} else if tc.cut(b); !tc.read {
				if _, err := io.ReadAll(c); err == nil {
					t.Error("it outlives what ends it")
				}
			}
			if a := b.record(); a.Verdict != tc.verdict || a.Received != size {
				t.Errorf("%+v", a)
			}
			if b.stop(); len(b.records) > 0 {
				t.Errorf("told of once more: %+v", b.record())
			}
		})
	}
}

// The same for what comes in.
func TestUnreadArrivalIsCounted(t *testing.T) {
	const size = 300 << 10
	for _, read := range []bool{true, false} {
		e := enterBefore(t, func(c net.Conn) { _, _ = c.Write(make([]byte, size)) }, nil)
		e.supply(attempt.Batch)
		c := e.dial()
		_ = c.CloseWrite()
		for deadline := time.Now().Add(5 * time.Second); e.done() == 0; <-time.After(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("the sides are not done")
			}
		}
		want := attempt.Stopped
		if read {
			want = attempt.Allowed
			if got, err := io.ReadAll(c); len(got) != size || err != nil {
				t.Errorf("%d bytes, %v", len(got), err)
			}
		}
		e.stop()
		if a := e.record(); a.Verdict != want || a.Sent != size || len(e.records) > 0 {
			t.Errorf("%+v, want %s, and %d more", a, want, len(e.records))
		}
	}
}

func (e *entrance) done() (n int) {
	e.in.mu.Lock()
	defer e.in.mu.Unlock()
	for a := range e.in.arrived {
		if a.done {
			n++
		}
	}
	return n
}

// bounce sends so many bytes to who sends them back.
func bounce(t *testing.T, c *net.TCPConn, size int) {
	t.Helper()
	go func() { _, _ = c.Write(make([]byte, size)) }()
	if n, err := io.CopyN(io.Discard, c, int64(size)); err != nil {
		t.Fatalf("%d bytes of %d, %v", n, size, err)
	}
}

// A place is for who moves bytes: one that waits gives its own up, and one that is stuck
// keeps it, with all that is queued for it.
func TestPlacesMoveOn(t *testing.T) {
	b := start(t, allow("a.test:22", "b.test:22"), func(c *net.TCPConn) {
		first := make([]byte, 1)
		if _, err := io.ReadFull(c, first); err == nil && first[0] == 'p' {
			pour(c)
		}
		echo(c)
	}, nil)
	say := func(c *net.TCPConn, what string) {
		if _, err := c.Write([]byte(what)); err != nil {
			t.Fatal(err)
		}
	}
	var wide []*net.TCPConn
	for range wideConnections {
		c := b.dial("a.test", 22)
		say(c, "p")
		wide = append(wide, c)
	}
	late := b.dial("b.test", 22)
	say(late, "e")
	settled(t, b.held, 1<<30)
	move := func() { bounce(t, late, 4*spliceAfter) }
	<-time.After(restful + time.Second/2)
	if move(); b.isWide("b.test") {
		t.Error("a stuck connection lost its place, with all that is queued for it")
	}
	_ = wide[0].Close()
	b.record()
	if move(); !b.isWide("b.test") {
		t.Error("a connection that moves much stays narrow beside a free place")
	}
}

// Waiting ones give their places up, and are bounded from then on.
func TestPlacesOfTheIdle(t *testing.T) {
	b := start(t, allow("a.test:22", "b.test:22"), echo, nil)
	for range wideConnections {
		if _, err := b.dial("a.test", 22).Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	late := b.dial("b.test", 22)
	move := func() { bounce(t, late, 4*spliceAfter) }
	if move(); b.isWide("b.test") {
		t.Error("it took the place of one that just spoke")
	}
	<-time.After(restful + time.Second/2)
	if move(); !b.isWide("b.test") {
		t.Error("it got no place, and others wait with theirs")
	}
	b.room.mu.Lock()
	defer b.room.mu.Unlock()
	if n := len(b.room.wide); n != wideConnections {
		t.Errorf("%d are wide", n)
	}
}

// One that becomes wide is adapted as one that always was, up to a bound.
func TestLatePlaceIsAsWide(t *testing.T) {
	b := start(t, allow("a.test:22", "b.test:22"), pour, nil)
	var first []*net.TCPConn
	for range wideConnections {
		first = append(first, b.dial("a.test", 22))
	}
	late := b.dial("b.test", 22)
	receive := func() (buffer int) {
		if _, err := io.ReadFull(late, make([]byte, 64<<20)); err != nil {
			t.Fatal(err)
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		for f := range b.flows {
			if f.name == "b.test" {
				m, _ := f.seat.sockets[1].memory()
				return int(m[unix.SK_MEMINFO_RCVBUF])
			}
		}
		return 0
	}
	if n := receive(); n != 2*narrow {
		t.Errorf("narrow, it has %d bytes", n)
	}
	for _, c := range first {
		_ = c.Close()
		b.record()
	}
	// The last step of the kernel's adapting begins below farBuffer, and doubles it and a little
	// more (tcp_rcv_space_adjust). It adapts to what a reader takes in a round trip, which on a
	// busy host may be little.
	n := 0
	for range 8 {
		if n = receive(); n > 8*narrow {
			break
		}
	}
	if n <= 8*narrow || n > 2*farBuffer+farBuffer/4 {
		t.Errorf("wide, it has %d bytes", n)
	}
}

// isWide reports whether the connection to name has a place.
func (b *bench) isWide(name policy.Name) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for f := range b.flows {
		if f.name == name {
			b.room.mu.Lock()
			defer b.room.mu.Unlock()
			return f.seat.wide
		}
	}
	b.t.Fatal("there is no such connection")
	return false
}
