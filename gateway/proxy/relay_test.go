package proxy

import (
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	goruntime "runtime"
	"strings"
	"testing"
	"time"
)

// splicing counts the goroutines that are in splice(2), or wait for it.
func splicing() int {
	stacks := make([]byte, 1<<20)
	stacks = stacks[:goruntime.Stack(stacks, true)]
	return strings.Count(string(stacks), "internal/poll.Splice(")
}

// expectSplicing waits until n goroutines are in splice(2).
func expectSplicing(t *testing.T, what string, n int) {
	t.Helper()
	got := splicing()
	for deadline := time.Now().Add(5 * time.Second); got != n && time.Now().Before(deadline); got = splicing() {
		<-time.After(5 * time.Millisecond)
	}
	if got != n {
		t.Errorf("%d splices %s, want %d", got, what, n)
	}
}

// Every byte arrives, in order, on both sides of the change to splice(2); and nothing
// waits for bytes there, with a pipe.
func TestStreams(t *testing.T) {
	const size = 8 << 20
	half := make(chan struct{})
	b := start(t, allow("a.test:22"), func(c *net.TCPConn) {
		sum := sha256.New()
		_, _ = io.CopyN(sum, c, size/2)
		close(half)
		_, _ = io.Copy(sum, c)
		_, _ = c.Write(sum.Sum(nil))
	}, nil)
	c := b.dial("a.test", 22)
	data := make([]byte, size)
	random := rand.NewChaCha8([32]byte{1})
	_, _ = random.Read(data)
	if _, err := c.Write(data[:1000]); err != nil {
		t.Fatal(err)
	}
	expectSplicing(t, "for a connection that has moved little", 0)
	if _, err := c.Write(data[1000 : size*3/4]); err != nil {
		t.Fatal(err)
	}
	<-half
	expectSplicing(t, "for a long stream that waits", 0)
	if _, err := c.Write(data[size*3/4:]); err != nil {
		t.Fatal(err)
	}
	_ = c.CloseWrite()
	sum, err := io.ReadAll(c)
	if want := sha256.Sum256(data); err != nil || string(sum) != string(want[:]) {
		t.Errorf("sum %x, %v; want %x", sum, err, want)
	}
	if a := b.record(); a.Sent != size || a.Received != sha256.Size {
		t.Errorf("%d bytes sent, %d received", a.Sent, a.Received)
	}
}

// A receiver that does not read holds its own stream back and nothing else.
func TestBackpressure(t *testing.T) {
	b := start(t, allow("a.test:22"), echo, nil)
	stuck := b.dial("a.test", 22)
	_ = stuck.SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
	sent := 0
	for { // the echo comes back, and is not read
		n, err := stuck.Write(make([]byte, 64<<10))
		if sent += n; err != nil {
			break
		}
	}
	if sent > 256<<20 {
		t.Errorf("%d bytes were taken for a receiver that does not read", sent)
	}
	if got, err := talk(b.dial("a.test", 22), "x"); got != "x" || err != nil {
		t.Errorf("another connection: %q, %v", got, err)
	}
}

// Streams that are stuck hold a pipe each, so a sandbox has few: others are carried
// without.
func TestPipesAreBounded(t *testing.T) {
	expectSplicing(t, "before", 0)
	b := start(t, allow("a.test:22", "b.test:22"), func(c *net.TCPConn) {
		first := make([]byte, 1)
		if _, err := io.ReadFull(c, first); err == nil && first[0] == 'p' {
			pour(c)
		}
		echo(c)
	}, nil)
	for range 2 * maxRoomPipes {
		c := b.dial("a.test", 22)
		if _, err := c.Write([]byte("p")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, make([]byte, 4*spliceAfter)); err != nil {
			t.Fatal(err)
		}
	}
	expectSplicing(t, "for stuck streams", maxRoomPipes)
	other := b.dial("b.test", 22)
	if _, err := other.Write([]byte("e")); err != nil {
		t.Fatal(err)
	}
	bounce(t, other, 8*spliceAfter)
	b.stop()
	if n, all := b.room.pipes.taken.Load(), pipes.taken.Load(); n != 0 || all != 0 {
		t.Errorf("%d places are taken after the end, and %d of all", n, all)
	}
}

// Connections that wait are cheap in memory.
func TestWaitingConnectionsAreCheap(t *testing.T) {
	const count = 500
	b := start(t, allow("a.test:22"), echo, nil)
	ping := func(c *net.TCPConn) {
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	ping(b.dial("a.test", 22))
	var before, after goruntime.MemStats
	goruntime.GC()
	goruntime.ReadMemStats(&before)
	for range count {
		ping(b.dial("a.test", 22))
	}
	goruntime.GC()
	goruntime.GC() // sync.Pool keeps what it holds for one cycle
	goruntime.ReadMemStats(&after)
	used := int64(after.HeapInuse+after.StackInuse) - int64(before.HeapInuse+before.StackInuse)
	// Both ends of the test and the proxy are in this one process: five goroutines
	// and four sockets for each connection, of which the proxy has two and two.
	if each := used / count; each > 48<<10 {
		t.Errorf("%d bytes for each connection", each)
	} else {
		t.Logf("%d bytes for each connection, test included", each)
	}
	if got := b.Connections(); got != count+1 {
		t.Errorf("%d connections", got)
	}
}

func BenchmarkConnect(b *testing.B) {
	bench := start(b, allow("a.test:22"), echo, func(c *Config) { c.Limits.NewPerSecond, c.Limits.NewBurst = 1<<30, 1<<30; c.Recorder = nil })
	for b.Loop() {
		if got, err := talk(bench.dial("a.test", 22), "x"); got != "x" || err != nil {
			b.Fatal(got, err)
		}
	}
}

func BenchmarkConnectDirectly(b *testing.B) {
	addr := serveEach(b, echo)
	for b.Loop() {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			b.Fatal(err)
		}
		if got, err := talk(c.(*net.TCPConn), "x"); got != "x" || err != nil {
			b.Fatal(got, err)
		}
		_ = c.Close()
	}
}

func BenchmarkSetPolicy(b *testing.B) {
	bench := start(b, allow("a.test:22"), echo, nil)
	for range 100 {
		c := bench.dial("a.test", 22)
		_, _ = c.Write([]byte("x"))
		_, _ = io.ReadFull(c, make([]byte, 1))
	}
	next := compile(b, allow("a.test:22", "b.test:22"))
	for b.Loop() {
		bench.SetPolicy(next)
	}
}

func BenchmarkStream(b *testing.B) {
	for _, through := range []bool{false, true} {
		b.Run(fmt.Sprintf("proxy=%v", through), func(b *testing.B) {
			server := func(c *net.TCPConn) { _, _ = io.Copy(io.Discard, c) }
			var c *net.TCPConn
			if through {
				c = start(b, allow("a.test:22"), server, nil).dial("a.test", 22)
			} else {
				plain, err := net.Dial("tcp", serveEach(b, server))
				if err != nil {
					b.Fatal(err)
				}
				c = plain.(*net.TCPConn)
			}
			_ = c.SetDeadline(time.Time{})
			chunk := make([]byte, 256<<10)
			b.SetBytes(int64(len(chunk)))
			for b.Loop() {
				if _, err := c.Write(chunk); err != nil {
					b.Fatal(err)
				}
			}
			_ = c.Close()
		})
	}
}
