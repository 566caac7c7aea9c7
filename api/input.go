package api

import (
	"context"
	"sync"
)

const (
	// stdinChunk is the most standard input in one message.
	stdinChunk = 32 << 10
	// stdinWindow is how many bytes may be sent that the command has not taken.
	// The daemon buffers more than that, so a signal never waits behind input
	// that the command does not read.
	stdinWindow = 256 << 10
)

// sendInput copies the caller's input until its end. An input that cannot be
// read ends there: the command sees the end of the file. What cannot be sent
// is not looked at here: the receiver meets the same failure.
func (f *foreground[Req, Res]) sendInput() {
	buf := make([]byte, stdinChunk)
	for {
		n, err := f.rio.Stdin.Read(buf)
		if n > 0 {
			l, ok := f.input.pass(int64(n))
			if !ok {
				return
			}
			_ = l.send(f.stdin(buf[:n]))
		}
		if err != nil {
			if l, ok := f.input.finish(); ok {
				_ = l.send(f.closeStdin())
			}
			return
		}
	}
}

// sendOthers passes signals and sizes on. One that is on its way while the
// connection breaks may be lost; the last size is sent again.
func (f *foreground[Req, Res]) sendOthers(ctx context.Context) {
	signals, resizes := f.rio.Signals, f.rio.Resizes
	for signals != nil || resizes != nil {
		select {
		case <-ctx.Done():
			return
		case s, ok := <-signals:
			if !ok {
				signals = nil
			} else if l, ok := f.input.pass(0); ok {
				_ = l.send(f.signal(int32(s)))
			}
		case s, ok := <-resizes:
			if !ok {
				resizes = nil
			} else if l, ok := f.input.resized(s); ok {
				_ = l.send(f.resize(s.Message()))
			}
		}
	}
}

// gate lets senders through to the connection of the moment, and bounds how far
// input may be ahead of its receiver.
type gate[Link any] struct {
	mu     sync.Mutex
	moved  sync.Cond
	size   int64
	link   Link
	open   bool  // there is a link
	sent   int64 // bytes of input, over all connections
	acked  int64
	base   int64 // bytes that were sent before this connection
	ended  bool  // the input is at its end
	screen *Size // last size that was sent
	closed bool
}

func newGate[Link any](size int64) *gate[Link] {
	g := &gate[Link]{size: size}
	g.moved.L = &g.mu
	return g
}

// pass waits until n more bytes of input may be sent, and says over which
// connection. False means that the gate closed.
func (g *gate[Link]) pass(n int64) (l Link, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.wait(n)
}

func (g *gate[Link]) wait(n int64) (l Link, ok bool) {
	for !g.closed && (!g.open || n > 0 && g.sent+n > g.acked+g.size) {
		g.moved.Wait()
	}
	g.sent += n
	return g.link, !g.closed
}

// finish is pass for the end of the input.
func (g *gate[Link]) finish() (l Link, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ended = true
	return g.wait(0)
}

// resized is pass for a size of the terminal.
func (g *gate[Link]) resized(s Size) (l Link, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.screen = &s
	return g.wait(0)
}

// join opens the gate to l, and says what was sent to the connection before.
func (g *gate[Link]) join(l Link) (screen *Size, ended bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.link, g.open, g.base = l, true, g.sent
	g.moved.Broadcast()
	return g.screen, g.ended
}

// leave shuts the gate until there is another connection.
func (g *gate[Link]) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open = false
}

// taken records that the receiver has taken total bytes of this connection's.
func (g *gate[Link]) taken(total int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.acked = min(max(g.acked, g.base+total), g.sent)
	g.moved.Broadcast()
}

// unacknowledged is how many bytes were sent that nobody may have taken.
func (g *gate[Link]) unacknowledged() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.sent - g.acked
}

// close sends all senders away.
func (g *gate[Link]) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	g.moved.Broadcast()
}
